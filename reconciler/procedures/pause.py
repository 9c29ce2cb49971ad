"""Holding a consumer still: pause it, wait until the pause is in effect and its workers have acknowledged; let it go again.

Invariant: a pause of ours has a deadline on the server's clock (a dead-man switch), which is in the journal before it is asked
for: only a pause with exactly that deadline is ours, and was in effect all the time. It is renewed before half of it is used.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from reconciler.model import units
from reconciler.model.identity import Key
from reconciler.procedures.consumer import ConsumerSeen, ConsumerTarget, encode
from reconciler.procedures.machine import Abort, Do, Step, Wait
from reconciler.procedures.requests import PauseConsumer, UpdateConsumer

POLL = 250 * 10**6
PATIENCE = 5 * 10**9
"""How long a cluster may take to put an answered pause into effect before it is asked again."""


@dataclass(frozen=True, slots=True)
class PauseMemory:
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


FRESH = PauseMemory()


def hold_still(target: ConsumerTarget, seen: ConsumerSeen, memory: PauseMemory) -> Step | PauseMemory:
    """The next step towards a paused, drained consumer; a Memory once it is one."""
    if seen.paused_by_other:
        return by_somebody_else(target.key, seen)
    if seen.chosen - seen.time < target.deadline:
        noted = seen.chosen_again(seen.time + 2 * target.deadline)
        title = f"note until when {target.key.name} is paused"
        return Do(UpdateConsumer(target.key, noted), title, PauseMemory(giving_up=memory.giving_up))
    if not seen.paused_as_chosen:
        if seen.time - memory.paused_at < min(PATIENCE, 2 * target.deadline):
            return Wait(seen.time + POLL, "the pause takes effect", memory)
        until = units.format_time(seen.chosen)
        paused = PauseMemory(paused_at=seen.time, giving_up=memory.giving_up)
        return Do(PauseConsumer(target.key, until), f"pause {target.key.name}", paused)
    memory = replace(memory, quiet_since=memory.quiet_since or seen.time)
    enough = memory.quiet_since + min(seen.ack_wait, target.deadline)
    if seen.in_flight and not memory.drained and seen.time < enough:
        return Wait(seen.time + POLL, f"{seen.in_flight} messages in flight are acknowledged", memory)
    return replace(memory, drained=True)


def release(target: ConsumerTarget, seen: ConsumerSeen, memory: PauseMemory) -> Step | None:
    """The next step towards the pause the target declares, usually none; None once that is so."""
    return _released(target, seen, memory, _until(target.marker.pause_until, seen))


def _released(target: ConsumerTarget, seen: ConsumerSeen, memory: PauseMemory, wanted: int) -> Step | None:
    if seen.paused_by_other:
        return None  # whoever paused it ends that
    if seen.pause_until == wanted if wanted else not seen.paused:
        return None
    if seen.time - memory.resumed_at < PATIENCE:
        return Wait(seen.time + POLL, "the consumer resumes", memory)
    until = units.format_time(wanted) if wanted else ""
    resumed = PauseMemory(resumed_at=seen.time, giving_up=memory.giving_up)
    return Do(PauseConsumer(target.key, until), f"resume {target.key.name}", resumed)


def lapsed(target: ConsumerTarget, seen: ConsumerSeen) -> bool:
    """Whether a pause of ours ran out; one that was ended on purpose leaves no deadline behind."""
    return not seen.paused and seen.pause_until != 0 and seen.pause_until != _until(target.marker.pause_until, seen)


def give_up(target: ConsumerTarget, seen: ConsumerSeen, memory: PauseMemory) -> Step:
    """Paused only as its mark says by now, which knows nothing of what the target declares; without the journal; and abort."""
    reason = memory.giving_up or Abort("refused", "the server refused a step")
    if not seen.journal:
        return reason
    step = _released(target, seen, memory, _until(seen.marker.pause_until, seen))
    if step:
        return step
    return Do(UpdateConsumer(target.key, encode(target.key.mark, seen.config, None)), "take back the journal", memory)


def paused_by_person(target: ConsumerTarget, seen: ConsumerSeen) -> Abort | None:
    """A pause that neither a journal nor a manifest explains is not ours to end."""
    if seen.journal or seen.marker.pause_until or not seen.paused_by_other:
        return None
    return by_somebody_else(target.key, seen)


def by_somebody_else(key: Key, seen: ConsumerSeen) -> Abort:
    """Somebody has paused it, and only they end that."""
    message = f"{key} was paused until {seen.config.get('pause_until')} by somebody else; {way_to_resume(key)}"
    return Abort("paused-by-person", message)


def way_to_resume(key: Key) -> str:
    """What a person has to do about a pause that a person began."""
    return f"resume it first: {resuming(key)}"


def resuming(key: Key) -> str:
    """The command that ends a pause."""
    domain = f" --domain {key.domain}" if key.domain else ""
    return f"`reconciler consumer resume {key.stream_name} {key.name}{domain}`"


def declared_pause(marker_until: str, now: int) -> str:
    """The pause that a manifest still asks for; empty when it asks for none."""
    return marker_until if marker_until and units.parse_time(marker_until) > now else ""


def pause_as_declared(key: Key, seen: ConsumerSeen, declared: str) -> Do | None:
    """The request that brings a durable's pause to what its manifest asks for, usually none; None when it is so."""
    wanted = declared_pause(declared, seen.time)
    if seen.paused_by_other:
        return None
    as_it_is = units.format_time(seen.pause_until) if seen.paused else ""
    if as_it_is == (units.format_time(units.parse_time(wanted)) if wanted else ""):
        return None
    return Do(PauseConsumer(key, wanted), f"pause {key.name} as declared" if wanted else f"resume {key.name}")


def let_go(key: Key, seen: ConsumerSeen) -> Do | None:
    """The next step towards a durable that runs again and carries no journal; None when that is so."""
    if seen.journal is None:
        return None
    clear = Do(UpdateConsumer(key, encode(key.mark, seen.config, None)), f"clear the journal of {key.name}")
    return pause_as_declared(key, seen, seen.marker.pause_until) or clear


def _until(declared: str, seen: ConsumerSeen) -> int:
    text = declared_pause(declared, seen.time)
    return units.parse_time(text) if text else 0
