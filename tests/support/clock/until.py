"""Waiting for what a server does in its own time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

SECONDS = 20.0


async def until(what: Callable[[], Awaitable[bool]], seconds: float = SECONDS) -> None:
    """Asks until it is true; raises TimeoutError when it is not within the time."""
    async with asyncio.timeout(seconds):
        while not await what():  # noqa: ASYNC110 - nobody signals it
            await asyncio.sleep(0.02)
