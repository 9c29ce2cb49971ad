"""Leaving a durable, for another one, for none, or for itself as it shall be: first it is held still.

Invariant: an entry is only taken away from a durable at rest, and the durable is only deleted when its messages are safe: on
interest it keeps them until the new reader is heard of, on a workqueue it has acknowledged all that was copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reconciler.model.identity import Key
from reconciler.model.journals import ATTACH, COPIED, DRAIN, ENTRY, FROM, LEFT, START
from reconciler.model.normal import Config
from reconciler.model.sourcing import detached, fresh_ephemeral, placeholder
from reconciler.procedures.consumer import ConsumerSeen, ConsumerTarget, encode
from reconciler.procedures.machine import Abort, Ask
from reconciler.procedures.pause import PATIENCE, let_go
from reconciler.procedures.requests import DeleteConsumer, Fact, PauseConsumer, Read, UpdateConsumer
from reconciler.procedures.side_by_side import PartStep
from reconciler.sources.migration.attach import drop, enlist
from reconciler.sources.migration.pairs import reads_through, same_entry
from reconciler.sources.migration.step import Ground, durable_name, journal_of, means
from reconciler.sources.overtaken import WAY_OUT, Widened, overtaken, selected

_AT_REST = ("deliver_subject", "filter_subjects")
"""What may only be changed while nothing is on its way."""


def keep(ground: Ground, live: Config, target: ConsumerTarget) -> PartStep | None:
    """The entry reads through the right durable; that one, or how it is read, may have to change."""
    slot, seen = ground.slot, ground.view.consumer(target.key)
    if seen is None:
        return _made_again(ground, live, target)
    if detached(live) and journal_of(seen) != DRAIN:
        return ground.update(slot.wanted, f"attach {slot.origin}")
    if same_entry(live, slot.wanted) and not needs_stillness(seen.config, target.wire):
        return _brought_up(ground, seen, target)
    still = ground.drained(target.key, seen)
    if not isinstance(still, int):
        return still
    if not detached(live):
        return _overtaken(ground, live, seen, target, still) or _detach(ground, live, seen, target, still)
    if seen.info.get("push_bound"):
        return ground.wait("the stream lets go")
    data = {START: still + 1, ENTRY: slot.wanted}
    if seen.unacknowledged and slot.retention == "workqueue":
        data[FROM] = seen.data.get(ENTRY)  # what is copied is still there, and nobody else will take it away
    return ground.resting(still).note(target.key, target.wire, ATTACH, data, f"update {target.key.name}")


def _made_again(ground: Ground, live: Config, target: ConsumerTarget) -> PartStep:
    """What it delivers again is known to the stream by its sequence, unless all of that was copied in another way."""
    found = ground.copied(live) if reads_through(live, target.key.name) and ground.slot.retention != "workqueue" else None
    if isinstance(found, Ask):
        return found
    noted = ground.noted(target.key.name) if found and not found.seq else 0
    if not isinstance(noted, int):
        return noted
    return enlist(ground.resting(noted), target, {START: noted + 1}) if noted else ground.create(target)


def _detach(ground: Ground, live: Config, seen: ConsumerSeen, target: ConsumerTarget, still: int) -> PartStep:
    """The entry lets go of the durable, which rests: what is known of how far it has come stands in its journal before."""
    known = {ENTRY: live} | ({COPIED: still} if still > seen.floor else {})
    if any(seen.data.get(name) != value for name, value in known.items()):
        return ground.note(target.key, seen.config, DRAIN, known, f"note that {still} was copied last")
    return ground.update(placeholder(live), f"detach {ground.slot.origin}", final=True)


def _overtaken(ground: Ground, live: Config, seen: ConsumerSeen, target: ConsumerTarget, still: int) -> PartStep | None:
    """Why it may not change, now that it is known how far it has come; None where nothing is passed over."""
    facts, asked = ground.view.facts, list[Read]()

    def answer(read: Read) -> Fact | None:
        asked.append(read)
        return facts.get(read)

    before, after = (selected(config, ground.slot.subjects) for config in (seen.config, target.wire))
    widened = Widened(ground.view.stream, live, target.key.stream_key, before, after)
    found = [] if ground.slot.skips else list(overtaken(widened, still, answer))
    if any(read not in facts for read in asked):
        return ground.ask(*asked)
    return Abort("position-loss", f"{found[0]}; {WAY_OUT}") if found else None


def _brought_up(ground: Ground, seen: ConsumerSeen, target: ConsumerTarget) -> PartStep | None:
    """The durable runs, and becomes as it shall be; what was left of another one goes."""
    old = ground.slot.old
    if seen.left_paused:
        return ground.do(PauseConsumer(target.key, ""), f"resume {target.key.name}, which was paused late")
    if journal_of(seen) == DRAIN:
        return ground.finished(let_go(target.key, seen))
    if means(seen.config) != means(target.wire) or seen.marker != target.marker:
        return ground.do(UpdateConsumer(target.key, encode(target.key.mark, target.wire, None)), f"update {target.key.name}")
    return drop(ground, old) if old and old != target.key else None


def end(ground: Ground) -> PartStep | None:
    """For good: what the durable has delivered is taken in; None once the entry may go with the rest of the configuration."""
    slot = ground.slot
    seen = ground.view.consumer(slot.old) if slot.drop_old else None
    if slot.old is None or seen is None:
        return None
    still = ground.drained(slot.old, seen)
    return None if isinstance(still, int) else still


def needs_stillness(live: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether a durable may only be changed while nothing is on its way."""
    was, shall = means(live), means(wanted)
    return any(was.get(name) != shall.get(name) for name in _AT_REST)


