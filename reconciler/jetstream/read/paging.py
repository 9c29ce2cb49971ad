"""Fetching long lists in pages, many at once but never more bytes than the connection bears.

32 pages of big consumers in flight (150 MB) made the server cut the connection as a slow consumer, so reads are bounded by
the bytes they are expected to bring, not by their number.

Invariant: the expected bytes in flight stay below the budget, except for one request that is bigger than all of it.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

import orjson

DEFAULT_BUDGET = 16 << 20
UNKNOWN_PAGE = 2 << 20
"""What a page of unknown size counts for: eight of the biggest seen (5 MB) together stay below what a server lets pend."""
_MARGIN = 1.25
_AT_ONCE = 512
"""Pages that are asked for before the first of them has come: what a server says of their number may be anything."""
_HEAD_BYTES = 1024
_HEAD = re.compile(rb'"total":(\d+),"offset":(\d+),"limit":(\d+)')

FetchPage = Callable[[int], Awaitable[bytes]]


class ByteBudget:
    """A semaphore that counts expected bytes; first come, first served."""

    def __init__(self, limit: int = DEFAULT_BUDGET) -> None:
        self.limit = limit
        self._in_use = 0
        self._queue: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def in_use(self) -> int:
        """Expected bytes in flight now."""
        return self._in_use

    @asynccontextmanager
    async def reserve(self, size: int) -> AsyncIterator[None]:
        """Waits until `size` more bytes fit."""
        size = min(size, self.limit)
        if self._queue or self._in_use + size > self.limit:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._queue.append((size, turn))
            try:
                await turn
            except asyncio.CancelledError:
                self._withdraw(size, turn)
                raise
        else:
            self._in_use += size
        try:
            yield
        finally:
            self._release(size)

    def _withdraw(self, size: int, turn: asyncio.Future[None]) -> None:
        if turn.done() and not turn.cancelled():
            self._release(size)  # its turn had come in the moment of cancelling
        elif (size, turn) in self._queue:  # else it was passed over already, as one that had gone away
            self._queue.remove((size, turn))
            self._admit()

    def _release(self, size: int) -> None:
        self._in_use -= size
        self._admit()

    def _admit(self) -> None:
        while self._queue and self._in_use + self._queue[0][0] <= self.limit:
            size, turn = self._queue.popleft()
            if not turn.done():
                self._in_use += size
                turn.set_result(None)


class PageHead(NamedTuple):
    """The paging fields of a list reply."""

    total: int
    offset: int
    limit: int


def read_head(page: bytes) -> PageHead:
    """The paging fields, without parsing the page: they precede the list in every server's reply."""
    match = _HEAD.search(page, 0, _HEAD_BYTES)
    if match is not None:
        return PageHead(int(match[1]), int(match[2]), int(match[3]))
    document = orjson.loads(page)
    return PageHead(document["total"], document["offset"], document["limit"])


async def pages(fetch: FetchPage, budget: ByteBudget, expected: int = UNKNOWN_PAGE) -> AsyncIterator[bytes]:
    """All pages in order, raw: the first alone to learn number and size, the others concurrently within the budget.

    A list that grows meanwhile is followed to its end. Pages are not one moment of the server: what is deleted while they
    are fetched can hide another entry, so absence from a list is a reason to look, not a fact.
    """
    async with budget.reserve(expected):
        first = await fetch(0)
    head = read_head(first)
    yield first
    step, total, offset = head.limit, head.total, head.limit
    learned = int(len(first) * _MARGIN)

    async def fetch_within(at: int) -> bytes:
        async with budget.reserve(learned):
            return await fetch(at)

    while step and offset < total:
        due = range(offset, total, step)[:_AT_ONCE]
        tasks = [asyncio.ensure_future(fetch_within(at)) for at in due]
        offset += step * len(tasks)
        try:
            for task in tasks:
                page = await task
                total = max(total, read_head(page).total)
                yield page
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
