"""What is rendered in pieces, between which the loop does its other work, and once for all who ask for the same.

Invariants: one rendering goes on at a time; who asks while one goes on gets the next, so that nobody is told of a time before
his question; and what nobody waits for any more is not rendered.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Hashable
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")
Pieces = Generator[None, None, T]
"""Yields where others may go on, and returns what was rendered."""

_SHARE = 10
"""The same is rendered again after so many times its own duration: readers in a loop cost a tenth of the loop at most."""
_LONGEST_REST = 1.0


def at_once(pieces: Pieces[T]) -> T:
    """All of it, without a break."""
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            found: T = end.value
            return found


@dataclass(eq=False)
class _Rendering:
    """One that has not begun."""

    task: asyncio.Task[bytes]
    readers: int = 0


@dataclass
class Renderings:
    """Asked by many, for bytes that are named by what they show."""

    _asked: dict[Hashable, _Rendering] = field(default_factory=dict)
    _rests: dict[Hashable, float] = field(default_factory=dict)
    """Until when what was rendered is not rendered again."""
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def of(self, what: Hashable, render: Callable[[], Pieces[bytes]]) -> bytes:
        """The next rendering of this; what `render` raises is raised to all who wait for it."""
        rendering = self._asked.get(what)
        if rendering is None:
            task = asyncio.get_running_loop().create_task(self._render(what, render), name="rendering")
            rendering = self._asked[what] = _Rendering(task)
        rendering.readers += 1
        try:
            return await asyncio.shield(rendering.task)
        finally:
            rendering.readers -= 1
            if not rendering.readers and not rendering.task.done():
                rendering.task.cancel()
                if self._asked.get(what) is rendering:
                    del self._asked[what]

    async def _render(self, what: Hashable, render: Callable[[], Pieces[bytes]]) -> bytes:
        await asyncio.sleep(self._rests.get(what, 0.0) - time.monotonic())
        async with self._turn:
            self._asked.pop(what, None)
            seconds, pieces = 0.0, render()
            try:
                while True:
                    began = time.monotonic()
                    try:
                        next(pieces)
                    finally:
                        seconds += time.monotonic() - began
                    await asyncio.sleep(0)
            except StopIteration as end:
                rendered: bytes = end.value
                return rendered
            finally:
                now = time.monotonic()
                self._rests = {one: until for one, until in self._rests.items() if until > now}
                self._rests[what] = now + min(seconds * _SHARE, _LONGEST_REST)
