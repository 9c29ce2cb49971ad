"""What follows from what a pass has seen and done: who is told; when it is tried again is the agenda's business.

Invariant: what is not in place is on the agenda, waits for a change of manifests or live state, or is shown with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace

from reconciler.engine.apply.outcome import After, Later, Outcome, Word
from reconciler.engine.daemon.due import was_ours
from reconciler.engine.daemon.fights import DELETED, MARKER
from reconciler.engine.daemon.keeper import BY_REQUEST, Running
from reconciler.engine.daemon.state import DaemonState, ToldDrift
from reconciler.engine.writing.outgoing import ending_of
from reconciler.model.identity import Key
from reconciler.model.seen.live import EVERY_STREAM
from reconciler.plan.change import Action, Author, Cause, Change, FieldDiff
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
        before = state.noted.get(key, ToldDrift())
        live = change.live_config if _differs_itself(change) else before.live
        gone = {one: state.authors.pop(one, None) for one in change.gone if one in state.recollection.memory.owned}
        state.noted[key] = ToldDrift(live, frozenset(gone))
        if live != before.live:
            self._drifted(change, author)
        elif author:
            self._attributed(change.key, author)
        for durable, by in gone.items():
            if durable not in before.gone:
                self._durable_gone(change.key, durable, by)
            elif by:
                self._attributed(durable, by)
        return replace(change, by=author)

    def _drifted(self, change: Change, author: Author | None) -> None:
        """Its own fields were changed, or it was deleted."""
        state = self._state
        differing = change.fields or ((MARKER,) if change.cause is Cause.DRIFT else ())
        fields = tuple(field.path for field in differing)
        state.telemetry.drifted(change.key, fields, author, change.fields)
        state.board.drifted(change.key, fields, author, change.fields)
        self._fought(change.key, differing, author)

    def _durable_gone(self, key: Key, durable: Key, author: Author | None) -> None:
        """The durable that it reads through was deleted: of itself nothing was."""
        state = self._state
        state.telemetry.durable_gone(durable, key, author)
        state.board.durable_gone(key, durable, author)
        self._fought(key, (FieldDiff(f"{durable} {DELETED.path}", None, None),), author)

    def _fought(self, key: Key, differing: tuple[FieldDiff, ...], author: Author | None) -> None:
        state = self._state
        fight = state.agenda.drifted(key.live_key, differing, author)
        if fight:
            state.telemetry.fighting(key, fight.field.path, fight.times, fight.author)
            state.board.fighting(key, fight.field, fight.times, fight.author)

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

    def name_authors(self, keys: Collection[Key]) -> None:
        """The audit lags behind the advisory: where nothing differs any more, it was about what was just repaired."""
        state = self._state
        gone = {key for change in state.open.values() for key in change.gone} if keys else ()
        for key in keys:
            author = None if key in state.open or key in gone else state.authors.pop(key, None)
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
        state.agenda.procedure_ended(running.keys, outcome.result, state.keeper.room)

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
            case Later(after=After.OTHERS | After.A_TURN):
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


def _differs_itself(change: Change) -> bool:
    """Whether more is to be told of it than that a durable behind it is gone."""
    missing = Action.CREATE in (change.action, change.wanted)
    return not change.gone or missing or bool(change.fields) or change.cause is Cause.DRIFT
