"""What each step of a source migration stands on: one slot, what was read, and what is remembered.

Invariant: nothing here decides; a Ground only makes steps, each with the memory that belongs to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from reconciler.model import units
from reconciler.model.flow import copied_entries
from reconciler.model.identity import Key
from reconciler.model.journals import ATTACH, COPIED, DRAIN, ENTRY, MIGRATE, ORIGIN, STREAM, UNTIL, is_entry
from reconciler.model.marker import CopiedBefore
from reconciler.model.normal import Config, normal_consumer
from reconciler.model.sourcing import detached, identity_of
from reconciler.procedures.consumer import (
    DEFAULT_DEADLINE,
    ConsumerSeen,
    ConsumerTarget,
    choice,
    encode,
    encode_paused,
)
from reconciler.procedures.machine import Abort, Ask, Do, Step, Wait
from reconciler.procedures.requests import (
    Copied,
    CreateConsumer,
    LastCopied,
    PauseConsumer,
    Read,
    StreamInfo,
    UpdateConsumer,
    Write,
)
from reconciler.procedures.side_by_side import Edit
from reconciler.sources.migration.drain import NOTHING, POLL, Held, again, hold
from reconciler.sources.migration.pairs import STEADY, Slot, View, place_of

NAME = MIGRATE
RESTS = 10**9
"""What was queued when an entry changed is stored after this much silence."""
FAR = 365 * 24 * 3600 * 10**9
"""A durable that is not in place yet must not begin by itself: it would repeat everything."""
CALM = 5 * 10**9
"""Where nobody was elected for so long, nobody is about to attach anew what has only just begun to flow."""


@dataclass(frozen=True, slots=True)
class SlotMemory:
    """What spares the machine work on one slot; nothing is lost with it, and nothing wrong is done without it."""

    held: Held = NOTHING
    copied: int = -1
    """The last sequence stored under the identity that is being left."""
    copied_since: int = 0
    rested_at: int = 0
    """The last sequence that was copied, as this process has seen itself when the old way came to rest."""
    purged: tuple[str, ...] = ()
    asked_at: int = 0
    """When a pause, or its end, was last requested."""
    flowing_from: int = 0
    """When the new reader was first waited for."""
    led_by: tuple[str, ...] = ()
    """Who leads the stream and the durables; empty where nobody is elected."""
    led_since: int = 0
    stood: int = -1
    """The floor of the new reader before it had acknowledged anything."""


@dataclass(frozen=True, slots=True)
class Ground:
    """One slot on its way."""

    slot: Slot
    view: View
    memory: SlotMemory

    @property
    def now(self) -> int:
        """The server's time."""
        return self.view.now

    def do(self, write: Write, title: str, *, final: bool = False, **memory: Any) -> Do:  # noqa: ANN401 - fields of Memory
        """One write."""
        return Do(write, title, replace(self.memory, **memory), final=final)

    def update(
        self, entry: Config, title: str, *, final: bool = False, held: bool = False, before: CopiedBefore | None = None
    ) -> Edit | Wait:
        """Put an entry in the slot's place; one whose durable is not held still begins at once, so the leaders have to stay."""
        unsteady = None if held or detached(entry) else self._unsteady()
        return unsteady or Edit((self.slot, entry, before), title, self.memory, final)

    def create(self, target: ConsumerTarget) -> Do:
        """Make a durable that begins by itself."""
        return self.do(CreateConsumer(target.key, target.config), f"create {target.key.name}")

    def prepare(self, target: ConsumerTarget, data: Mapping[str, Any]) -> Do:
        """Make a durable that waits, paused, to be taken into use."""
        until = self.now + FAR
        known = {**data, **self._of_origin, "made": True, STREAM: str(self.view.stream), **choice(until)}
        config = encode_paused(target.key, target.wire, target.journal(NAME, ATTACH, known), target.marker.owner, until)
        return self.do(CreateConsumer(target.key, config), f"create {target.key.name}, paused")

    def note(self, key: Key, config: Config, step: str, data: Mapping[str, Any], title: str) -> Do:
        """Write a journal into a durable."""
        target = ConsumerTarget(key=key, config=encode(key.mark, config, None), level=0)
        of_origin = self._of_origin if step == ATTACH else {}
        journal = target.journal(NAME, step, {**of_origin, **data, STREAM: str(self.view.stream), **self._pause_of(key, step)})
        return self.do(UpdateConsumer(key, encode(key.mark, config, journal, target.marker.owner or self.view.owner)), title)

    @property
    def _of_origin(self) -> Mapping[str, Any]:
        return {ORIGIN: self.slot.made} if self.slot.made else {}

    def counts(self, seen: ConsumerSeen) -> bool:
        """Whether what a journal says of sequences is of this origin, and not of one that it was made anew for."""
        return not self.slot.made or bool(seen.data.get(ORIGIN, self.slot.made) == self.slot.made)

    def moved(self) -> Ask | Abort | None:
        """Why no sequence of the origin counts by now: it was made anew since this was planned; None while it is the same."""
        if any(question not in self.view.facts for question in self.origin):
            return self.ask(*self.origin)
        facts = [self.view.facts[question] for question in self.origin]
        if all(isinstance(fact, dict) and fact["created"] == self.slot.made for fact in facts):
            return None
        return Abort("moved", f"{self.slot.origin} was deleted, or made anew, meanwhile")

    @property
    def origin(self) -> tuple[Read, ...]:
        """What shows whether the origin is the one that was planned for; nothing where that was not known."""
        return (StreamInfo(self.slot.origin),) if self.slot.made else ()

    def _pause_of(self, key: Key, step: str) -> Mapping[str, Any]:
        """What a journal says of the pause: it is a long one from `attach` on."""
        seen = self.view.consumer(key)
        if seen is None:
            return {}
        if step == ATTACH and journal_of(seen) != ATTACH:
            return choice(self.now + FAR)
        return {UNTIL: seen.data[UNTIL]} if seen.chosen else {}

    def finished(self, step: Do | None) -> Do | None:
        """A step of somebody who knows no memory."""
        return replace(step, memory=self.memory) if step else None

    def resting(self, at: int) -> Ground:
        """The same, with that known."""
        return replace(self, memory=replace(self.memory, rested_at=at))

    def wait(self, title: str, *, over: int = 0, **memory: Any) -> Wait:  # noqa: ANN401 - fields of Memory
        """Look again soon, and not later than the waiting is `over`, if that is known."""
        until = self.now + POLL
        return Wait(min(until, over) if over else until, title, replace(self.memory, **memory))

    def known(self, seen: ConsumerSeen, part: str) -> Config:
        """An entry that a journal tells of, as long as it may be one of this slot, and is no other's; else empty."""
        entry = seen.data.get(part)
        if not is_entry(entry) or place_of(entry) != place_of(self.slot.wanted or self.slot.was):
            return {}
        own, name, live = {"", *(key.name for key in self.slot.keys)}, durable_name(entry), self.view.entry(self.slot)
        others = [one for one in copied_entries(self.view.config) if one != live]
        if identity_of(entry) in map(identity_of, others):
            return {}
        return entry if name in own or name not in map(durable_name, others) else {}

    def drained(self, key: Key, seen: ConsumerSeen) -> int | Step:
        """The next step towards a durable at rest; once it is, the last sequence that was copied."""
        live, known = self.view.entry(self.slot), self.known(seen, ENTRY)
        if live and detached(live) and known and seen.paused_as_chosen and seen.unacknowledged:
            return self.rested(known, max(seen.floor, seen.sequence(COPIED) or 0))
        target = ConsumerTarget(key=key, config=encode(key.mark, seen.config, None), level=0)
        owner = seen.marker.owner or self.view.owner
        data: dict[str, Any] = {STREAM: str(self.view.stream), ENTRY: self.view.entry(self.slot)}
        data |= choice(seen.time + 2 * DEFAULT_DEADLINE)
        journalled = encode(key.mark, seen.config, target.journal(NAME, DRAIN, data), owner)
        held = self.memory.held if self.memory.held.of == key.name else Held(of=key.name)
        found = hold(key, seen, journalled, self.now, held)
        if isinstance(found, int):
            return self._taken_in(key, seen, found)
        step, held = found
        return replace(step, memory=replace(self.memory, held=held)) if isinstance(step, Do | Wait) else step

    def attached(self, seen: ConsumerSeen, entry: Config) -> Wait | None:
        """The wait for a stream that listens to a durable, and for leaders that stay; None when that is so.

        Where somebody is elected, what is stored before that is not known to the next leader, which has it delivered again.
        """
        if not self.memory.led_by:
            return None
        if not (seen.info.get("push_bound") and self.view.flows(entry)):
            return self.wait(f"{self.view.stream} attaches {self.slot.origin}")
        return self._unsteady()

    def _unsteady(self) -> Wait | None:
        if self.memory.led_by and self.now - self.memory.led_since < STEADY:
            return self.wait("the leaders stay the same", over=self.memory.led_since + STEADY)
        return None

    def _taken_in(self, key: Key, seen: ConsumerSeen, floor: int) -> int | Step:
        """The last sequence that was copied: more than a durable's floor, where a server was stopped before it was told.

        On a workqueue such messages are still there, so the durable has to hand them over, and be told, once more, as soon as
        somebody listens. Where another one of that name was made meanwhile, which delivers elsewhere, nobody ever will.
        """
        live = self.view.entry(self.slot)
        if live is None or detached(live):
            return max(floor, seen.sequence(COPIED) or 0)
        found = self.copied(live)
        if isinstance(found, Ask):
            return found
        if found.seq <= floor or self.slot.retention != "workqueue":
            return max(found.seq, floor)
        if not seen.info.get("push_bound"):
            if (live.get("consumer") or {}).get("deliver_subject") != seen.config.get("deliver_subject"):
                return found.seq
            return self.wait(
                f"{self.view.stream} listens to {key.name} again, which was not told that all it delivered is stored"
            )
        held = again(self.memory.held, self.now)
        title = f"resume {key.name}, which was not told that all it delivered is stored"
        return self.do(PauseConsumer(key, ""), title, held=held)

    @property
    def calm(self) -> bool:
        """Whether nobody was elected lately."""
        return not self.memory.led_by or self.now - self.memory.led_since >= CALM

    def copied(self, entry: Mapping[str, Any]) -> Copied | Ask:
        """How far was copied under the identity of an entry."""
        return self.copied_as(identity_of(entry))

    def copied_as(self, identity: str) -> Copied | Ask:
        """The same, by the identity itself; what was stored before the origin was made is not of this one."""
        question = LastCopied(self.view.stream, identity)
        fact = self.view.facts.get(question)
        if not isinstance(fact, Copied):
            return self.ask(question)
        return Copied(0, fact.time) if self.older(fact) else fact

    def older(self, copied: Copied) -> bool:
        """Whether it was stored before the origin was made."""
        known = bool(copied.time and self.slot.made)
        return known and units.parse_time(copied.time) < units.parse_time(self.slot.made)

    def noted(self, durable: str) -> int | Ask:
        """Up to where was copied before a durable was read through, by the stream's own mark; 0 where it says nothing."""
        before = self.view.before(durable)
        if before is None or (self.slot.made and before.made != self.slot.made):
            return 0
        found = self.copied_as(before.identity)
        return found if isinstance(found, Ask) else max(before.at, found.seq)

    def rested(self, entry: Mapping[str, Any], least: int) -> int | Step:
        """The last sequence that was copied under the identity of an entry that nobody reads through any more."""
        memory, found = self.memory, self.copied(entry)
        if isinstance(found, Ask):
            return found
        title = "what was on its way arrives"
        if found.seq != memory.copied:
            return self.wait(title, copied=found.seq, copied_since=self.now)
        if self.now - memory.copied_since < RESTS:
            return Wait(memory.copied_since + RESTS, title, memory)
        return max(found.seq, least)

    def ask(self, *more: Read) -> Ask:
        """Read all of the look once more, and these: a look is of one moment."""
        return Ask(more, self.memory)


def journal_of(seen: ConsumerSeen | None) -> str:
    """The step of our journal in a durable; empty without one."""
    return seen.journal.step if seen and seen.journal and seen.journal.name == NAME else ""


def durable_name(entry: Mapping[str, Any]) -> str:
    """The durable that an entry reads through, or that its placeholder stands for."""
    name: str = (entry.get("consumer") or {}).get("name", "") or detached(entry)
    return name


def means(config: Mapping[str, Any]) -> Config:
    """What a durable is, without anything that makes no difference."""
    return normal_consumer(dict(config))
