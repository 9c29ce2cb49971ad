"""The machine's own time, and what of it code needs that must stop by itself.

Invariant: `monotonic` goes on while the machine is suspended, so that a laptop or VM that wakes up knows it is late.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", None)  # Linux; elsewhere the monotonic clock has to do


class LeaseClock(Protocol):
    """What the lease needs of time."""

    def monotonic(self) -> float:
        """Seconds that never go back."""

    async def sleep(self, seconds: float) -> None:
        """Returns after that many seconds."""


class SystemClock:
    """The machine's own time."""

    def now(self) -> int:
        """Nanoseconds since the epoch."""
        return time.time_ns()

    def monotonic(self) -> float:
        """Seconds since boot, suspension included."""
        return time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)

    async def sleep(self, seconds: float) -> None:
        """Sleeps in the event loop."""
        await asyncio.sleep(seconds)
