"""What a daemon does beside each write: it tells others, and remembers what the answer has shown.

Invariant: our own writes are no hints, and the live state knows them without being read again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from reconciler.engine.echo import patch_of
from reconciler.engine.outcome import Outcome
from reconciler.engine.ports import Lease, LiveWriter
from reconciler.engine.state import State
from reconciler.errors import LeaseLost, NatsError, NotSent, Refused
from reconciler.model.desired import Desired
from reconciler.model.identity import Key
from reconciler.observe.telemetry import Ending
from reconciler.procedures.requests import Write, changed_by

Expecting = Callable[[Write], AbstractContextManager[None]]
"""To be entered around a write, so that its echoes are not taken for somebody else's changes."""


class TrackedWriter:
    """A writer whose answers become part of the live state."""

    def __init__(self, writer: LiveWriter, state: State, expecting: Expecting) -> None:
        self._writer = writer
        self._state = state
        self._expecting = expecting

    async def write(self, write: Write, level: int = 0) -> dict[str, Any]:
        """The server's answer."""
        key = changed_by(write).live_key
        try:
            with self._expecting(write):
                reply = await self._writer.write(write, level)
        except NatsError:
            self._state.queue.add([key])
            raise
        patch = patch_of(write, reply, time.time_ns())
        if patch is None:
            self._state.queue.add([key])
        else:
            self._state.wrote(key, patch)
        return reply


class Watch:
    """The observer of a daemon's work."""

    def __init__(self, state: State) -> None:
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
        result=outcome.result.value,
        seconds=outcome.seconds,
        error=outcome.error,
        notes=outcome.notes,
    )


class Right:
    """The lease, on a connection that leads where it should, as long as the process is not to end.

    The request in flight is then the last one; who waits for a connection goes on when everything was looked at on it.
    """

    def __init__(self, state: State, check: Callable[[], None]) -> None:
        self._state = state
        self._check = check

    def check(self) -> None:
        """Raises LeaseLost when nothing may be written any more, NotSent when nothing may be written yet."""
        if self._state.stopping:
            msg = "the process is ending"
            raise LeaseLost(msg)
        self._check()
        if not self._state.trusted:
            msg = "not looked at everything on this connection yet"
            raise NotSent(msg)


class Term:
    """The right of one pass: what it saw before this process came to lead, or led before, is nothing to act on."""

    def __init__(self, lease: Lease, state: State) -> None:
        self._lease = lease
        self._state = state
        self._began = state.term

    def check(self) -> None:
        """Raises what `Right` raises, and LeaseLost when somebody else may have written since it began."""
        if self._state.term != self._began:
            msg = "the lease was not held all the time since this was looked at"
            raise LeaseLost(msg)
        self._lease.check()


class Wanted:
    """The right to the requests of one plan, as long as it is about what is wanted now: a procedure ends by itself."""

    def __init__(self, lease: Lease, state: State, desired: Desired) -> None:
        self._lease = lease
        self._state = state
        self._desired = desired

    def check(self) -> None:
        """Raises what the lease raises, and Refused when other manifests came, or somebody suspended something."""
        self._lease.check()
        if self._state.desired is not self._desired:
            raise Refused(("something else is wanted by now; it is planned again",))
