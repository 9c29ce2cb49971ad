"""Time that nobody waits for: when nothing is left to run, the clock goes on to the next timer.

Invariant: within `run` all clocks of Python stand still but for that, so a coroutine without I/O sees the same times each time.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar
from unittest import mock

from reconciler.model import units

BEGIN = units.parse_time("2026-01-01T00:00:00Z")
_TICK = 1e-6
_MOST = 20_000.0
"""Seconds; nothing that comes to an end takes so long."""
T = TypeVar("T")


class _Clock:
    """Seconds since the beginning."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def monotonic(self) -> float:
        return self.seconds

    def since_boot(self, _: int) -> float:
        return self.seconds

    def nanoseconds(self) -> int:
        return BEGIN + int(self.seconds * 10**9)


class _Timers(selectors.DefaultSelector):
    """Waits for nothing: it moves the clock to where the waiting would end."""

    def __init__(self, clock: _Clock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> Any:
        """What the loop has told itself; else the time is over at once."""
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "nobody will ever go on"
            if timeout > 0:
                self._clock.seconds += max(timeout, _TICK)
            assert self._clock.seconds < _MOST, "it never ends"
        return ready


class _AtOnce(ThreadPoolExecutor):
    """What would be done in a thread is done here and now."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Done."""
        done: Future[T] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - handed on to whoever awaits it
            done.set_exception(error)
        return done


@contextmanager
def _instead_of_the_clocks(clock: _Clock) -> Iterator[None]:
    with (
        mock.patch.object(time, "monotonic", clock.monotonic),
        mock.patch.object(time, "clock_gettime", clock.since_boot),
        mock.patch.object(time, "time_ns", clock.nanoseconds),
    ):
        yield


def run(work: Coroutine[Any, Any, T]) -> T:
    """What comes of it."""
    clock = _Clock()
    with _instead_of_the_clocks(clock):
        loop = asyncio.SelectorEventLoop(_Timers(clock))
        loop.set_default_executor(_AtOnce(max_workers=1))
        try:
            return loop.run_until_complete(work)
        finally:
            _end_all(loop)
            loop.close()


def _end_all(loop: asyncio.AbstractEventLoop) -> None:
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
