"""Few workers, many items, and some that need another try."""

from __future__ import annotations

import asyncio

from reconciler.engine.throttle import Throttle
from reconciler.engine.workers import work_off


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


async def test_every_item_is_tried_until_it_ends_and_never_too_many_at_once() -> None:
    left = {item: item % 3 for item in range(50)}
    running, most, order = 0, 0, []

    async def attempt(item: int) -> float | None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        if left[item]:
            left[item] -= 1
            return 0.0
        order.append(item)
        return None

    await work_off(list(left), attempt, 4, asyncio.sleep)
    assert sorted(order) == list(range(50))
    assert most == 4


async def test_an_item_that_waits_occupies_no_worker() -> None:
    others_done = asyncio.Event()
    tried: list[str] = []

    async def sleep_until_others_are_done(_: float) -> None:
        await others_done.wait()

    async def attempt(item: str) -> float | None:
        tried.append(item)
        if item == "slow" and tried.count("slow") == 1:
            return 60.0
        if item == "last":
            others_done.set()
        return None

    await work_off(["slow", "other", "last"], attempt, 1, sleep_until_others_are_done)
    assert tried == ["slow", "other", "last", "slow"]


async def test_nothing_to_do_is_done_at_once() -> None:
    async def never(_: object) -> float | None:
        raise AssertionError

    await work_off([], never, 8, asyncio.sleep)


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
