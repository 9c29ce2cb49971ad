"""migrate-source: change how a stream copies from others while messages flow, losing and repeating none.

What an entry has copied is known to the server under the entry's identity (`model.sourcing.identity_of`); a new identity
begins where its consumer stands. So every way from one to another is: hold the old one still, find Y, the last sequence it
copied, and let the new one begin at Y + 1.

- ephemeral → durable (`attach.prepare`): the durable is made paused, and the entry begins to read through it; Y is the last
  message stored under the old identity, once that rests; RESET to Y + 1, resume;
- durable → another one (`detach.leave`): pause and drain the old one, whose ack floor is Y; make the new one paused, RESET to
  Y + 1, read through it, resume; delete the old one;
- durable → ephemeral: pause and drain; an entry that starts at Y + 1 under an identity never used before; delete the durable;
- durable → itself, changed (`detach.keep`): pause and drain, detach, update, attach, RESET to Y + 1, resume.

A workqueue has room for one reader: there the old durable goes before the new one comes, and what a server's own durable had
copied without acknowledging it is purged.

Entries go side by side (`procedures.side_by_side`), those of one origin one after the other, and the stream is updated once for
all of them: none is switched while messages begin to flow through another one, which in a cluster copies again.

Invariant: the next step follows from the entries, the durables and the journals in them: `drain` in one that is being left,
`attach` and `resume` in one that is being taken into use.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import orjson

from reconciler.model.flow import copied_entries
from reconciler.model.identity import Key
from reconciler.model.journals import ATTACH, RESUME
from reconciler.model.marker import read_marker, with_mark
from reconciler.model.normal import Config, canonical, normal_stream
from reconciler.model.sourcing import detached
from reconciler.procedures.machine import Abort, Description, Do, Done, Observation, Step
from reconciler.procedures.move_subject import StreamTarget
from reconciler.procedures.pause import let_go
from reconciler.procedures.requests import CreateStream, DeleteConsumer, Read, StreamInfo, UpdateStream
from reconciler.procedures.side_by_side import Course, PartStep, side_by_side
from reconciler.sources.migration.attach import drop, prepare, take, unknown_position
from reconciler.sources.migration.detach import end, keep, leave, settle
from reconciler.sources.migration.pairs import EntryEdit, Slot, View, reads_through, same_entry, stands_for, with_variations
from reconciler.sources.migration.step import NAME, Ground, SlotMemory, durable_name, journal_of

__all__ = ["NAME", "MigrateSource", "Slot"]


@dataclass(frozen=True, slots=True)
class MigrateSource:
    """Brings a stream, and the durables that it reads through, to what is declared."""

    stream: StreamTarget
    slots: tuple[Slot, ...]
    steps: tuple[str, ...] = ()
    """For people: what the plan expects it to do."""
    final: str = ""
    """For people: its point of no return."""
    duplicates: int = 0
    """Messages that are copied again at most; somebody allowed that."""
    notes: tuple[str, ...] = ()
    name: str = field(default=NAME, init=False)

    @property
    def key(self) -> Key:
        """The stream that copies."""
        return self.stream.key

    @property
    def touches(self) -> tuple[Key, ...]:
        """The durables."""
        return tuple(dict.fromkeys(key for slot in self.slots for key in slot.keys))

    def describe(self) -> Description:
        """What the plan prints."""
        return Description(NAME, self.steps, self.final, self.duplicates, self.notes, "copied again")

    def step(self, observation: Observation, memory: Course | None) -> Step:
        """The next thing to do."""
        return side_by_side(self, observation, memory)

    @property
    def locks(self) -> Sequence[Key]:
        """Entries of one origin may share durables, and a workqueue has room for one reader."""
        return [slot.origin for slot in self.slots]

    @property
    def shared(self) -> tuple[Read, ...]:
        """The stream that copies."""
        return (StreamInfo(self.key),)

    def consumers(self, number: int) -> Sequence[Key]:
        """The durables of all entries of this origin: whether messages flow is only told of all of them together."""
        origin = self.slots[number].origin
        return tuple(dict.fromkeys(key for slot in self.slots if slot.origin == origin for key in slot.keys))

    def part_step(self, number: int, look: Observation, course: Course) -> PartStep | None:
        """The next step of one entry."""
        slot, view = self.slots[number], self._view(look)
        ground = Ground(slot, view, _led(slot, view, course.parts.get(number, SlotMemory())))
        return _take_back(ground) if course.giving_up else _next(ground)

    def folded(self, edits: Iterable[EntryEdit], look: Observation) -> Do:
        """One update of the stream with all these entries."""
        return Do(UpdateStream(self.key, self._view(look).with_entries(edits)), f"update {self.key.stream_name}")

    def _view(self, look: Observation) -> View:
        owner = read_marker(self.stream.wire.get("metadata"), self.key.mark).owner
        return View(self.key, look.facts, look.now, owner)

    def finish(self, look: Observation) -> Step:
        """Every entry is in place, or comes and goes with the rest of the configuration, which is what is left."""
        view = self._view(look)
        name, config = self.key.stream_name, self._final_config(view)
        if view.info is None:
            return Do(CreateStream(self.key, config), f"create {name}")
        wanted = orjson.loads(config)
        marked = read_marker(view.config.get("metadata"), self.key.mark) == read_marker(wanted.get("metadata"), self.key.mark)
        if not marked or normal_stream(view.config, name) != normal_stream(wanted, name):
            return Do(UpdateStream(self.key, config), f"update {name}")
        return Done(self.notes)

    def _final_config(self, view: View) -> bytes:
        """As declared, with entries that had to be varied as they are; that, and the way before, is noted in the marker."""
        varied = [pair for slot in self.slots if (pair := _variation(slot, view))]
        read = set(map(durable_name, copied_entries(self.stream.wire)))
        noted = read_marker(view.config.get("metadata"), self.key.mark).before
        before = tuple(one for one in noted if one.durable in read)
        if not (varied or before):
            return self.stream.config
        config = self.stream.wire
        marker = replace(read_marker(config["metadata"], self.key.mark), before=before)
        config["metadata"] = with_mark(config["metadata"], marker, self.key.mark)
        entries = list(config.get("sources") or ())
        for said, live in varied:
            entries = [live if same_entry(entry, said) else entry for entry in entries]
        found = {"sources": entries} if entries else {}
        return canonical({**config, **found, "metadata": with_variations(self.key, config["metadata"], varied)})


def _led(slot: Slot, view: View, memory: SlotMemory) -> SlotMemory:
    """Since when the stream and the durables of a slot have the leaders that they have now."""
    leaders, known_for = view.leaders(slot), view.led_for(slot)
    if known_for is not None:
        return replace(memory, led_by=leaders, led_since=view.now - known_for)
    return memory if leaders == memory.led_by else replace(memory, led_by=leaders, led_since=view.now)


def _variation(slot: Slot, view: View) -> tuple[Config, Config] | None:
    """What is said, and the live entry that stands for it without being equal to it."""
    live = view.entry(slot) if slot.after else None
    return (slot.spoken, live) if live and stands_for(live, slot.spoken) else None


def _next(ground: Ground) -> PartStep | None:
    """The next step of one slot; None when it is where it shall be, or needs nothing but the final update."""
    slot, view = ground.slot, ground.view
    live = view.entry(slot)
    for key in slot.keys:
        seen = view.consumer(key)
        if seen and journal_of(seen) in (ATTACH, RESUME):
            return take(ground, seen, key, live)
    if live is None and slot.after:
        return _made_room(ground) or _created(ground)
    if live is None:
        return drop(ground, slot.old) if slot.old else None
    return _from_live(ground, live) if slot.after else end(ground)


def _from_live(ground: Ground, live: Config) -> PartStep | None:
    slot, target, reading = ground.slot, ground.slot.durable, durable_name(live)
    if target and target.key.name == reading:
        return keep(ground, live, target)
    if reading and slot.old and slot.before:
        return leave(ground, live, slot.old)
    if not reading and target is None:
        return settle(ground, live)
    if not reading and target and slot.before:
        reason = unknown_position(ground, live)
        return Abort("position-loss", reason) if reason else prepare(ground, live, target)
    made = _made_room(ground) or _created(ground)
    if made or same_entry(live, slot.wanted):
        return made
    return ground.update(slot.wanted, f"attach {slot.origin}")


def _made_room(ground: Ground) -> PartStep | None:
    """A workqueue has room for one reader, and keeps what was not taken in; None when there is room."""
    slot = ground.slot
    if slot.old is None or slot.retention != "workqueue" or ground.view.consumer(slot.old) is None:
        return None
    return ground.do(DeleteConsumer(slot.old), f"delete {slot.old.name}, which makes room", final=True) if slot.drop_old else None


def _created(ground: Ground) -> PartStep | None:
    """The durable comes before the entry that reads through it; None when it is there, or nobody needs one."""
    target = ground.slot.durable
    return ground.create(target) if target and ground.view.consumer(target.key) is None else None


def _take_back(ground: Ground) -> PartStep | None:
    """Before an entry was touched, everything is undone; afterwards it can only go on, at the next attempt."""
    slot, live = ground.slot, ground.view.entry(ground.slot)
    if live is None or detached(live) or not same_entry(live, slot.was):
        return None
    for key in slot.keys:
        seen = ground.view.consumer(key)
        read = journal_of(seen) == ATTACH and reads_through(live, key.name)  # without its position it must not run
        if seen is None or read or journal_of(seen) in ("", RESUME):
            continue
        if seen.data.get("made") and not seen.info["delivered"]["consumer_seq"]:
            return ground.do(DeleteConsumer(key), f"delete {key.name} again")
        step = ground.finished(let_go(key, seen))
        if step:
            return step
    return None
