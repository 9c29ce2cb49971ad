"""How many writes a second there are at most."""

from __future__ import annotations

import asyncio

from reconciler.engine.writing.throttle import Throttle


class Hands:
    """A clock that moves only when somebody sleeps."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> int:
        """Nanoseconds slept."""
        return int(self.time * 10**9)

    def monotonic(self) -> float:
        """Seconds slept."""
        return self.time

    async def sleep(self, seconds: float) -> None:
        """Moves the clock."""
        self.time += seconds
        await asyncio.sleep(0)


async def test_writes_keep_the_pace_after_a_burst_of_one_second() -> None:
    clock = Hands()
    throttle = Throttle(10, clock)
    for _ in range(10):
        await throttle.take()
    assert clock.time == 0.0
    for _ in range(20):
        await throttle.take()
    assert round(clock.time, 6) == 2.0


async def test_no_rate_no_limit() -> None:
    clock = Hands()
    throttle = Throttle(0, clock)
    for _ in range(1000):
        await throttle.take()
    assert clock.time == 0.0
