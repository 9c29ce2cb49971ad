"""Clocks in the hands of the test: one that stands still, one that runs ahead, one that is wrong."""

from __future__ import annotations

import asyncio

from reconciler.jetstream.clock import SystemClock
from reconciler.model import units
from tests.support.values.build import NOW


class Clock:
    """Seconds that stand still until a test moves `now`."""

    now = 1000.0

    def __call__(self) -> float:
        """The time as set."""
        return self.now


class Calendar:
    """What time it is, in nanoseconds since the epoch: it stands still until it is moved."""

    def __init__(self) -> None:
        self.time = NOW

    def __call__(self) -> int:
        """What time it is."""
        return self.time

    def pass_seconds(self, seconds: float) -> str:
        """Moves it; what time it is then."""
        self.time += int(seconds * units.SECOND)
        return units.format_time(self.time)


class Still:
    """A clock that stands still until it is told otherwise; sleeping lets others run."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        """The time it was set to."""
        return self.now

    async def sleep(self, seconds: float) -> None:
        """Returns when the time has been moved that far."""
        until = self.now + seconds
        while self.now < until:  # noqa: ASYNC110 - a test moves `now` by hand
            await asyncio.sleep(0.005)


class Fast(SystemClock):
    """Time that goes by so many times as fast."""

    def __init__(self, times: float) -> None:
        self._times = times
        self.sleeps = 0

    def monotonic(self) -> float:
        """Seconds of the fast kind."""
        return super().monotonic() * self._times

    async def sleep(self, seconds: float) -> None:
        """Sleeps fast."""
        self.sleeps += 1
        await super().sleep(seconds / self._times)


class Ahead(SystemClock):
    """Ten seconds go by within one, though it sleeps as long as any other."""

    def monotonic(self) -> float:
        """Since some moment."""
        return 10 * super().monotonic()


class Late(SystemClock):
    """A clock that is fifty years behind."""

    def now(self) -> int:
        """The beginning of the epoch."""
        return 0
