"""Two writers who fight: the same field set to the same foreign value again and again.

Invariant: pure; a fight is slowed down, never given up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reconciler.model.identity import Key
from reconciler.plan.change import FieldDiff

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


class Fights:
    """Counts drifts per key, field and value."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._seen: dict[tuple[Key, str, str], tuple[float, ...]] = {}
        """When a field of a key had that value; what was seen last comes last."""
        self._until: dict[Key, float] = {}

    def noted(self, key: Key, fields: tuple[FieldDiff, ...]) -> tuple[FieldDiff, int] | None:
        """Notes a drift; the field that is fought over and how often, or None while there is no fight."""
        now = self._monotonic()
        worst: tuple[FieldDiff, int] | None = None
        for one in fields or (DELETED,):
            times = self._count(key, one.path, one.live, now)
            if times > TIMES and (worst is None or times > worst[1]):
                worst = one, times
        if worst:
            self._until[key] = now + PAUSE
        return worst

    def delay(self, key: Key) -> float:
        """Seconds for which this key is left as it is."""
        until = self._until.get(key) if self._until else None
        if until is None:
            return 0.0
        left = until - self._monotonic()
        if left <= 0:
            del self._until[key]
        return max(0.0, left)

    def _count(self, key: Key, path: str, value: Any, now: float) -> int:  # noqa: ANN401 - any value of a field
        what = key, path, repr(value)
        before = [at for at in self._seen.pop(what, ()) if at >= now - WINDOW]
        times = self._seen[what] = (*before[1 - _COUNTED :], now)  # a tuple: nearly all have one entry, and there are many
        if len(self._seen) > _REMEMBERED:
            del self._seen[next(iter(self._seen))]
        return len(times)
