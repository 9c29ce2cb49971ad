"""Whose turn it is: one at a time, in an order in which nobody starves."""

from __future__ import annotations

import asyncio

import pytest

from reconciler.engine.writing.turns import Rank, Turns


class Queue:
    """Who waits for a turn, and in which order the turns came."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.order: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def wait(self, name: str, rank: Rank, *, slow: bool = False) -> None:
        """Somebody comes to wait."""
        self.tasks.append(asyncio.create_task(self._one(name, rank, slow=slow), name=name))
        await asyncio.sleep(0)

    async def _one(self, name: str, rank: Rank, *, slow: bool) -> None:
        turn = await self.turns.take(rank, slow=slow)
        self.order.append(name)
        await asyncio.sleep(0)
        turn.give_back()
        turn.give_back()  # a second time changes nothing

    async def all(self) -> list[str]:
        """The order, when everybody had a turn."""
        await asyncio.gather(*self.tasks)
        return self.order


async def test_holding_still_goes_before_repairs_and_those_before_what_a_commit_asks_for() -> None:
    queue = Queue()
    held = await queue.turns.take(Rank.COMMIT)
    for name, rank in (("commit", Rank.COMMIT), ("step", Rank.STEP), ("repair", Rank.REPAIR), ("still", Rank.STILL)):
        await queue.wait(name, rank)
    assert queue.order == []
    held.give_back()
    assert await queue.all() == ["still", "repair", "step", "commit"]
    assert not queue.turns.wanted


async def test_nobody_at_the_head_of_a_line_waits_more_than_eight_turns() -> None:
    queue = Queue()
    held = await queue.turns.take(Rank.COMMIT)
    for rank in (Rank.COMMIT, Rank.STEP, Rank.REPAIR):
        await queue.wait(rank.name, rank)
    for number in range(30):
        await queue.wait(f"still-{number}", Rank.STILL)
    held.give_back()
    order = await queue.all()
    assert max(order.index(rank.name) for rank in (Rank.COMMIT, Rank.STEP, Rank.REPAIR)) <= 8


async def test_a_slow_one_has_one_of_ten_turns_and_any_when_nobody_else_waits() -> None:
    queue = Queue()
    held = await queue.turns.take(Rank.COMMIT)
    for number in range(3):
        await queue.wait(f"slow-{number}", Rank.REPAIR, slow=True)
    for number in range(15):
        await queue.wait(f"{number}", Rank.REPAIR)
    held.give_back()
    order = await queue.all()
    places = [place for place, name in enumerate(order) if name.startswith("slow")]
    assert places[1] - places[0] >= 10
    assert places[2] == len(order) - 1


async def test_who_does_not_wait_any_more_holds_up_nobody() -> None:
    queue = Queue()
    held = await queue.turns.take(Rank.COMMIT)
    await queue.wait("gone", Rank.REPAIR)
    await queue.wait("here", Rank.REPAIR)
    queue.tasks[0].cancel()
    held.give_back()
    with pytest.raises(asyncio.CancelledError):
        await queue.tasks[0]
    await queue.tasks[1]
    assert queue.order == ["here"]


async def test_a_turn_that_was_just_handed_to_somebody_who_leaves_goes_on() -> None:
    turns = Turns()
    held = await turns.take(Rank.COMMIT)
    leaving = asyncio.create_task(turns.take(Rank.REPAIR))
    await asyncio.sleep(0)
    held.give_back()  # handed over, and not taken yet
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    assert not turns.wanted
    (await asyncio.wait_for(turns.take(Rank.COMMIT), 1)).give_back()
