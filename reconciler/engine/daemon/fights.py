"""Two writers who fight: the same field set to the same foreign value again and again.

Invariant: pure; a fight is slowed down, never given up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from reconciler.model.identity import Key
from reconciler.plan.change import Author, FieldDiff

WINDOW = 600.0
TIMES = 20
"""Within the window; beyond that it is a fight."""
PAUSE = 5.0
"""Seconds between two repairs of a key that is fought over."""
_REMEMBERED = 10_000
_COUNTED = 1000
"""At five seconds between two repairs no window holds more."""

DELETED = FieldDiff("(deleted)", None, None)
"""What a deletion counts as."""
MARKER = FieldDiff("marker", None, None)
"""What it counts as that somebody wiped our marker and changed nothing else."""

_Blow = tuple[Key, str, str]
"""A field of a key, and the value that it was set to."""


@dataclass(frozen=True, slots=True)
class Fight:
    """What is fought over, and who with."""

    field: FieldDiff
    times: int
    author: Author | None = None
    """Who was the last that is known to have set this value."""


class Fights:
    """Counts drifts per key, field and value, and remembers who made them."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._seen: dict[_Blow, tuple[float, ...]] = {}
        """When a field of a key had that value; what was seen last comes last."""
        self._authors: dict[_Blow, Author] = {}
        """Of those that were seen, as far as is known."""
        self._last: dict[Key, tuple[_Blow, ...]] = {}
        """The last drift of a key."""
        self._until: dict[Key, float] = {}

    def noted(self, key: Key, fields: tuple[FieldDiff, ...], author: Author | None = None) -> Fight | None:
        """Notes a drift; the fight that it is part of, or None while there is none."""
        now = self._monotonic()
        blows = {(key, one.path, repr(one.live)): one for one in fields or (DELETED,)}
        times = {blow: self._count(blow, now) for blow in blows}
        self._remember(key, tuple(blows))
        if author:
            self.attributed(key, author)
        worst = max(times, key=times.__getitem__)
        if times[worst] <= TIMES:
            return None
        self._until[key] = now + PAUSE
        return Fight(blows[worst], times[worst], self._authors.get(worst))

    def attributed(self, key: Key, author: Author) -> None:
        """It is known who made the last drift of this key."""
        self._authors.update((blow, author) for blow in self._last.get(key, ()) if blow in self._seen)

    def delay(self, key: Key) -> float:
        """Seconds for which this key is left as it is."""
        until = self._until.get(key) if self._until else None
        if until is None:
            return 0.0
        left = until - self._monotonic()
        if left <= 0:
            del self._until[key]
        return max(0.0, left)

    def _count(self, blow: _Blow, now: float) -> int:
        before = [at for at in self._seen.pop(blow, ()) if at >= now - WINDOW]
        times = self._seen[blow] = (*before[1 - _COUNTED :], now)  # a tuple: nearly all have one entry, and there are many
        if not before:
            self._authors.pop(blow, None)  # of a fight that is long over
        if len(self._seen) > _REMEMBERED:
            oldest = next(iter(self._seen))
            del self._seen[oldest]
            self._authors.pop(oldest, None)
        return len(times)

    def _remember(self, key: Key, blows: tuple[_Blow, ...]) -> None:
        self._last.pop(key, None)
        self._last[key] = blows
        if len(self._last) > _REMEMBERED:
            del self._last[next(iter(self._last))]
