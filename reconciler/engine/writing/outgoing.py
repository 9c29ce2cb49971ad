"""What a daemon does beside each write: it tells others, and remembers what the answer has shown.

Invariant: our own writes are no hints, and the live state knows them without being read again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from reconciler.engine.apply.outcome import Outcome
from reconciler.engine.daemon.state import DaemonState
from reconciler.engine.writing.echo import patch_of
from reconciler.model.identity import Key
from reconciler.observe.telemetry import Ending
from reconciler.procedures.requests import Write, changed_by

Expecting = Callable[[Write], AbstractContextManager[None]]
"""To be entered around a write, so that its echoes are not taken for somebody else's changes."""


class Noted:
    """The witness of a daemon's writes: their answers become part of the live state."""

    def __init__(self, state: DaemonState, expecting: Expecting) -> None:
        self._state = state
        self.expecting = expecting

    def wrote(self, write: Write, reply: dict[str, Any]) -> None:
        """The server's answer."""
        key = changed_by(write).live_key
        patch = patch_of(write, reply, time.time_ns())
        if patch is None:
            self.unsure(key)
        else:
            self._state.wrote(key, patch)

    def unsure(self, key: Key) -> None:
        """It has to be looked at."""
        self._state.agenda.look([key])

    def settled(self, key: Key) -> None:
        """So has this, and whatever waited for it."""
        self._state.agenda.look([key])
        self._state.agenda.arrived()


class Watch:
    """The observer of a daemon's work."""

    def __init__(self, state: DaemonState) -> None:
        self._state = state

    def stepped(self, key: Key, title: str) -> None:
        """A procedure took a step."""
        state = self._state
        state.telemetry.procedure_stepped(key, title)
        running = state.keeper.of(key.live_key)
        if running is not None and running.change.machine is not None:
            change = running.change
            state.board.progressing(change.key, running.change.machine.name, title, change.touches)

    def finished(self, outcome: Outcome) -> None:
        """A change came to its end, or its procedure began; one that only waits takes no step for long."""
        change = outcome.change
        if not self._state.keeper.owns(change.key.live_key):
            self._state.telemetry.change_ended(ending_of(outcome))
        elif change.machine is not None:
            step = "goes on" if change.continues else "begins"
            self._state.board.progressing(change.key, change.machine.name, step, change.touches)


def ending_of(outcome: Outcome) -> Ending:
    """How a change ended, as it is told."""
    return Ending(
        change=outcome.change,
        result=outcome.word.value,
        seconds=outcome.seconds,
        error=outcome.why,
        notes=outcome.notes,
    )
