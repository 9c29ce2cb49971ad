"""Many short waits, of which nearly all are over before their time: one timer of the event loop for all of them.

A timer for each costs more than what it watches over. Invariant: an alarm that was put away never rings.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Protocol


class Alarm(Protocol):
    """What rings."""

    due: float
    """By the clock of the event loop."""

    def ring(self) -> None:
        """It takes too long."""
        ...


class Alarms:
    """Those that may still ring."""

    def __init__(self) -> None:
        self._set: set[Alarm] = set()
        self._timer: asyncio.TimerHandle | None = None
        """Rings no later than the first of them is due."""

    def set(self, alarm: Alarm, seconds: float) -> None:
        """Rings so many seconds from now."""
        loop = asyncio.get_running_loop()
        due = alarm.due = loop.time() + seconds
        self._set.add(alarm)
        if self._timer is None or due < self._timer.when():
            self._wind(loop, due)

    def put_away(self, alarm: Alarm) -> None:
        """It does not ring any more; the timer finds that out by itself."""
        self._set.discard(alarm)

    def _wind(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(due, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = loop.time()
        for alarm in [alarm for alarm in self._set if alarm.due <= now]:
            if alarm in self._set:  # else the one before has put it away
                self._set.discard(alarm)
                alarm.ring()
        if self._set:
            self._wind(loop, min(alarm.due for alarm in self._set))


class Within:
    """Like `asyncio.timeout`: cancels the task that entered it when it takes longer, and makes a TimeoutError of that."""

    __slots__ = ("_alarms", "_before", "_over", "_seconds", "_task", "due")
    due: float

    def __init__(self, alarms: Alarms, seconds: float) -> None:
        self._alarms = alarms
        self._seconds = seconds
        self._over = False

    def __enter__(self) -> None:
        task = asyncio.current_task()
        if task is None:
            msg = "only a task can be cancelled"
            raise RuntimeError(msg)
        self._task = task
        self._before = task.cancelling()
        self._alarms.set(self, self._seconds)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._alarms.put_away(self)
        if self._over and self._task.uncancel() <= self._before and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def ring(self) -> None:
        """The time is over."""
        self._over = True
        self._task.cancel()
