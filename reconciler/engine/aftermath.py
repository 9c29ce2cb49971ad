"""What follows from what a pass has seen and done: who is told, what is tried again, and when.

Invariant: what is not in place is in the queue, waits for a change of manifests or live state, or is shown with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from reconciler.engine.due import was_ours
from reconciler.engine.flaps import MARKER
from reconciler.engine.keeper import BY_REQUEST, Running
from reconciler.engine.outcome import Outcome, Result
from reconciler.engine.outgoing import ending_of
from reconciler.engine.state import State
from reconciler.errors import LeaseLost, NotSent, Refused
from reconciler.model.identity import Key
from reconciler.model.live import EVERY_STREAM
from reconciler.plan.change import Action, Author, Cause, Change
from reconciler.procedures.kick_source import KickSource

_LONGEST = 5.0
"""Seconds until everything is looked at again after a look that failed, however often it did."""
_GATHER = 0.2
"""Seconds in which the ends of many procedures become one look at their stream."""
_SILENT = 1.0
"""Seconds after which what did not answer is asked again."""
_MADE = (Action.CREATE, Action.RECREATE)


class Aftermath:
    """Writes into the state what came of a pass or of a procedure."""

    def __init__(self, state: State) -> None:
        self._state = state

    def noted(self, change: Change) -> Change:
        """Tells a drift when it is first seen; the change, with its author."""
        state, key = self._state, change.key.live_key
        drift = change.cause is Cause.DRIFT or (change.cause is Cause.MISSING and was_ours(state, change))
        ours = change.continues or state.keeper.owns(key)  # half of a procedure of ours
        if not drift or ours or not state.speaks:
            return change
        author = state.authors.pop(key, None) or change.by
        if state.noted.get(key) != change.live_config:
            state.noted[key] = change.live_config
            differing = change.fields or ((MARKER,) if change.cause is Cause.DRIFT else ())
            fields = tuple(field.path for field in differing)
            state.telemetry.drifted(change.key, fields, author)
            state.board.drifted(change.key, fields, author)
            fight = state.flaps.noted(key, differing)
            if fight:
                field, times = fight
                state.telemetry.fighting(change.key, field.path, times)
                state.board.fighting(change.key, field.path, field.live, times)
        elif author:
            self._attributed(change.key, author)
        return replace(change, by=author)

    def replan_all(self, changes: Collection[Change]) -> None:
        """What is open, after a plan for everything."""
        state = self._state
        state.open = {change.key.live_key: change for change in changes}
        for change in changes:
            state.trouble.seen(change)
        state.noted = {key: live for key, live in state.noted.items() if key in state.open}
        state.trouble.keep(state.open)
        state.looks.forget(EVERY_STREAM)

    def replan(self, changes: Collection[Change], scope: Collection[Key]) -> None:
        """What is open, after a plan for a few keys."""
        state = self._state
        found = {change.key.live_key: change for change in changes}
        for change in changes:
            state.trouble.seen(change)
        settled = [key for key in scope if key not in found]
        for key in settled:
            state.noted.pop(key, None)
            state.trouble.forget(key)
        if [key for key in settled if state.open.pop(key, None) is not None]:
            self._wake()
        state.open |= found

    def name_authors(self, keys: Iterable[Key]) -> None:
        """The audit lags behind the advisory: where nothing differs any more, it was about what was just repaired."""
        state = self._state
        for key in keys:
            author = None if key in state.open else state.authors.pop(key, None)
            if author:
                self._attributed(key, author)

    def of(self, outcomes: Iterable[Outcome]) -> None:
        """What became of the changes of a pass."""
        ended = [outcome for outcome in outcomes if not self._state.keeper.owns(outcome.change.key.live_key)]
        for outcome in ended:
            self._ended(outcome)
        if any(outcome.result is Result.APPLIED for outcome in ended):
            self._wake()

    def procedure_ended(self, running: Running, outcome: Outcome) -> None:
        """What became of a procedure."""
        state, change = self._state, outcome.change
        state.telemetry.change_ended(ending_of(outcome))
        state.board.procedure_ended(change.key, outcome.result.value, outcome.error)
        if running.halt.refusal == BY_REQUEST and outcome.result is not Result.APPLIED:
            declared = state.resource(change.key.live_key)
            state.aborted[change.key.live_key] = declared.digest if declared else ""
            state.board.aborted(change.key)
        elif outcome.result is not Result.UNFINISHED and not isinstance(change.machine, KickSource):
            self._ended(outcome)  # a kick was never planned: what is open stays open
        state.queue.add(running.keys, _GATHER if outcome.result is Result.APPLIED else 0.0)
        self._wake()

    def silent(self, unknown: Mapping[Key, str]) -> None:
        """What did not answer is asked again soon."""
        domains = {key for key in unknown if key.name == EVERY_STREAM}
        if domains:
            self._state.queue.add_everything("a domain did not answer", _SILENT)
        self._state.queue.add(filter(self._state.concerns, unknown.keys() - domains), _SILENT)

    def unseen(self, keys: Collection[Key]) -> None:
        """Nothing could be looked at."""
        if keys:
            self._state.queue.add(keys, _SILENT)
        else:
            wait = min(_SILENT + self._state.looks.failed(EVERY_STREAM), _LONGEST)
            self._state.queue.add_everything("the last look failed", wait)

    def _attributed(self, key: Key, author: Author) -> None:
        if self._state.board.attributed(key, author):
            self._state.telemetry.attributed(author)

    def _ended(self, outcome: Outcome) -> None:
        state, change = self._state, outcome.change
        key = change.key.live_key
        if outcome.result is Result.APPLIED:
            self._in_place(change)
        elif outcome.result is Result.SKIPPED:
            state.held.add(key)
            state.board.held(change.key, outcome.error)
        elif isinstance(outcome.end.cause, Refused):
            state.queue.add([key])
        elif isinstance(outcome.end.cause, LeaseLost | NotSent):
            # The full pass that follows those may have met it as being worked on; and there may be thousands of them.
            state.queue.add_everything("a pass was cut short", _SILENT)
        else:
            wait = state.trouble.failed(change, outcome.end)
            state.board.failed(change.key, outcome.error, wait if wait < math.inf else None)
            state.telemetry.retrying(change.key, wait, outcome.error)
            if wait < math.inf:
                state.queue.add([key], wait)

    def _wake(self) -> None:
        """Something has got there: perhaps it was what others wait for."""
        self._state.queue.add(self._state.held)
        self._state.held.clear()

    def _in_place(self, change: Change) -> None:
        state, key = self._state, change.key.live_key
        state.open.pop(key, None)
        state.noted.pop(key, None)
        state.trouble.forget(key)
        state.board.settled(change.key)
        if change.action is Action.DELETE:
            state.recollection.forget([key])
        declared = state.resource(key) if change.action in _MADE and change.key.is_stream else None
        if declared is not None and declared.config.get("sealed"):
            state.queue.add([key])  # which no stream can be created as: the next pass seals it
