"""Leaders of streams and of their durables step down, again and again, while streams migrate.

Invariant: nobody is asked to step down before messages flow, nor while it is judged what became of them.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tests.support.account.wire import Wire
from tests.support.daemon.process import settled
from tests.support.sources.rows import Lane
from tests.support.sources.runs import Batch, Outcome, changed

_PATIENCE = 240.0
"""Seconds for all the migrations of a batch: a durable comes to rest only between two elections."""


@dataclass
class Unrest:
    """Asks leaders to step down, one after the other, at random."""

    dice: random.Random
    every: float
    """Seconds."""
    happened: int = 0

    async def during(self, wire: Wire, streams: Sequence[str]) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(self.every * self.dice.uniform(0.5, 1.5))
            stream = self.dice.choice(streams)
            durables = (await wire.call(f"CONSUMER.NAMES.{stream}")).get("consumers") or []
            place = self.dice.choice(
                [f"STREAM.LEADER.STEPDOWN.{stream}", *(f"CONSUMER.LEADER.STEPDOWN.{stream}.{one}" for one in durables)]
            )
            self.happened += "error" not in await wire.call(place)


def _streams(lanes: Iterable[Lane]) -> list[str]:
    return [name for lane in lanes for name in (lane.source, lane.aggregate)]


async def elected(batch: Batch, unrest: Unrest, *, seconds: float, rate: int, changing: bool = True) -> list[Outcome]:
    """Before, load, after, judged; leaders step down from the load on. Without `changing` nothing else happens."""
    batch.declare(after=False)
    async with batch.running() as running:
        await running.until(settled)
        await batch.flowing()
        async with batch.loaded(rate):
            begun = time.monotonic()
            stepping = asyncio.create_task(unrest.during(batch.places[""].wire, _streams(batch.lanes)))
            try:
                await asyncio.sleep(seconds / 4)
                if changing:
                    since = time.monotonic()
                    await changed(batch, running)
                    await batch.migrated(running, since, _PATIENCE)
                await asyncio.sleep(max(1.0, seconds - (time.monotonic() - begun)))
            finally:
                stepping.cancel()
                with suppress(asyncio.CancelledError):
                    await stepping
        outcomes = await batch.judged()
        await running.stop()
    return outcomes
