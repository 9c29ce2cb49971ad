"""One timer for many waits: each rings in its time, and none that was put away."""

from __future__ import annotations

import asyncio

import pytest

from reconciler.engine.writing.alarms import Alarms, Within

_LONG, _SHORT = 30.0, 0.05


class Bell:
    """Notes that it rang."""

    due = 0.0

    def __init__(self) -> None:
        self.rang = asyncio.Event()

    def ring(self) -> None:
        """It did."""
        self.rang.set()


async def _rings(bell: Bell) -> None:
    async with asyncio.timeout(5):
        await bell.rang.wait()


async def test_a_short_wait_that_comes_later_rings_first_and_what_was_put_away_never() -> None:
    alarms, long, short, over = Alarms(), Bell(), Bell(), Bell()
    alarms.set(long, _LONG)
    alarms.set(over, _SHORT)
    alarms.set(short, _SHORT)
    alarms.put_away(over)
    await _rings(short)
    assert not long.rang.is_set()
    assert not over.rang.is_set()


async def test_the_timer_of_one_that_was_put_away_serves_those_that_came_after_it() -> None:
    alarms, first, later = Alarms(), Bell(), Bell()
    alarms.set(first, _SHORT)
    alarms.put_away(first)
    alarms.set(later, 2 * _SHORT)
    await _rings(later)
    again = Bell()
    alarms.set(again, _SHORT)
    await _rings(again)
    assert not first.rang.is_set()


async def test_what_takes_too_long_is_cancelled_and_what_does_not_is_left_alone() -> None:
    alarms = Alarms()
    with Within(alarms, _SHORT):
        await asyncio.sleep(0)
    with pytest.raises(TimeoutError), Within(alarms, _SHORT):
        await asyncio.sleep(_LONG)
    await asyncio.sleep(2 * _SHORT)  # whatever is still set would cancel this


async def test_who_is_cancelled_by_others_is_cancelled() -> None:
    alarms, inside = Alarms(), asyncio.Event()

    async def work() -> None:
        with Within(alarms, _LONG):
            inside.set()
            await asyncio.sleep(_LONG)

    task = asyncio.create_task(work())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_error_within_time_stays_that_error() -> None:
    msg = "no"
    with pytest.raises(ValueError, match="no"), Within(Alarms(), _LONG):
        raise ValueError(msg)
