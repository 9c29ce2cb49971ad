"""restore-consumer: recreate a consumer that somebody deleted, behind the last message it was seen to be done with.

Creating it as declared would deliver everything once more, or skip what came meanwhile.

Invariant: it never starts beyond the message after the last known floor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from reconciler.model.identity import Key
from reconciler.procedures import arrival
from reconciler.procedures.consumer import ConsumerSeen, ConsumerTarget
from reconciler.procedures.machine import Abort, Ask, Description, Do, Done, Observation, Step
from reconciler.procedures.pausing import FRESH, Memory
from reconciler.procedures.requests import ConsumerInfo, CreateConsumer, Fact, Read, StreamInfo

NAME = "restore-consumer"


@dataclass(frozen=True, slots=True)
class RestoreConsumer:
    """Creates a missing consumer at the position after `floor`."""

    target: ConsumerTarget
    floor: int
    """The last stream sequence up to which it was seen to be done."""
    name: str = field(default=NAME, init=False)
    touches: tuple[Key, ...] = field(default=(), init=False)

    @property
    def key(self) -> Key:
        """The consumer."""
        return self.target.key

    def describe(self) -> Description:
        """What the plan prints."""
        return Description(
            NAME,
            (f"create paused at {self.floor + 1}", "resume"),
            expected_duplicates=self.target.expected_duplicates,
            notes=self._notes(),
        )

    def step(self, observation: Observation, memory: Memory | None) -> Step:
        """The next thing to do."""
        if self.target.marker.residue:
            return replace(self, target=self.target.as_declared()).step(observation, memory)
        memory = memory or FRESH
        if observation.failure:
            return Abort("refused", observation.failure)
        info = ConsumerInfo(self.key)
        if info not in observation.facts:
            return Ask((info,), memory)
        fact = observation.facts[info]
        if not isinstance(fact, dict):
            return self._create(observation.facts, observation.now, memory)
        seen = ConsumerSeen(fact)
        if seen.journal and seen.journal.name == NAME:
            return arrival.in_place(self.target, seen, memory) or arrival.finish(self.target, seen, memory)
        if seen.marker.owner == self.target.marker.owner:
            return Done(self._notes())  # what else may differ by now is an ordinary change
        return Abort("exists", f"{self.key} is there again, as somebody else made it")

    def _create(self, facts: Mapping[Read, Fact], now: int, memory: Memory) -> Step:
        as_declared = Do(CreateConsumer(self.key, self.target.config), f"create {self.key.name}", memory)
        if self.target.retention == "workqueue":
            return as_declared
        stream, search = StreamInfo(self.key.stream_key), arrival.search(self.target, self.floor + 1)
        if stream not in facts or search not in facts:
            return Ask((ConsumerInfo(self.key), stream, search), memory)
        state = facts[stream]
        if not isinstance(state, dict):
            return Abort("missing", f"{self.key.stream_key} is gone")
        if self.floor > int(state["state"]["last_seq"]):
            return as_declared  # another stream of that name: the old sequences mean nothing there
        return arrival.create(NAME, self.target, arrival.place(self.floor + 1, facts[search], now))

    def _notes(self) -> tuple[str, ...]:
        start = self.floor + 1
        if self.target.retention == "workqueue":
            return ("what is stored is unacknowledged and will be delivered",)
        notes = [f"acknowledged after it was last seen: unknown; everything from {start} on is delivered again"]
        if self.target.retention == "interest":
            notes.append(f"messages from {start} on that no other consumer kept are gone")
        return tuple(notes)
