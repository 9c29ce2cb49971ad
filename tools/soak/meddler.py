"""Somebody who cannot leave anything alone: so many acts a second, at random, of which some are taken back later."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from tools.soak import copying, edits, forging, rough
from tools.soak.families import Families, Family
from tools.soak.hands import Hands, NoSuch
from tools.soak.ledger import Standing

Act = Callable[[Hands, Family], Awaitable[None]]
_ROWS: tuple[tuple[int, Act, tuple[str, ...]], ...] = (
    (20, edits.edit_stream, ("kept", "rough", "worked", "copied", "bucket")),
    (30, edits.edit_consumer, ("kept", "rough", "worked", "full")),
    (2, edits.misguide_consumer, ("kept", "rough", "full")),
    (14, edits.delete_consumer, ("kept", "rough", "workqueue")),
    (6, edits.recreate_consumer, ("kept", "rough", "workqueue")),
    (1, edits.misplaced_consumer, ("rough",)),
    (8, edits.pause_consumer, ("kept", "rough", "worked")),
    (1, edits.copy_stream, ("kept", "rough", "full", "copied")),
    (2, edits.copy_consumer, ("kept", "rough")),
    (2, forging.forge_stream, ("kept", "rough", "worked", "bucket", "copied")),
    (5, forging.forge_consumer, ("kept", "rough", "worked")),
    (1, forging.forge_hold, ("kept", "rough")),
    (2, rough.lower_limit, ("rough",)),
    (1, rough.purge, ("rough",)),
    (2, rough.delete_stream, ("rough",)),
    (1, rough.recreate_stream, ("rough",)),
    (2, rough.endanger, ("rough",)),
    (1, rough.lift, ("full",)),
    (4, copying.delete_durable, ("copied",)),
    (3, copying.edit_durable, ("copied",)),
    (2, copying.pause_durable, ("copied",)),
    (2, copying.forge_durable, ("copied",)),
    (3, copying.edit_copy, ("copied",)),
    (1, copying.forge_copy, ("copied",)),
)
"""How often in about a hundred, what, and on which families."""
_UNDONE = 0.5
"""Of what stands in the end."""
_AT_ONCE = 40


@dataclass
class Meddler:
    """The acts of one soak."""

    families: Families
    hands: Hands
    rate: float
    """Acts a second."""
    under_way: set[asyncio.Task[None]] = field(default_factory=set)
    broken: list[str] = field(default_factory=list)
    """Acts that ended as none should, above all what was not repaired."""
    late: int = 0
    """Acts that were left out, since too many others had not ended."""

    async def meddle(self, until: float) -> None:
        """Acts until then (monotonic), and returns when the last one has ended."""
        chosen = [(act, self._families(kinds)) for _, act, kinds in _ROWS]
        weights = [weight for weight, _, _ in _ROWS]
        began, number = time.monotonic(), 0
        while (now := time.monotonic()) < until:
            number += 1
            if len(self.under_way) < _AT_ONCE:
                self._begin(self._undoing() or self._one(*self.hands.dice.choices(chosen, weights)[0]))
            else:
                self.late += 1
            await asyncio.sleep(max(0.0, began + number / self.rate - now))
        await asyncio.gather(*self.under_way)

    async def take_back(self) -> None:
        """What the comparison at the end hangs on, and half of the rest."""
        for key, left in sorted(self.hands.ledger.standing.items()):
            if left.last or self.hands.dice.random() < _UNDONE:
                await self.hands.undo(key)

    def _undoing(self) -> Awaitable[None] | None:
        """What is to be taken back by now, if anything."""
        now = time.monotonic()
        due = [key for key, left in self.hands.ledger.standing.items() if left.due < now]
        if not due:
            return None
        standing = self.hands.ledger.standing[due[0]]
        standing.due = float("inf")
        return self._take_back(due[0], standing)

    async def _take_back(self, key: str, standing: Standing) -> None:
        self.hands.ledger.acts["undo"] += 1
        if self.hands.ledger.standing.get(key) is standing:
            await self.hands.undo(key)

    async def _one(self, act: Act, families: list[Family]) -> None:
        ledger, family = self.hands.ledger, self.hands.dice.choice(families)
        try:
            await act(self.hands, family)
        except NoSuch:
            ledger.failed[act.__name__] += 1
        else:
            ledger.acts[act.__name__] += 1

    def _begin(self, doing: Awaitable[None]) -> None:
        task = asyncio.ensure_future(self._noted(doing))
        self.under_way.add(task)
        task.add_done_callback(self.under_way.discard)

    async def _noted(self, doing: Awaitable[None]) -> None:
        try:
            await doing
        except Exception as error:  # noqa: BLE001 - a verdict, at the end
            self.broken.append(f"{type(error).__name__}: {error}")

    def _families(self, kinds: tuple[str, ...]) -> list[Family]:
        return [
            family
            for family in self.families.every
            if family.kind in kinds or ("workqueue" in kinds and family.kind == "worked" and family.retention == "workqueue")
        ]
