"""filter-add: give a live consumer more filters without skipping what is already stored for them.

A cursor never moves back by itself, so stored matches of a new filter below it would be skipped. The steps:

    journal `pause` ▸ pause ▸ drain ▸ RESET to min(first match, floor+1) ▸ new filters + journal `resume` ▸ resume ▸ clear

With nothing stored there is nothing to rewind to: the new filters go on at once, with the journal `check`, since a match
published just before the update may have been passed; only if one is found then, the steps above follow.

Invariant: the new filters take effect either while the paused cursor is at or below their first stored match,
or under a journal that says this is still to be checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from reconciler.model import units
from reconciler.model.identity import Key
from reconciler.model.journals import CHECK, FILTER_ADD, PAUSE, RESUME, UNTIL
from reconciler.procedures.consumer import (
    ConsumerSeen,
    ConsumerTarget,
    added_filters,
    arrived,
    choice,
    encode,
    new_filters,
)
from reconciler.procedures.machine import Abort, Ask, Description, Do, Done, Observation, Step
from reconciler.procedures.pause import FRESH, PauseMemory, give_up, hold_still, lapsed, paused_by_person, release
from reconciler.procedures.requests import (
    Absent,
    ConsumerInfo,
    Fact,
    Message,
    NextMessage,
    Read,
    ResetConsumer,
    UpdateConsumer,
)

NAME = FILTER_ADD


@dataclass(frozen=True, slots=True)
class FilterAdd:
    """Brings a live consumer to a target whose only dangerous difference are added filters."""

    target: ConsumerTarget
    stored: bool = True
    """Whether a match is stored already, as far as the plan could see; only for the description."""
    name: str = field(default=NAME, init=False)
    touches: tuple[Key, ...] = field(default=(), init=False)

    @property
    def key(self) -> Key:
        """The consumer."""
        return self.target.key

    def describe(self) -> Description:
        """What the plan prints."""
        if not self.stored:
            return Description(NAME, ("update the filters", "make sure that no match was published just before"))
        return Description(
            NAME,
            ("pause and drain", "reset to the first stored match", "update the filters", "resume"),
            point_of_no_return="the reset: from there on it delivers from the first stored match",
            expected_duplicates=self.target.expected_duplicates,
        )

    def step(self, observation: Observation, memory: PauseMemory | None) -> Step:
        """The next thing to do."""
        memory = memory or FRESH
        if observation.failure:
            if memory.giving_up:
                return memory.giving_up
            memory = replace(memory, giving_up=Abort("refused", observation.failure))
        fact = observation.facts.get(ConsumerInfo(self.key))
        if fact is None:
            return Ask((ConsumerInfo(self.key),), memory)
        if not isinstance(fact, dict):
            return Abort("missing", f"{self.key} is gone")
        seen = ConsumerSeen(fact)
        target = self.target.with_residue(seen.marker.residue)
        if target != self.target:
            return replace(self, target=target).step(observation, memory)
        return self._go_on(seen, observation.facts, memory)

    def _go_on(self, seen: ConsumerSeen, facts: Mapping[Read, Fact], memory: PauseMemory) -> Step:
        if memory.giving_up:
            unfinished = set(added_filters(self.target, seen)) & set(seen.filters)
            # Filters that are live but perhaps passed by stay journalled: the next attempt goes on with them.
            return memory.giving_up if unfinished else give_up(self.target, seen, memory)
        if seen.journal is None:
            return self._begin(seen, facts, memory)
        if seen.journal.name != NAME:
            return Abort("busy", f"{self.key} is in the middle of {seen.journal.name}")
        if seen.journal.step in (CHECK, RESUME) and new_filters(self.target, seen):
            return self._note_pause(seen, FRESH)  # the manifest has asked for still more meanwhile
        phase = {CHECK: self._check, RESUME: self._resume}.get(seen.journal.step, self._rewind)
        return phase(seen, facts, memory)

    def _begin(self, seen: ConsumerSeen, facts: Mapping[Read, Fact], memory: PauseMemory) -> Step:
        if arrived(self.target, seen):
            return Done()
        refusal = paused_by_person(self.target, seen)
        if refusal:
            return refusal
        added = added_filters(self.target, seen)
        if not added:
            return Do(UpdateConsumer(self.key, self.target.config), f"update {self.key.name}", memory)
        if not self._answered(added, facts):
            return self._ask(added, memory)
        first = self._first(added, facts)
        if first is None and self.target.rewindable:
            return self._update(CHECK, seen, "add the filters (nothing stored for them)", memory)
        if first and not self._may_rewind(first):
            return self._position_loss(first)
        return self._note_pause(seen, memory)

    def _rewind(self, seen: ConsumerSeen, facts: Mapping[Read, Fact], memory: PauseMemory) -> Step:
        """Hold the consumer still, put the cursor where every stored match is ahead of it, change the filters."""
        still = hold_still(self.target, seen, memory)
        if not isinstance(still, PauseMemory):
            return still
        added = added_filters(self.target, seen)
        if added and not self._answered(added, facts):
            return self._ask(added, still)  # only now: what is published later lies ahead of the frozen cursor
        first = self._first(added, facts)
        if first is None:
            return self._update(RESUME, seen, "update the filters", still)
        if not self._may_rewind(first):
            return give_up(self.target, seen, replace(still, giving_up=self._position_loss(first)))
        start = min(first.seq, seen.floor + 1)
        if still.reset_to != start:
            return Do(ResetConsumer(self.key, start), f"reset to {start}", replace(still, reset_to=start), final=True)
        return self._update(RESUME, seen, "update the filters", still)

    def _check(self, seen: ConsumerSeen, facts: Mapping[Read, Fact], memory: PauseMemory) -> Step:
        """Filters were added unpaused: had a match been published shortly before, it may have been passed."""
        added = added_filters(self.target, seen)
        if added and not self._answered(added, facts):
            return self._ask(added, memory)
        if self._first(added, facts):
            return self._note_pause(seen, memory)
        return Do(UpdateConsumer(self.key, self.target.config), "clear the journal", memory)

    def _resume(self, seen: ConsumerSeen, _facts: Mapping[Read, Fact], memory: PauseMemory) -> Step:
        if seen.paused_by_other or (lapsed(self.target, seen) and not memory.resumed_at):
            return self._note_pause(seen, FRESH)  # perhaps before the filters changed: rewind once more
        step = release(self.target, seen, memory)
        return step or Do(UpdateConsumer(self.key, self.target.config), "clear the journal", memory)

    def _note_pause(self, seen: ConsumerSeen, memory: PauseMemory) -> Do:
        pause = choice(seen.time + 2 * self.target.deadline)
        journal = self.target.journal(NAME, PAUSE, {"added": added_filters(self.target, seen), **pause})
        config = encode(self.key.mark, seen.config, journal, self.target.marker.owner)
        return Do(UpdateConsumer(self.key, config), "note the procedure in the consumer", memory)

    def _update(self, step: str, seen: ConsumerSeen, title: str, memory: PauseMemory) -> Do:
        pause = {UNTIL: seen.data[UNTIL]} if seen.chosen else {}
        journal = self.target.journal(NAME, step, {"added": added_filters(self.target, seen), **pause})
        config = encode(self.key.mark, self.target.wire, journal, self.target.marker.owner)
        return Do(UpdateConsumer(self.key, config), title, memory)

    def _ask(self, added: tuple[str, ...], memory: PauseMemory) -> Ask:
        return Ask((ConsumerInfo(self.key), *self._searches(added)), memory)

    def _searches(self, added: tuple[str, ...]) -> tuple[NextMessage, ...]:
        return tuple(NextMessage(self.key.stream_key, one, self.target.declared_start) for one in added)

    def _answered(self, added: tuple[str, ...], facts: Mapping[Read, Fact]) -> bool:
        return all(search in facts for search in self._searches(added))

    def _first(self, added: tuple[str, ...], facts: Mapping[Read, Fact]) -> Message | None:
        found = [facts.get(search, Absent()) for search in self._searches(added)]
        return min((one for one in found if isinstance(one, Message)), key=lambda one: one.seq, default=None)

    def _may_rewind(self, first: Message) -> bool:
        config = self.target.wire
        since = config.get("opt_start_time")
        too_old = first.seq < config.get("opt_start_seq", 0) or (since and units.parse_time(first.time) < units.parse_time(since))
        return self.target.rewindable and not too_old

    def _position_loss(self, first: Message) -> Abort:
        message = f"{self.key} cannot be moved back to {first.seq}, the first message stored for its new filters"
        return Abort("position-loss", message)
