"""Holding a durable still that a stream reads through: pause it, and wait until all it delivered has been taken in.

Invariant: such a pause has a deadline on the server's clock, which is in the journal before it is asked for; while it is paused
until exactly then nothing has moved, and the ack floor is exactly the last sequence that was copied.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from reconciler.model import units
from reconciler.model.identity import Key
from reconciler.procedures.consumer import DEFAULT_DEADLINE, ConsumerSeen
from reconciler.procedures.machine import Abort, Do, Step, Wait
from reconciler.procedures.pause import PATIENCE, by_somebody_else
from reconciler.procedures.requests import PauseConsumer, UpdateConsumer

POLL = 250 * 10**6
QUIET = 1200 * 10**6
"""Two looks this far apart must show the same: a cluster answers a pause before it is in effect."""


@dataclass(frozen=True, slots=True)
class Held:
    """What was seen of a durable that is held still."""

    of: str = ""
    """Its name."""

    asked_at: int = 0
    """When the pause was last requested."""
    began: int = 0
    floor: int = -1
    since: int = 0
    """Since when nothing has moved from that floor."""


NOTHING = Held()


def hold(key: Key, seen: ConsumerSeen, journalled: bytes, now: int, held: Held) -> int | tuple[Step, Held]:
    """The next step towards a durable at rest; once it is, the last sequence that was copied."""
    if seen.journal is None:
        refusal = _paused_by_person(key, seen)
        return refusal or Do(UpdateConsumer(key, journalled), f"note the procedure in {key.name}"), held
    held = replace(held, began=held.began or now)
    if seen.paused_by_other:
        return by_somebody_else(key, seen), held
    if seen.chosen - seen.time < DEFAULT_DEADLINE:
        noted = seen.chosen_again(seen.time + 2 * DEFAULT_DEADLINE)
        return Do(UpdateConsumer(key, noted), f"note until when {key.name} is paused"), replace(held, asked_at=0, floor=-1)
    if not seen.paused_as_chosen:
        if now - held.asked_at < PATIENCE:
            return Wait(now + POLL, "the pause takes effect"), held
        until = units.format_time(seen.chosen)
        return Do(PauseConsumer(key, until), f"pause {key.name}"), replace(held, asked_at=now, floor=-1)
    return _at_rest(key, seen, now, held)


def _paused_by_person(key: Key, seen: ConsumerSeen) -> Abort | None:
    if seen.marker.pause_until or not seen.paused_by_other:
        return None
    return by_somebody_else(key, seen)


def _at_rest(key: Key, seen: ConsumerSeen, now: int, held: Held) -> int | tuple[Step, Held]:
    """The last sequence that was copied, once two looks far enough apart show the same; until then a wait."""
    if seen.unacknowledged:
        if now - held.began > DEFAULT_DEADLINE:
            message = f"{key} is paused, but what it has delivered is not taken in: does its stream read through it?"
            return Abort("not-drained", message), held
        return Wait(now + POLL, f"{key.name} hands over what is on its way"), replace(held, floor=-1)
    if held.floor != seen.floor:
        return Wait(now + POLL, f"{key.name} rests"), replace(held, floor=seen.floor, since=now)
    if now - held.since < QUIET:
        return Wait(held.since + QUIET, f"{key.name} rests"), held
    return seen.floor


def again(held: Held, now: int) -> Held:
    """After a resume: it runs for a moment before it is paused once more."""
    return replace(held, asked_at=now - PATIENCE // 2, floor=-1)
