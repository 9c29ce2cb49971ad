"""Holding a consumer still: pause it, wait until the pause is in effect and its workers have acknowledged; let it go again.

Invariant: a pause of ours has a deadline on the server's clock (a dead-man switch), which is in the journal before it is asked
for: only a pause with exactly that deadline is ours, and was in effect all the time. It is renewed before half of it is used.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from reconciler.model import units
from reconciler.procedures.consumer import ConsumerSeen, ConsumerTarget, encode
from reconciler.procedures.machine import Abort, Do, Step, Wait
from reconciler.procedures.requests import PauseConsumer, UpdateConsumer

POLL = 250 * 10**6
PATIENCE = 5 * 10**9
"""How long a cluster may take to put an answered pause into effect before it is asked again."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What spares a machine work; nothing is lost with it, and nothing wrong is done without it."""

    paused_at: int = 0
    """When a pause was last requested."""
    resumed_at: int = 0
    """When its end was last requested."""
    quiet_since: int = 0
    """When the pause was first seen in effect."""
    drained: bool = False
    reset_to: int = 0
    giving_up: Abort | None = None


FRESH = Memory()


def hold_still(target: ConsumerTarget, seen: ConsumerSeen, memory: Memory) -> Step | Memory:
    """The next step towards a paused, drained consumer; a Memory once it is one."""
    if seen.paused_by_other:
        return _by_somebody_else(target, seen)
    if seen.chosen - seen.time < target.deadline:
        noted = seen.chosen_again(seen.time + 2 * target.deadline)
        title = f"note until when {target.key.name} is paused"
        return Do(UpdateConsumer(target.key, noted), title, Memory(giving_up=memory.giving_up))
    if not seen.paused_as_chosen:
        if seen.time - memory.paused_at < min(PATIENCE, 2 * target.deadline):
            return Wait(seen.time + POLL, "the pause takes effect", memory)
        until = units.format_time(seen.chosen)
        paused = Memory(paused_at=seen.time, giving_up=memory.giving_up)
        return Do(PauseConsumer(target.key, until), f"pause {target.key.name}", paused)
    memory = replace(memory, quiet_since=memory.quiet_since or seen.time)
    enough = memory.quiet_since + min(seen.ack_wait, target.deadline)
    if seen.in_flight and not memory.drained and seen.time < enough:
        return Wait(seen.time + POLL, f"{seen.in_flight} messages in flight are acknowledged", memory)
    return replace(memory, drained=True)


def release(target: ConsumerTarget, seen: ConsumerSeen, memory: Memory) -> Step | None:
    """The next step towards the pause the target declares, usually none; None once that is so."""
    wanted = _declared_pause(target, seen)
    if seen.paused_by_other:
        return None  # whoever paused it ends that
    if seen.pause_until == wanted if wanted else not seen.paused:
        return None
    if seen.time - memory.resumed_at < PATIENCE:
        return Wait(seen.time + POLL, "the consumer resumes", memory)
    until = units.format_time(wanted) if wanted else ""
    resumed = Memory(resumed_at=seen.time, giving_up=memory.giving_up)
    return Do(PauseConsumer(target.key, until), f"resume {target.key.name}", resumed)


def lapsed(target: ConsumerTarget, seen: ConsumerSeen) -> bool:
    """Whether a pause of ours ran out; one that was ended on purpose leaves no deadline behind."""
    return not seen.paused and seen.pause_until != 0 and seen.pause_until != _declared_pause(target, seen)


def give_up(target: ConsumerTarget, seen: ConsumerSeen, memory: Memory) -> Step:
    """Resume, take the journal off, and abort with the reason in memory."""
    reason = memory.giving_up or Abort("refused", "the server refused a step")
    if not seen.journal:
        return reason
    step = release(target, seen, memory)
    if step:
        return step
    return Do(UpdateConsumer(target.key, encode(target.key.mark, seen.config, None)), "take back the journal", memory)


def paused_by_person(target: ConsumerTarget, seen: ConsumerSeen) -> Abort | None:
    """A pause that neither a journal nor a manifest explains is not ours to end."""
    if seen.journal or seen.marker.pause_until or not seen.paused_by_other:
        return None
    return _by_somebody_else(target, seen)


def _by_somebody_else(target: ConsumerTarget, seen: ConsumerSeen) -> Abort:
    return Abort("paused-by-person", f"{target.key} was paused until {seen.config.get('pause_until')} by somebody else")


def _declared_pause(target: ConsumerTarget, seen: ConsumerSeen) -> int:
    text = target.marker.pause_until
    until = units.parse_time(text) if text else 0
    return until if until > seen.time else 0
