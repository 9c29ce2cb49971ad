"""The work queue: each key once, nothing forgotten, everything before single keys."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from reconciler.engine.daemon.queue import Work, WorkQueue
from reconciler.model.identity import Key

S, T = Key("Stream", "S"), Key("Stream", "T")
A, B, C = (Key("Consumer", name, "S") for name in "abc")
SOON = 0.02


async def take(queue: WorkQueue) -> Work | None:
    """What is there without waiting."""
    task = asyncio.create_task(queue.take())
    await asyncio.sleep(0)
    if task.done():
        return task.result()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return None


async def taken(queue: WorkQueue) -> Work:
    """What must be there without waiting."""
    work = await take(queue)
    assert work is not None
    return work


def make() -> WorkQueue:
    return WorkQueue(time.monotonic)


async def test_a_key_that_is_asked_for_often_is_handed_out_once() -> None:
    queue = make()
    for _ in range(3):
        queue.add([A])
    assert (await taken(queue)).keys == {A}
    assert await take(queue) is None


async def test_a_key_that_is_asked_for_while_it_is_worked_on_comes_once_more_afterwards() -> None:
    queue = make()
    queue.add([A])
    first = await taken(queue)
    queue.add([A])
    queue.add([A])
    assert await take(queue) is None
    queue.done(first)
    assert (await taken(queue)).keys == {A}
    assert await take(queue) is None


async def test_keys_of_one_stream_come_together_and_the_longest_due_stream_first() -> None:
    queue = make()
    queue.add([A, T])
    queue.add([B, S])
    assert (await taken(queue)).keys == {A, B, S}
    assert (await taken(queue)).keys == {T}


async def test_work_on_one_key_does_not_hold_up_another_of_the_same_stream() -> None:
    queue = make()
    queue.add([A])
    await taken(queue)
    queue.add([A, B])
    assert (await taken(queue)).keys == {B}


async def test_everything_comes_before_single_keys_and_once_at_a_time() -> None:
    queue = make()
    queue.add([A])
    queue.add_everything("interval")
    work = await taken(queue)
    assert (work.everything, work.reason) == (True, "interval")
    queue.add_everything("manifests")
    assert (await taken(queue)).keys == {A}
    assert await take(queue) is None
    queue.done(work)
    assert (await taken(queue)).reason == "manifests"


async def test_a_pass_over_everything_spares_the_keys_that_are_due_and_no_others() -> None:
    now = 0.0
    queue = WorkQueue(lambda: now)
    queue.add([A])
    queue.add([B], 10)
    queue.drop_due()
    assert await take(queue) is None
    now = 10.0
    assert (await taken(queue)).keys == {B}


async def test_what_is_asked_for_sooner_is_not_held_up_by_what_was_asked_for_later() -> None:
    queue = make()
    queue.add([A], 300)
    queue.add([A])
    queue.add([A], 300)
    assert (await taken(queue)).keys == {A}
    queue.add_everything("backoff", 300)
    queue.add_everything("request")
    assert (await taken(queue)).reason == "request"
    assert queue.depth == 0


async def test_whoever_waits_is_woken_by_what_is_added_and_by_what_becomes_due() -> None:
    queue = make()
    queue.add([B], 300)
    waiting = asyncio.create_task(queue.take())
    await asyncio.sleep(0)
    queue.add([A], SOON)
    assert (await asyncio.wait_for(waiting, 5)).keys == {A}
    assert queue.depth == 1


async def test_handing_out_ten_times_as_many_streams_takes_about_ten_times_as_long() -> None:
    await seconds_to_hand_out(100)
    few = await seconds_to_hand_out(300)
    assert await seconds_to_hand_out(3000) < 40 * few  # a hundred times, if each look went through all that waits


async def seconds_to_hand_out(streams: int) -> float:
    """Ten keys of each."""
    queue = make()
    queue.add([Key("Consumer", f"c{number}", f"S{stream}") for stream in range(streams) for number in range(10)])
    started = time.process_time()
    while queue.depth:
        queue.done(await queue.take())
    return time.process_time() - started


KEYS = (A, B, C, S, T)
HISTORIES = st.lists(st.one_of(st.sampled_from(KEYS), st.sampled_from(["full", "take", "done"])), max_size=40)


@given(HISTORIES)
def test_nothing_is_forgotten_and_nobody_works_on_a_key_twice_at_once(history: list[Key | str]) -> None:
    asyncio.run(live_through(history))


async def live_through(history: list[Key | str]) -> None:
    """A history, and then everything worked off."""
    accounts = Accounts(make())
    for event in history:
        await accounts.happen(event)
    while accounts.owed:
        accounts.finish()
        assert await accounts.take(), accounts.owed
    assert accounts.queue.depth == 0


@dataclass
class Accounts:
    """A queue, what was asked for and not handed out since, and what is being worked on."""

    queue: WorkQueue
    owed: set[Key | str] = field(default_factory=set)
    working: list[Work] = field(default_factory=list)

    async def happen(self, event: Key | str) -> None:
        """Somebody asks, takes or gives back."""
        if isinstance(event, Key):
            self.queue.add([event])
            self.owed.add(event)
        elif event == "full":
            self.queue.add_everything("law")
            self.owed.add("full")
        elif event == "take":
            await self.take()
        else:
            self.finish()

    async def take(self) -> bool:
        """Takes what is there, as the daemon does: a pass over everything spares the single keys."""
        work = await take(self.queue)
        if work is None:
            return False
        assert not any(work.keys & other.keys or (work.everything and other.everything) for other in self.working)
        self.owed -= work.keys or {"full", *KEYS}
        if work.everything:
            self.queue.drop_due()
        self.working.append(work)
        return True

    def finish(self) -> None:
        """Gives everything back."""
        for work in self.working:
            self.queue.done(work)
        self.working.clear()
