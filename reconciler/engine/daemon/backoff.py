"""How long to leave a key alone after a failure: exponential, with full jitter, per key.

Full jitter (anything between nothing and the bound) keeps many keys that failed together from coming back together.
Invariant: pure; time and chance come from outside. A key's bound starts over after a success or a change.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass

FIRST = 0.5
MOST = 30.0
_DOUBLINGS = 32
"""Beyond this many failures the bound has long been reached; keeps the power small."""


@dataclass(slots=True)
class _Trouble:
    failures: int = 0
    due: float = 0.0


class Backoff:
    """Remembers only keys in trouble."""

    def __init__(self, monotonic: Callable[[], float], uniform: Callable[[float, float], float] = random.uniform) -> None:
        self._monotonic = monotonic
        self._uniform = uniform
        self._trouble: dict[Hashable, _Trouble] = {}

    def failed(self, key: Hashable) -> float:
        """Notes a failure; returns the seconds to wait."""
        trouble = self._trouble.setdefault(key, _Trouble())
        bound = min(MOST, FIRST * 2 ** min(trouble.failures, _DOUBLINGS))
        delay = self._uniform(0.0, bound)
        trouble.failures += 1
        trouble.due = self._monotonic() + delay
        return delay

    def due_in(self, key: Hashable) -> float:
        """Seconds until the key may be tried again; 0 when it may be tried now."""
        trouble = self._trouble.get(key)
        return max(0.0, trouble.due - self._monotonic()) if trouble else 0.0

    def failures(self, key: Hashable) -> int:
        """How often it failed in a row."""
        trouble = self._trouble.get(key)
        return trouble.failures if trouble else 0

    def forget(self, key: Hashable) -> None:
        """It worked, or it has changed: start over."""
        self._trouble.pop(key, None)

    def forget_all(self) -> None:
        """Everything may be different now: start over."""
        self._trouble.clear()

    def troubled(self) -> Collection[Hashable]:
        """The keys that have failed and not worked since."""
        return self._trouble.keys()
