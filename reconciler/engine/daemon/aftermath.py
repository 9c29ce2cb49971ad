"""What follows from what a pass has seen and done: who is told; when it is tried again is the agenda's business.

Invariant: what is not in place is on the agenda, waits for a change of manifests or live state, or is shown with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from reconciler.engine.apply.outcome import After, Later, Outcome, Word
from reconciler.engine.daemon.due import was_ours
from reconciler.engine.daemon.fights import MARKER
from reconciler.engine.daemon.keeper import BY_REQUEST, Running
from reconciler.engine.daemon.state import DaemonState
from reconciler.engine.writing.outgoing import ending_of
from reconciler.model.identity import Key
from reconciler.model.seen.live import EVERY_STREAM
from reconciler.plan.change import Action, Author, Cause, Change
from reconciler.procedures.machine import Done
from reconciler.sources.kick import KickSource

_MADE = (Action.CREATE, Action.RECREATE)
_DRIFTS = (Cause.DRIFT, Cause.MISSING)


class Aftermath:
    """Writes into the state what came of a pass or of a procedure."""

    def __init__(self, state: DaemonState) -> None:
        self._state = state

    def noted(self, change: Change) -> Change:
        """Tells a drift when it is first seen; the change, with its author."""
        state, key = self._state, change.key.live_key
        if change.cause not in _DRIFTS or not state.speaks:
            return change
        drift = change.cause is Cause.DRIFT or was_ours(state, change)
        ours = change.continues or state.keeper.owns(key)  # half of a procedure of ours
        if not drift or ours:
            return change
        author = state.authors.pop(key, None) or change.by
        if state.noted.get(key) != change.live_config:
            state.noted[key] = change.live_config
            differing = change.fields or ((MARKER,) if change.cause is Cause.DRIFT else ())
            fields = tuple(field.path for field in differing)
            state.telemetry.drifted(change.key, fields, author, change.fields)
            state.board.drifted(change.key, fields, author, change.fields)
            fight = state.agenda.drifted(key, differing, author)
            if fight:
                state.telemetry.fighting(change.key, fight.field.path, fight.times, fight.author)
                state.board.fighting(change.key, fight.field, fight.times, fight.author)
        elif author:
            self._attributed(change.key, author)
        return replace(change, by=author)

    def replan_all(self, changes: Collection[Change]) -> None:
        """What is open, after a plan for everything."""
        state = self._state
        state.open = {change.key.live_key: change for change in changes}
        state.noted = {key: live for key, live in state.noted.items() if key in state.open}
        state.recollection.in_place([key for key in state.recollection.memory.handed_over if key not in state.open])
        state.recollection.planned(changes, state.desired)
        state.agenda.planned(changes)

    def replan(self, changes: Collection[Change], scope: Collection[Key]) -> None:
        """What is open, after a plan for a few keys."""
        state = self._state
        found = {change.key.live_key: change for change in changes}
        settled = [key for key in scope if key not in found]
        for key in settled:
            state.noted.pop(key, None)
        state.recollection.in_place(settled)
        state.recollection.planned(changes, state.desired)
        state.agenda.planned(changes, settled)
        if [key for key in settled if state.open.pop(key, None) is not None]:
            state.agenda.arrived()
        state.open |= found

    def name_authors(self, keys: Iterable[Key]) -> None:
        """The audit lags behind the advisory: where nothing differs any more, it was about what was just repaired."""
        state = self._state
        for key in keys:
            author = None if key in state.open else state.authors.pop(key, None)
            if author:
                self._attributed(key, author)

    def of(self, outcome: Outcome) -> None:
        """What became of a change of a pass; a procedure that has only begun is told of at its end."""
        if not self._state.keeper.owns(outcome.change.key.live_key):
            self._ended(outcome)

    def procedure_ended(self, running: Running, outcome: Outcome) -> None:
        """What became of a procedure."""
        state, change = self._state, outcome.change
        state.telemetry.change_ended(ending_of(outcome))
        state.board.procedure_ended(change.key, outcome.word.value, outcome.why)
        if running.halt.refusal == BY_REQUEST and not isinstance(outcome.result, Done):
            declared = state.resource(change.key.live_key)
            state.aborted[change.key.live_key] = declared.digest if declared else ""
            state.board.aborted(change.key)
        elif outcome.word is not Word.UNFINISHED and not isinstance(change.machine, KickSource):
            self._ended(outcome)  # a kick was never planned: what is open stays open
        state.agenda.procedure_ended(running.keys, outcome.result)

    def silent(self, unknown: Mapping[Key, str], asked: Collection[Key]) -> None:
        """What did not answer is asked again soon; all the rest of what was asked did."""
        self._state.agenda.answered(key for key in asked if key not in unknown)
        domains = {key for key in unknown if key.name == EVERY_STREAM}
        if domains:
            self._state.agenda.domain_silent()
        self._state.agenda.silent(filter(self._state.concerns, unknown.keys() - domains))

    def unseen(self, keys: Collection[Key]) -> None:
        """Nothing could be looked at."""
        if keys:
            self._state.agenda.silent(keys)
        else:
            self._state.agenda.unseen()

    def _attributed(self, key: Key, author: Author) -> None:
        if self._state.board.attributed(key, author):
            self._state.agenda.attributed(key.live_key, author)
            self._state.telemetry.attributed(author)

    def _ended(self, outcome: Outcome) -> None:
        state, change = self._state, outcome.change
        wait = state.agenda.ended(change, outcome.result)
        match outcome.result:
            case Done():
                self._in_place(change)
            case Later(after=After.OTHERS):
                state.board.held(change.key, outcome.why)
            case Later(after=After.NOTHING | After.A_LOOK):
                pass
            case _:
                state.board.failed(change.key, outcome.why, wait if wait < math.inf else None)
                state.telemetry.retrying(change.key, wait, outcome.why)

    def _in_place(self, change: Change) -> None:
        state, key = self._state, change.key.live_key
        state.open.pop(key, None)
        state.noted.pop(key, None)
        state.board.settled(change.key)
        if change.action is Action.DELETE:
            state.recollection.forget([key])
        declared = state.resource(key) if key.is_stream and change.action in _MADE else None
        if declared is not None and declared.config.get("sealed"):
            state.agenda.look([key])  # which no stream can be created as: the next pass seals it
