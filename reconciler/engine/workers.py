"""Working off many items with few workers, where some need another try later.

Invariant: an item that waits for its next try occupies no worker; all is over when every item has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Generic, TypeVar

T = TypeVar("T")

Try = Callable[[T], Awaitable[float | None]]
"""One try of an item: None when it has ended, else the seconds until the next try."""


async def work_off(items: Collection[T], attempt: Try[T], workers: int, sleep: Callable[[float], Awaitable[None]]) -> None:
    """Returns when every item has ended."""
    if items:
        await _Work(items, attempt, sleep).run(min(workers, len(items)))


class _Work(Generic[T]):
    def __init__(self, items: Collection[T], attempt: Try[T], sleep: Callable[[float], Awaitable[None]]) -> None:
        self._attempt = attempt
        self._sleep = sleep
        self._open = len(items)
        self._ready: asyncio.Queue[T | None] = asyncio.Queue()
        for item in items:
            self._ready.put_nowait(item)

    async def run(self, workers: int) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(self._work(group))

    async def _work(self, group: asyncio.TaskGroup) -> None:
        while (item := await self._ready.get()) is not None:
            delay = await self._attempt(item)
            if delay is not None:
                group.create_task(self._again(item, delay))
                continue
            self._open -= 1
            if not self._open:
                break
        self._ready.put_nowait(None)  # one leaving worker sends the next one home

    async def _again(self, item: T, delay: float) -> None:
        await self._sleep(delay)
        self._ready.put_nowait(item)
