"""recreate-consumer: replace a consumer by one with other immutable fields, at the position where the old one stood.

    journal `pause` ▸ pause ▸ drain ▸ create hold ▸ delete the consumer ▸ create the new one in its place ▸ delete hold ▸ resume

The hold (`holds`) is a paused consumer beside it, on limits and interest.

Invariant: from the first step on, the position is in the metadata of the consumer or of the hold, so that a crash anywhere
can be gone on from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from reconciler.model.identity import Key
from reconciler.model.journals import PAUSE, RECREATE
from reconciler.model.normal import Config
from reconciler.procedures import arrival
from reconciler.procedures.consumer import REWINDABLE, ConsumerSeen, ConsumerTarget, added_filters, arrived, choice, encode
from reconciler.procedures.holds import create_hold, held_at, hold_key, proven
from reconciler.procedures.machine import Abort, Ask, Description, Do, Done, Observation, Step
from reconciler.procedures.pause import FRESH, PauseMemory, give_up, hold_still, paused_by_person
from reconciler.procedures.requests import (
    ConsumerInfo,
    CreateConsumer,
    DeleteConsumer,
    Fact,
    Message,
    NextMessage,
    Read,
    StreamInfo,
    UpdateConsumer,
)

NAME = RECREATE


@dataclass(frozen=True, slots=True)
class RecreateConsumer:
    """Brings a consumer to a target that differs in fields no update can change."""

    target: ConsumerTarget
    name: str = field(default=NAME, init=False)

    @property
    def key(self) -> Key:
        """The consumer."""
        return self.target.key

    @property
    def hold(self) -> Key:
        """The consumer that keeps its place meanwhile."""
        return hold_key(self.key)

    @property
    def touches(self) -> tuple[Key, ...]:
        """The hold."""
        return () if self._queue else (self.hold,)

    def describe(self) -> Description:
        """What the plan prints."""
        middle = ("delete", "create") if self._queue else ("create a hold", "delete", "create at floor+1", "delete the hold")
        return Description(
            NAME,
            ("pause and drain", *middle, "resume"),
            point_of_no_return="the deletion: redelivery counts are lost",
            expected_duplicates=self.target.expected_duplicates,
        )

    def step(self, observation: Observation, memory: PauseMemory | None) -> Step:
        """The next thing to do."""
        if self.target.marker.residue:
            return replace(self, target=self.target.as_declared()).step(observation, memory)
        memory = memory or FRESH
        if observation.failure:
            if memory.giving_up:
                return memory.giving_up
            memory = replace(memory, giving_up=Abort("refused", observation.failure))
        reads = (ConsumerInfo(self.key), *(() if self._queue else (ConsumerInfo(self.hold),)))
        if any(read not in observation.facts for read in reads):
            return Ask(reads, memory)
        seen, hold = self._seen(self.key, observation.facts), self._seen(self.hold, observation.facts)
        if memory.giving_up:
            return self._give_up(seen, hold, memory)
        if seen is None:
            return self._create(hold, observation.facts, memory)
        if seen.journal and seen.journal.name == NAME and seen.journal.step in arrival.ARRIVING:
            return self._arrive(seen, hold, observation.facts, memory)
        return self._leave(seen, hold, observation.facts, memory)

    @property
    def _queue(self) -> bool:
        return self.target.retention == "workqueue"

    def _ask(self, memory: PauseMemory, *more: Read) -> Ask:
        return Ask((ConsumerInfo(self.key), ConsumerInfo(self.hold), StreamInfo(self.key.stream_key), *more), memory)

    def _stream(self, facts: Mapping[Read, Fact]) -> Config | None:
        fact = facts.get(StreamInfo(self.key.stream_key))
        return fact if isinstance(fact, dict) else None

    def _seen(self, key: Key, facts: Mapping[Read, Fact]) -> ConsumerSeen | None:
        fact = facts.get(ConsumerInfo(key))
        return ConsumerSeen(fact) if isinstance(fact, dict) else None

    def _leave(self, seen: ConsumerSeen, hold: ConsumerSeen | None, facts: Mapping[Read, Fact], memory: PauseMemory) -> Step:
        """The old consumer is there: hold it still, put a hold beside it, delete it."""
        if seen.journal is None and arrived(self.target, seen):
            return Do(DeleteConsumer(self.hold), "delete the hold", memory) if hold else Done()
        if seen.journal is None or seen.journal.name != NAME:
            person = paused_by_person(self.target, seen)
            if not (person or self._queue or StreamInfo(self.key.stream_key) in facts):
                return self._ask(memory)  # whether it may be asked at all is known before anything is written
            return person or self._note(seen, memory)
        still = hold_still(self.target, seen, memory)
        if not isinstance(still, PauseMemory):
            return still
        return self._delete(seen, hold, facts, still)

    def _delete(self, seen: ConsumerSeen, hold: ConsumerSeen | None, facts: Mapping[Read, Fact], still: PauseMemory) -> Step:
        """The consumer stands still: delete it once a hold stands at exactly its position."""
        if self._queue:
            return Do(DeleteConsumer(self.key), f"delete {self.key.name}", FRESH, final=True)
        searches, stream = self._searches(seen), self._stream(facts)
        if stream is None or any(one not in facts for one in searches):
            return self._ask(still, *searches)
        start = self._earliest(seen.floor + 1, searches, facts)
        if hold is None:
            return Do(create_hold(self.target, seen.filters, start, stream, seen.time), f"create a hold at {start}", still)
        if proven(self.key, hold, stream) != start:
            return Do(DeleteConsumer(self.hold), "delete an outdated hold", still)
        return Do(DeleteConsumer(self.key), f"delete {self.key.name}", FRESH, final=True)

    def _create(self, hold: ConsumerSeen | None, facts: Mapping[Read, Fact], memory: PauseMemory) -> Step:
        """The consumer is away: create the new one where the hold says."""
        if self._queue:
            return Do(CreateConsumer(self.key, self.target.config), f"create {self.key.name}", memory)
        if hold is None:
            return Abort("position-loss", f"{self.key} is gone, and no hold says where it stood")
        stream = self._stream(facts)
        if stream is None:
            return self._ask(memory)
        start = proven(self.key, hold, stream) or self._unproven(hold, stream)
        if not start:
            title = f"create {self.key.name} as declared, since its hold does not prove where it stood"
            return Do(CreateConsumer(self.key, self.target.config), title, memory, final=True)
        searches = self._searches(hold)
        if any(one not in facts for one in searches):
            return self._ask(memory, *searches)
        start = self._earliest(start, searches, facts)
        search = arrival.search(self.target, start)
        if search not in facts:
            return self._ask(memory, *searches, search)
        return arrival.create(NAME, self.target, arrival.place(start, facts[search], hold.time))

    def _unproven(self, hold: ConsumerSeen, stream: Config) -> int:
        """Where to begin by a hold that is not to be believed: not behind what is declared; 0: as declared.

        What begins with what comes next, or with the last message, would skip what a true hold has kept.
        """
        policy, last = self.target.wire.get("deliver_policy", "all"), int(stream["state"]["last_seq"])
        if policy in REWINDABLE:
            return 0
        return max(1, min(held_at(hold), last + 1 if policy == "new" else last))

    def _arrive(self, seen: ConsumerSeen, hold: ConsumerSeen | None, facts: Mapping[Read, Fact], memory: PauseMemory) -> Step:
        """The new consumer is there: bring it into place, let the hold go, resume."""
        step = arrival.in_place(self.target, seen, hold, facts, memory)
        if step:
            return step
        if hold:
            return Do(DeleteConsumer(self.hold), "delete the hold", memory)
        return arrival.finish(self.target, seen, memory)

    def _give_up(self, seen: ConsumerSeen | None, hold: ConsumerSeen | None, memory: PauseMemory) -> Step:
        """Before the deletion everything is taken back; after it the hold keeps the place until the next attempt."""
        reason = memory.giving_up or Abort("refused", "the server refused a step")
        if seen is None or seen.journal is None or seen.journal.step != PAUSE or seen.data.get("continues"):
            return reason
        if hold:
            return Do(DeleteConsumer(self.hold), "delete the hold", memory)
        return give_up(self.target, seen, memory)

    def _note(self, seen: ConsumerSeen, memory: PauseMemory) -> Do:
        data = {"added": added_filters(self.target, seen), "continues": seen.journal.name if seen.journal else ""}
        data |= choice(seen.time + 2 * self.target.deadline)
        config = encode(self.key.mark, seen.config, self.target.journal(NAME, PAUSE, data), self.target.marker.owner)
        return Do(UpdateConsumer(self.key, config), "note the procedure in the consumer", memory)

    def _searches(self, seen: ConsumerSeen) -> tuple[NextMessage, ...]:
        """What to look for: stored matches of filters that the consumer (or, by now, its hold) does not know."""
        added = added_filters(self.target, seen)
        return tuple(NextMessage(self.key.stream_key, one, self.target.declared_start) for one in added)

    def _earliest(self, start: int, searches: tuple[NextMessage, ...], facts: Mapping[Read, Fact]) -> int:
        return min((start, *(answer.seq for one in searches if isinstance(answer := facts[one], Message))))
