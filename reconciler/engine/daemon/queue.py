"""The work queue: what has to be looked at, each key once, however often it was asked for.

A key that is asked for again while it is being worked on is handed out once more afterwards, and not before.
Invariant: nothing that was asked for is forgotten until it has been handed out after that moment.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from reconciler.model.identity import Key


@dataclass(frozen=True, slots=True)
class Work:
    """What a pass is about; give it back with `WorkQueue.done`."""

    keys: frozenset[Key]
    """Keys of one stream and its consumers; empty: everything."""
    waited: float
    """Seconds since the oldest of them became due."""
    reason: str = ""
    """Why everything is to be looked at."""

    @property
    def everything(self) -> bool:
        """Whether this is a full pass."""
        return not self.keys


class WorkQueue:
    """One consumer takes, anybody adds. Keys are live keys (see `Key.live_key`)."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._due: dict[Key, float] = {}
        """When each key becomes (or became) due; those being worked on may be due again."""
        self._by_stream: dict[Key, set[Key]] = {}
        """The same keys, by stream key."""
        self._in_order: list[tuple[float, int, Key]] = []
        """A heap of them; what is no longer true is dropped when its turn comes."""
        self._count = itertools.count()
        self._working: set[Key] = set()
        self._full = ""
        self._full_due = 0.0
        self._full_working = False
        self._changed = asyncio.Event()

    @property
    def depth(self) -> int:
        """How many keys wait to be looked at, due or not, and whether everything does."""
        return len(self._due) + bool(self._full)

    @property
    def due(self) -> bool:
        """Whether there is something to take at once."""
        first, now = self._first(), self._monotonic()
        everything = bool(self._full) and not self._full_working and self._full_due <= now
        return everything or (first is not None and first[0] <= now)

    def add(self, keys: Iterable[Key], delay: float = 0.0) -> None:
        """Look at these, `delay` seconds from now at the latest."""
        due = self._monotonic() + delay
        for key in keys:
            if due < self._due.get(key, math.inf):
                self._due[key] = due
                self._put_in_order(key)
        self._changed.set()

    def add_everything(self, reason: str, delay: float = 0.0) -> None:
        """Look at everything, `delay` seconds from now at the latest."""
        due = self._monotonic() + delay
        if not self._full or due < self._full_due:
            self._full, self._full_due = reason, due
        self._changed.set()

    def drop_due(self) -> None:
        """Forget the single keys that are due: everything is about to be looked at anyway."""
        now = self._monotonic()
        self._due = {key: at for key, at in self._due.items() if at > now}
        self._by_stream, self._in_order = {}, []
        for key in self._due:
            self._put_in_order(key)

    async def take(self) -> Work:
        """The next thing to do; everything before single keys, and those of one stream together."""
        while True:
            self._changed.clear()
            if self._full and not self._full_working and self._full_due <= self._monotonic():
                return self._take_full()
            first = self._first()
            if first is not None and first[0] <= self._monotonic():
                return self._take_keys(first[1].stream_key)
            await self._wait(first[0] if first is not None else math.inf)

    def done(self, work: Work) -> None:
        """The work is over, whatever came of it."""
        if work.everything:
            self._full_working = False
        self._working -= work.keys
        for key in work.keys & self._due.keys():
            self._put_in_order(key)
        self._changed.set()

    def _take_full(self) -> Work:
        reason, self._full, self._full_working = self._full, "", True
        return Work(frozenset(), self._monotonic() - self._full_due, reason)

    def _put_in_order(self, key: Key) -> None:
        self._by_stream.setdefault(key.stream_key, set()).add(key)
        heapq.heappush(self._in_order, (self._due[key], next(self._count), key))

    def _first(self) -> tuple[float, Key] | None:
        """The key that is due first, and when; without those being worked on, which `done` puts back."""
        while self._in_order:
            due, _, key = self._in_order[0]
            if self._due.get(key) == due and key not in self._working:
                return due, key
            heapq.heappop(self._in_order)
        return None

    def _take_keys(self, stream: Key) -> Work:
        """All due keys of a stream that nobody works on."""
        now = self._monotonic()
        of_stream = self._by_stream[stream]
        keys = frozenset(key for key in of_stream if self._due[key] <= now and key not in self._working)
        waited = now - min(self._due.pop(key) for key in keys)
        of_stream -= keys
        if not of_stream:
            del self._by_stream[stream]
        self._working |= keys
        return Work(keys, waited)

    async def _wait(self, first_due: float) -> None:
        """Until something is added or given back, or the next thing becomes due."""
        due = first_due if not self._full or self._full_working else min(first_due, self._full_due)
        timeout = None if due == math.inf else max(0.0, due - self._monotonic())
        try:
            async with asyncio.timeout(timeout):
                await self._changed.wait()
        except TimeoutError:
            return
