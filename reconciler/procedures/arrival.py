"""Creating a consumer at a position and seeing it there: the second half of every procedure that replaces a consumer.

Where RESET can, the consumer is created as declared, paused, and moved; else it is created with `by_start_sequence`,
and the difference to the manifest is recorded as residue. A workqueue needs neither: what is stored there is unacknowledged.

Invariant: the consumer is paused from its creation until its cursor is at the position.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reconciler.model import units
from reconciler.model.journals import MOVE, RESUME, START
from reconciler.model.normal import normal_consumer
from reconciler.model.residue import BY_SEQUENCE, Residue
from reconciler.procedures.consumer import (
    ConsumerSeen,
    ConsumerTarget,
    choice,
    encode,
    encode_paused,
    immutable_differences,
    new_filters,
)
from reconciler.procedures.holds import hold_key, proven_since
from reconciler.procedures.machine import Ask, Do, Step
from reconciler.procedures.pause import FRESH, PauseMemory, hold_still, release
from reconciler.procedures.requests import (
    ConsumerInfo,
    CreateConsumer,
    Fact,
    Message,
    NextMessage,
    Read,
    ResetConsumer,
    StreamInfo,
    UpdateConsumer,
)

ARRIVING = frozenset({MOVE, RESUME})
_PLACE = ("deliver_policy", "opt_start_seq", "opt_start_time")


@dataclass(frozen=True, slots=True)
class StartPlace:
    """Where to create the consumer, and when that was asked."""

    start: int
    found: Message | None
    """The first message stored at or after `start`."""
    time: int


def search(target: ConsumerTarget, start: int) -> NextMessage:
    """What has to be known of the stream before a consumer is created at `start`."""
    return NextMessage(target.key.stream_key, ">", start)


def place(start: int, fact: Fact, time: int) -> StartPlace:
    """The answer to `search`; holes before the first stored message are skipped, since RESET by time refuses them."""
    found = fact if isinstance(fact, Message) else None
    return StartPlace(found.seq if found else start, found, time)


def create(name: str, target: ConsumerTarget, where: StartPlace, *, reset: bool = True) -> Do:
    """Create the consumer at that place, paused and journalled; without `reset` it has to begin there by itself."""
    config = target.wire
    step = MOVE if reset and movable(target, where) else RESUME
    if step == RESUME:
        config = target.with_residue(_residue(target, where.start)).wire
    until = where.time + 2 * target.deadline
    journal = target.journal(name, step, {START: where.start, **choice(until)})
    paused = encode_paused(target.key, config, journal, target.marker.owner, until)
    return Do(CreateConsumer(target.key, paused), f"create {target.key.name} at {where.start}", FRESH, final=True)


def in_place(
    target: ConsumerTarget, seen: ConsumerSeen, hold: ConsumerSeen | None, facts: Mapping[Read, Fact], memory: PauseMemory
) -> Step | None:
    """The next step to bring a created consumer's cursor to its position; None once it is there (or beyond).

    The journal alone moves it nowhere: it goes as far as its hold proves, and without one it stays, and repeats.
    """
    start = seen.sequence(START) or 0
    if seen.journal is None or seen.journal.step != MOVE or seen.floor >= start - 1 or memory.reset_to:
        return None
    stream = facts.get(StreamInfo(target.key.stream_key))
    least = proven_since(target.key, seen, hold, stream if isinstance(stream, dict) else None)
    reads = (ConsumerInfo(target.key), ConsumerInfo(hold_key(target.key)), StreamInfo(target.key.stream_key))
    if stream is None or (least and search(target, least) not in facts):
        return Ask((*reads, search(target, least)) if least else reads, memory)
    start = min(start, place(least, facts[search(target, least)], seen.time).start) if least else 0
    if seen.floor >= start - 1:
        return None
    still = hold_still(target, seen, memory)
    if not isinstance(still, PauseMemory):
        return still
    return Do(ResetConsumer(target.key, start), f"reset to {start}", PauseMemory(reset_to=start))


def finish(target: ConsumerTarget, seen: ConsumerSeen, memory: PauseMemory) -> Step:
    """Resume, then clear the journal."""
    return release(target, seen, memory) or Do(UpdateConsumer(target.key, _final(target, seen)), "clear the journal", memory)


def _final(target: ConsumerTarget, seen: ConsumerSeen) -> bytes:
    """What it shall carry for good; a target that changed meanwhile beyond a plain update is left to the next plan."""
    reachable = not immutable_differences(seen.config, target) and not new_filters(target, seen)
    return target.with_residue(seen.marker.residue).config if reachable else encode(target.key.mark, seen.config, None)


def movable(target: ConsumerTarget, where: StartPlace) -> bool:
    """Whether RESET will accept the position from a consumer created as declared."""
    if not target.rewindable:
        return False
    config = target.wire
    if config.get("deliver_policy") == "by_start_sequence":
        return where.start >= int(config["opt_start_seq"])
    if config.get("deliver_policy") == "by_start_time":
        return where.found is None or units.parse_time(where.found.time) >= units.parse_time(config["opt_start_time"])
    return True


def _residue(target: ConsumerTarget, start: int) -> tuple[Residue, ...]:
    """The fields in which a consumer created at `start` differs from the manifest, as normal forms show them."""
    declared: Mapping[str, Any] = normal_consumer(target.wire)
    live = {"deliver_policy": BY_SEQUENCE, "opt_start_seq": start}
    return tuple(Residue(name, live.get(name), declared.get(name)) for name in _PLACE if live.get(name) != declared.get(name))
