"""Ends processes and links in the middle of migrations that run side by side, each at a place of its own.

Invariant: which write a lane is stopped at is counted among the writes of that lane's own streams.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.support.daemon.leadership import release_for_the_dead
from tests.support.daemon.process import Daemon, settled
from tests.support.server.process import Server
from tests.support.server.proxy import Proxy, Request, Verdict
from tests.support.sources.rows import Lane
from tests.support.sources.runs import PATIENCE, Batch, Outcome, changed, over

_GLANCE = 0.05
_IMPATIENT = {"NATS_TIMEOUT": "2s"}
"""Whoever waits for an answer that never comes changes nothing else there meanwhile."""
_RECOVERY = 240.0
"""Seconds for a migration that waits for a server of 2.14 to look for its source again, several times: each takes it 40 s."""


@dataclass(frozen=True)
class Stop:
    """This write never reaches the server, or its true answer never the daemon."""

    write: int
    fate: Verdict

    def __str__(self) -> str:
        return f"killed at write {self.write}, {self.fate.value}"


@dataclass
class Stops:
    """The rule of a proxy: where each lane is stopped."""

    at: Mapping[Lane, Stop]
    writes: Counter[Lane] = field(default_factory=Counter)

    def __call__(self, request: Request) -> Verdict:
        """Once a lane has been stopped, nothing of it gets through; that is said, for silence would stop the others as well."""
        if not request.is_write:
            return Verdict.PASS
        lane = next((each for each in self.at if request.stream in (each.source, each.aggregate)), None)
        if lane is None:
            return Verdict.PASS
        self.writes[lane] += 1
        stop = self.at[lane]
        if self.writes[lane] < stop.write:
            return Verdict.PASS
        return stop.fate if self.writes[lane] == stop.write else Verdict.REFUSE

    @property
    def stopped(self) -> set[Lane]:
        """Those that came so far."""
        return {lane for lane, stop in self.at.items() if self.writes[lane] >= stop.write}


async def killed_at(batch: Batch, server: Server, stops: Stops, *, rate: int) -> list[Outcome]:
    """A daemon is killed where the lanes were stopped; another one goes on."""
    batch.declare(after=False)
    async with batch.running() as first:
        await first.until(settled)
        await batch.flowing()
        await first.stop()
    async with batch.loaded(rate):
        await asyncio.sleep(1)
        batch.declare(after=True)
        async with Proxy(server.port, stops) as proxy, batch.running(proxy.url, ready=False, **_IMPATIENT) as second:
            await second.listening()
            neither = await _under_way(stops, second)
            await second.kill()
        await release_for_the_dead(batch.places[""].wire)
        async with batch.running() as third:
            await batch.migrated(third)
            await asyncio.sleep(1)
            await third.stop()
    batch.trouble |= dict.fromkeys(neither, f"neither stopped nor over after {PATIENCE:g} s")
    return await batch.judged()


async def _under_way(stops: Stops, running: Daemon) -> set[Lane]:
    """Waits until every lane was stopped, or had fewer steps; those that came to neither in time."""
    deadline = time.monotonic() + PATIENCE
    under_way = set(stops.at)
    while under_way and time.monotonic() < deadline:
        document = await running.status()
        under_way = set(stops.at) - stops.stopped
        if document["lastPass"].get("number"):
            under_way = {lane for lane in under_way if not over(document, lane)}
        await asyncio.sleep(_GLANCE)
    return under_way


async def disturbed(
    batch: Batch, disturb: Callable[[], object], mend: Callable[[], object], *, away: float, rate: int
) -> list[Outcome]:
    """In the middle of all migrations something goes away, for so many seconds."""
    batch.declare(after=False)
    async with batch.running() as running:
        await running.until(settled)
        await batch.flowing()
        async with batch.loaded(rate):
            await asyncio.sleep(1)
            await changed(batch, running)
            await asyncio.sleep(0.5)
            disturb()
            await asyncio.sleep(away)
            mend()
            await batch.migrated(running, patience=_RECOVERY)
            await asyncio.sleep(1)
        outcomes = await batch.judged()
        await running.stop()
    return outcomes


async def server_killed(batch: Batch, server: Server, dice: random.Random, *, times: int, rate: int) -> list[Outcome]:
    """Nothing changes, but the server dies again and again."""
    batch.declare(after=True)
    async with batch.running() as running:
        await running.until(settled)
        await batch.flowing()
        async with batch.loaded(rate):
            for _ in range(times):
                await asyncio.sleep(dice.uniform(0.2, 1.5))
                server.kill()
                server.start()
            await running.until(settled)
        outcomes = await batch.judged(killed=True)
        wrongly = [line for line in running.lines("source.reset") if "skipped" in line["message"]]
        assert not wrongly, f"nothing was skipped, yet it was told: {wrongly}"
        await running.stop()
    return outcomes