def leave(ground: Ground, live: Config, key: Key) -> PartStep:
    """For another durable, or for none."""
    slot, old, queue = ground.slot, ground.view.consumer(key), ground.slot.retention == "workqueue"
    start = 0  # what is left on a workqueue was not copied yet
    if old is not None:
        still = ground.drained(key, old)
        if not isinstance(still, int):
            return still
        if queue:
            return ground.do(DeleteConsumer(key), f"delete {key.name}, which has handed over everything", final=True)
        start = still + 1
    elif not queue:
        found = ground.copied(_attached(live))
        if isinstance(found, Ask):
            return found
        start = found.seq + 1
    if slot.durable:
        given_up = (ground.known(old, ENTRY) if old and detached(live) else {}) or _attached(live)
        left = {LEFT: given_up} if start else {}
        return enlist(ground.resting(start - 1), slot.durable, {START: start, **left})
    title = f"read {slot.origin} without {key.name}"
    if queue or durable_name(slot.wanted):
        return ground.update(slot.wanted, title, final=True)
    if moved := ground.moved():
        return moved
    entry = fresh_ephemeral(slot.wanted, start, slot.subjects, slot.made)
    if entry is None:
        message = f"{slot.origin} listens to everything: no ephemeral source can be told from an earlier one"
        return Abort("position-loss", message)
    return ground.update(entry, f"{title}, from {start} on", final=True)


def _attached(entry: Config) -> Config:
    """The entry that a placeholder stands for, as far as its identity goes."""
    if not detached(entry):
        return entry
    kept: Config = {part: entry[part] for part in ("name", "external") if part in entry}
    return kept | {"consumer": {"name": durable_name(entry)}}


def settle(ground: Ground, live: Config) -> PartStep | None:
    """The entry is ephemeral and shall be; what is left of a durable goes once the new reader is heard of."""
    slot = ground.slot
    if slot.old is None or ground.view.consumer(slot.old) is None:
        return None
    since = ground.memory.flowing_from or ground.now
    patient = slot.retention == "interest" or ground.now - since < PATIENCE
    if patient and not ground.view.flows(live):
        return ground.wait("messages flow again", flowing_from=since)
    return drop(ground, slot.old)
