"""A token bucket: at most so many writes a second, with a burst of one second's worth."""

from __future__ import annotations

from reconciler.engine.ports import Clock


class Throttle:
    """`await take()` before each write; a rate of 0 means no limit."""

    def __init__(self, rate: float, clock: Clock) -> None:
        self._rate = rate
        self._clock = clock
        self._tokens = max(1.0, rate)
        self._filled = clock.monotonic()

    @property
    def limited(self) -> bool:
        """Whether anybody has to take a place."""
        return bool(self._rate)

    async def take(self) -> None:
        """Returns when one more write is allowed; a token is owed before waiting, so nobody overtakes."""
        if not self._rate:
            return
        now = self._clock.monotonic()
        self._tokens = min(max(1.0, self._rate), self._tokens + (now - self._filled) * self._rate)
        self._filled = now
        self._tokens -= 1.0
        if self._tokens < 0:
            await self._clock.sleep(-self._tokens / self._rate)
