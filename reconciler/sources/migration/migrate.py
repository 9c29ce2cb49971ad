"""migrate-source: change how a stream copies from others while messages flow, losing and repeating none.

What an entry has copied is known to the server under the entry's identity (`model.sourcing.identity_of`); a new identity
begins where its consumer stands. So every way from one to another is: hold the old one still, find Y, the last sequence it
copied, and let the new one begin at Y + 1.

- ephemeral → durable (`taking.prepare`): the durable is made paused, and the entry begins to read through it; Y is the last
  message stored under the old identity, once that rests; RESET to Y + 1, resume;
- durable → another one (`leaving.leave`): pause and drain the old one, whose ack floor is Y; make the new one paused, RESET to
  Y + 1, read through it, resume; delete the old one;
- durable → ephemeral: pause and drain; an entry that starts at Y + 1 under an identity never used before; delete the durable;
- durable → itself, changed (`leaving.keep`): pause and drain, detach, update, attach, RESET to Y + 1, resume.

A workqueue has room for one reader: there the old durable goes before the new one comes, and what a server's own durable had
copied without acknowledging it is purged.

Entries go side by side, those of one origin one after the other. Each round is one look at what goes on: every entry takes its
next step by it, and a look dies with the first write to its durables, and of age. The stream itself is updated once for all
entries, when each of them has come so far: none is switched while messages begin to flow through another one.

Invariant: the next step follows from the entries, the durables and the journals in them: `drain` in one that is being left,
`attach` and `resume` in one that is being taken into use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import orjson

from reconciler.model.flow import copied_entries
from reconciler.model.identity import Key
from reconciler.model.marker import read_marker, with_mark
from reconciler.model.normal import Config, canonical, normal_stream
from reconciler.model.sourcing import detached
from reconciler.procedures.machine import Abort, Ask, Description, Do, Done, Observation, Step, Wait
from reconciler.procedures.move_subject import StreamTarget
from reconciler.procedures.pause import let_go
from reconciler.procedures.requests import (
    ConsumerInfo,
    CreateStream,
    DeleteConsumer,
    Fact,
    LastCopied,
    Read,
    StreamInfo,
    UpdateStream,
    changed_by,
)
from reconciler.sources.migration.attach import drop, prepare, take, unknown_position
from reconciler.sources.migration.detach import end, keep, leave, settle
from reconciler.sources.migration.pairs import Slot, View, reads_through, same_entry, stands_for, with_variations
from reconciler.sources.migration.step import ATTACH, NAME, RESUME, Edit, Ground, SlotMemory, SlotStep, durable_name, journal_of

__all__ = ["NAME", "MigrateSource", "Slot"]


FRESH = 250 * 10**6
"""How long a look at all counts; then each of those that are still due is looked at alone."""
TOGETHER = 20 * 10**9
"""How long entries wait for each other before they are switched: longer than messages take to flow."""


@dataclass(frozen=True, slots=True)
class Course:
    """What spares the machine work; nothing is lost with it."""

    slots: Mapping[int, SlotMemory] = field(default_factory=dict)
    settled: frozenset[int] = frozenset()
    """The slots that are where they shall be, as seen when they were looked at last."""
    due: tuple[tuple[int, Do], ...] = ()
    """What the last look gave to do at durables, in this order."""
    looked_at: int = 0
    beside: tuple[Read, ...] = ()
    """What else than the stream and the durables is looked at once a wait is over."""
    together_since: int = 0
    """Since when entries wait for others to be switched with."""
    giving_up: Abort | None = None

    def with_memory(self, steps: Iterable[tuple[int, Ask | Do | Wait | Edit]]) -> Course:
        """With what these slots remember."""
        return replace(self, slots={**self.slots, **{number: step.memory for number, step in steps}})


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
        course = memory or Course()
        if observation.failure:
            if course.giving_up:
                return course.giving_up
            course = replace(course, giving_up=Abort("refused", observation.failure), settled=frozenset(), due=())
        alone = [number for number, _ in course.due[:1]]
        fresh = observation.now - course.looked_at < FRESH
        if alone and fresh and _reads(self.slots[alone[0]]) <= observation.facts.keys():
            return self._send(course, observation.facts)
        going = alone or self._going(course)
        keys = dict.fromkeys(key for number in going for key in self.slots[number].keys)
        reads: tuple[Read, ...] = (StreamInfo(self.key), *map(ConsumerInfo, keys))
        if any(read not in observation.facts for read in reads):
            return Ask((*reads, *course.beside), replace(course, beside=()))
        owner = read_marker(self.stream.wire.get("metadata"), self.key.mark).owner
        view = View(self.key, observation.facts, observation.now, owner)
        steps = {number: self._step_of(number, view, course) for number in going}
        abort = next((step for step in steps.values() if isinstance(step, Abort)), None)
        if abort:
            given_up = replace(course, giving_up=course.giving_up or abort, settled=frozenset())
            return self.step(Observation(view.now, view.facts), given_up)
        moving = {number: step for number, step in steps.items() if step is not None}
        course = replace(course, settled=course.settled.union(going) - moving.keys())
        if alone and not isinstance(moving.get(alone[0]), Ask | Do):
            return self.step(Observation(view.now, {}), replace(course, due=course.due[1:]))  # it comes again in the next round
        if moving:
            return self._round(view, course, moving)
        if len(going) < len(self.slots):
            return self.step(observation, course)
        return course.giving_up or self._finish(view, course)

    def _going(self, course: Course) -> Sequence[int]:
        """The slots that go on: one of each origin, and once all are settled, each of them is looked at once more."""
        first: dict[Key, int] = {}
        for number, slot in enumerate(self.slots):
            if number not in course.settled:
                first.setdefault(slot.origin, number)
        return tuple(first.values()) or tuple(range(len(self.slots)))

    def _step_of(self, number: int, view: View, course: Course) -> SlotStep | None:
        slot = self.slots[number]
        ground = Ground(slot, view, _led(slot, view, course.slots.get(number, SlotMemory())))
        return _take_back(ground) if course.giving_up else _next(ground)

    def _round(self, view: View, course: Course, moving: Mapping[int, SlotStep]) -> Step:
        """What the slots want next: questions first, then what is done at durables; then all their entries are put in place."""
        asks = {number: step for number, step in moving.items() if isinstance(step, Ask)}
        if asks:
            more = (read for step in asks.values() for read in step.reads)
            return Ask(tuple(dict.fromkeys((*view.facts, *more))), course.with_memory(asks.items()))
        due = tuple((number, step) for number, step in moving.items() if isinstance(step, Do))
        waits = {number: step for number, step in moving.items() if isinstance(step, Wait)}
        edits = {number: step for number, step in moving.items() if isinstance(step, Edit)}
        course = course.with_memory(waits.items())
        if course.due:
            return self._send(replace(course, due=(*due, *course.due[1:])), view.facts)
        if due:
            return self._send(replace(course, due=due, looked_at=view.now), view.facts)
        since = course.together_since or view.now
        if edits and (not waits or view.now - since > TOGETHER):
            switched = replace(course.with_memory(edits.items()), together_since=0)
            return _switch(view, switched, tuple(edits.values()))
        first = min(waits.values(), key=lambda wait: wait.until)
        beside = tuple(read for read in view.facts if isinstance(read, LastCopied))
        return replace(first, memory=replace(course, together_since=since if edits else 0, beside=beside))

    def _send(self, course: Course, facts: Mapping[Read, Fact]) -> Step:
        """The next of what the look has given to do; what others go by still counts, but after a write to a stream."""
        (number, step), *rest = course.due
        own = _reads(self.slots[number])
        keeps = tuple(read for read in facts if read not in own) if changed_by(step.write).kind == "Consumer" else ()
        memory = replace(course.with_memory([(number, step)]), due=tuple(rest))
        return replace(step, memory=memory, keeps=keeps)

    def _finish(self, view: View, memory: Course) -> Step:
        """Every entry is in place, or comes and goes with the rest of the configuration, which is what is left."""
        name, config = self.key.stream_name, self._final_config(view)
        if view.info is None:
            return Do(CreateStream(self.key, config), f"create {name}", memory)
        wanted = orjson.loads(config)
        marked = read_marker(view.config.get("metadata"), self.key.mark) == read_marker(wanted.get("metadata"), self.key.mark)
        if not marked or normal_stream(view.config, name) != normal_stream(wanted, name):
            return Do(UpdateStream(self.key, config), f"update {name}", memory)
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


def _reads(slot: Slot) -> frozenset[Read]:
    """The looks at the durables of a slot."""
    return frozenset(map(ConsumerInfo, slot.keys))


def _switch(view: View, course: Course, edits: Sequence[Edit]) -> Do:
    """One update of the stream with the entries of all slots that have come so far."""
    write = UpdateStream(view.stream, view.with_entries((edit.slot, edit.entry, edit.before) for edit in edits))
    more = f", and {len(edits) - 1} more" if len(edits) > 1 else ""
    return Do(write, f"{edits[0].title}{more}", course, final=any(edit.final for edit in edits))


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


def _next(ground: Ground) -> SlotStep | None:
    """The next step of one slot; None when it is where it shall be, or needs nothing but the final update."""
    slot, view = ground.slot, ground.view
    live = view.entry(slot)
    for key in slot.keys:
        seen = view.consumer(key)
        if seen and journal_of(seen) in (ATTACH, RESUME):
            return take(ground, seen, key, live)
    if live is None and slot.after:
        return _created(ground)
    if live is None:
        return drop(ground, slot.old) if slot.old else None
    return _from_live(ground, live) if slot.after else end(ground)


def _from_live(ground: Ground, live: Config) -> SlotStep | None:
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


def _made_room(ground: Ground) -> SlotStep | None:
    """A workqueue has room for one reader, and keeps what was not taken in; None when there is room."""
    slot = ground.slot
    if slot.old is None or slot.retention != "workqueue" or ground.view.consumer(slot.old) is None:
        return None
    return ground.do(DeleteConsumer(slot.old), f"delete {slot.old.name}, which makes room", final=True) if slot.drop_old else None


def _created(ground: Ground) -> SlotStep | None:
    """The durable comes before the entry that reads through it; None when it is there, or nobody needs one."""
    target = ground.slot.durable
    return ground.create(target) if target and ground.view.consumer(target.key) is None else None


def _take_back(ground: Ground) -> SlotStep | None:
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
