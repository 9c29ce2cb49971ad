"""Waiting for what a server does in its own time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

SECONDS = 60.0
"""When to give up: on a busy machine everything takes its time."""
_FIRST, _MORE, _LONGEST = 0.002, 1.4, 0.3


async def glances() -> AsyncIterator[None]:
    """A turn for each look: what comes soon is seen soon, and what takes long is not asked about all the time."""
    pause = _FIRST
    while True:
        yield
        await asyncio.sleep(pause)
        pause = min(pause * _MORE, _LONGEST)


async def until(what: Callable[[], Awaitable[bool]], seconds: float = SECONDS) -> None:
    """Asks until it is true; raises TimeoutError when it is not within the time."""
    async with asyncio.timeout(seconds):
        async for _ in glances():
            if await what():
                return
