"""restore-consumer: recreate a consumer that somebody deleted, behind the last message it was seen to be done with.

Creating it as declared would deliver everything once more, or skip what came meanwhile.

    create a hold ▸ create the consumer in its place, paused ▸ RESET ▸ delete the hold ▸ resume

Without RESET it is created at its position, and needs no hold. The same way it goes where no hold is to be had: the stream or the
account has no room for two, or this user may not read or make it.

Invariant: it never starts beyond the message after the last known floor; whoever goes on after a crash believes the hold, or
nobody. A hold of ours is not left behind where the consumer itself is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from reconciler.model.identity import Key
from reconciler.model.journals import RESTORE, RESUME
from reconciler.model.normal import Config
from reconciler.procedures import arrival
from reconciler.procedures.consumer import ConsumerSeen, ConsumerTarget
from reconciler.procedures.holds import create_hold, hold_key, proven
from reconciler.procedures.machine import Abort, Ask, Description, Do, Done, Observation, Step
from reconciler.procedures.pause import FRESH, PauseMemory
from reconciler.procedures.requests import (
    ConsumerInfo,
    CreateConsumer,
    DeleteConsumer,
    Fact,
    Read,
    StreamInfo,
    Unanswered,
)

NAME = RESTORE


@dataclass(frozen=True, slots=True)
class RestoreConsumer:
    """Creates a missing consumer at the position after `floor`."""

    target: ConsumerTarget
    floor: int | None
    """The last stream sequence up to which it was seen to be done; None: nobody remembers, it can only be gone on with."""
    name: str = field(default=NAME, init=False)

    @property
    def key(self) -> Key:
        """The consumer."""
        return self.target.key

    @property
    def touches(self) -> tuple[Key, ...]:
        """The hold."""
        return () if self.target.retention == "workqueue" else (hold_key(self.key),)

    def describe(self) -> Description:
        """What the plan prints."""
        return Description(
            NAME,
            (f"create paused at {self.floor + 1}" if self.floor is not None else "bring it to its place", "resume"),
            expected_duplicates=self.target.expected_duplicates,
            notes=self._notes(),
        )

    def step(self, observation: Observation, memory: PauseMemory | None) -> Step:
        """The next thing to do."""
        if self.target.marker.residue:
            return replace(self, target=self.target.as_declared()).step(observation, memory)
        memory = memory or FRESH
        if observation.failure:
            refused = Abort("refused", observation.failure)
            if memory.giving_up:
                return refused
            memory = replace(memory, giving_up=refused)
        if any(ConsumerInfo(key) not in observation.facts for key in (self.key, *self.touches)):
            return self._ask(memory)
        seen, hold = self._seen(self.key, observation.facts), self._own_hold(observation.facts)
        if seen is None:
            return self._create(hold, observation, memory)
        if seen.journal and seen.journal.name == NAME:
            if memory.giving_up and seen.journal.step != RESUME:
                return memory.giving_up
            return self._arrive(seen, hold, observation.facts, memory)
        if seen.marker.owner == self.target.marker.owner:
            return Done(self._notes())  # what else may differ by now is an ordinary change
        return Abort("exists", f"{self.key} is there again, as somebody else made it")

    def _ask(self, memory: PauseMemory, *more: Read) -> Ask:
        holds = tuple(map(ConsumerInfo, self.touches))
        return Ask((ConsumerInfo(self.key), *holds, *more), memory, spare=holds)

    def _own_hold(self, facts: Mapping[Read, Fact]) -> ConsumerSeen | None:
        hold = self._seen(hold_key(self.key), facts)
        return hold if hold and hold.marker.owner == self.target.marker.owner else None

    def _seen(self, key: Key, facts: Mapping[Read, Fact]) -> ConsumerSeen | None:
        fact = facts.get(ConsumerInfo(key))
        return ConsumerSeen(fact) if isinstance(fact, dict) else None

    def _arrive(self, seen: ConsumerSeen, hold: ConsumerSeen | None, facts: Mapping[Read, Fact], memory: PauseMemory) -> Step:
        step = arrival.in_place(self.target, seen, hold, facts, memory)
        if step:
            return step
        if hold:
            return Do(DeleteConsumer(hold_key(self.key)), "delete the hold", memory)
        return arrival.finish(self.target, seen, memory)

    def _create(self, hold: ConsumerSeen | None, observation: Observation, memory: PauseMemory) -> Step:
        facts = observation.facts
        if self.floor is None:
            return Abort("missing", f"{self.key} is gone again")
        as_declared = Do(CreateConsumer(self.key, self.target.config), f"create {self.key.name}", memory)
        if self.target.retention == "workqueue":
            return memory.giving_up or as_declared
        stream, search = StreamInfo(self.key.stream_key), arrival.search(self.target, self.floor + 1)
        if stream not in facts or search not in facts:
            return self._ask(memory, stream, search)
        state = facts[stream]
        if not isinstance(state, dict):
            return Abort("missing", f"{self.key.stream_key} is gone")
        if self.floor > int(state["state"]["last_seq"]):
            return memory.giving_up or as_declared  # another stream of that name: the old sequences mean nothing there
        where = arrival.place(self.floor + 1, facts[search], observation.now)
        if not arrival.movable(self.target, where):
            return memory.giving_up or arrival.create(NAME, self.target, where)
        if memory.giving_up or not self._may_hold(hold, observation.facts[ConsumerInfo(hold_key(self.key))], state):
            return self._without_hold(hold, where, memory)
        return self._hold(hold, state, where, memory) or arrival.create(NAME, self.target, where)

    def _may_hold(self, hold: ConsumerSeen | None, fact: Fact, stream: Config) -> bool:
        """Whether the hold may be read, and the stream has room for both."""
        most, missing = stream["config"].get("max_consumers", -1), 1 if hold else 2
        return not isinstance(fact, Unanswered) and not 0 < most < stream["state"]["consumer_count"] + missing

    def _without_hold(self, hold: ConsumerSeen | None, where: arrival.StartPlace, memory: PauseMemory) -> Do:
        """At its position from the first moment; what was refused before is remembered, so that this is tried once."""
        if hold:
            return Do(DeleteConsumer(hold_key(self.key)), "delete the hold, which is in the way", memory)
        return replace(arrival.create(NAME, self.target, where, reset=False), memory=PauseMemory(giving_up=memory.giving_up))

    def _hold(self, hold: ConsumerSeen | None, stream: Config, where: arrival.StartPlace, memory: PauseMemory) -> Do | None:
        """The next step to a hold at the position, which is what tells it to whoever goes on; None once it is there."""
        start = (self.floor or 0) + 1
        if hold is None:
            return Do(create_hold(self.target, (), start, stream, where.time), f"create a hold at {start}", memory)
        if proven(self.key, hold, stream) != start:
            return Do(DeleteConsumer(hold_key(self.key)), "delete an outdated hold", memory)
        return None

    def _notes(self) -> tuple[str, ...]:
        if self.floor is None:
            return ()
        start = self.floor + 1
        if self.target.retention == "workqueue":
            return ("what is stored is unacknowledged and will be delivered",)
        notes = [f"acknowledged after it was last seen: unknown; everything from {start} on is delivered again"]
        if self.target.retention == "interest":
            notes.append(f"messages from {start} on that no other consumer kept are gone")
        return tuple(notes)
