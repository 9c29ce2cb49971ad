"""The course of a soak: everything is put in place, meddled with, left alone, and judged."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.account.wire import Json, Wire
from tests.support.clock.until import until
from tests.support.daemon.command import Command
from tests.support.daemon.process import settled as in_place
from tests.support.server.process import Server
from tools.soak import verdict
from tools.soak.families import FULL, Families
from tools.soak.hands import Hands
from tools.soak.lease import LeaseRecord
from tools.soak.ledger import Ledger
from tools.soak.meddler import Meddler
from tools.soak.pair import Pair, two
from tools.soak.traffic import Traffic
from tools.soak.verdict import Verdicts

KILLS = (0.1, 0.25, 0.93)
"""When the leader is killed, in parts of the time: in between its memory is watched for long."""
COMMITS = 10
"""Changes of the manifests, there and back."""
WATCHED = (1 / 3, 0.9)
"""The part of the time in which memory has to stay as it is."""
SAMPLES = 10.0
INTERVAL = 60.0
_FLAGS = ("--prune", "--interval", f"{INTERVAL:g}s")
_FIRST = 1800.0
"""Seconds until everything has to be in place for the first time: on a busy machine thousands of creates take theirs."""
_TAKEN_UP = 5.0
"""Seconds after which other manifests are in force: they are polled every two."""


@dataclass(frozen=True)
class Asked:
    """What the command line says."""

    minutes: float
    resources: int
    rate: float
    messages: float
    seed: int
    version: str
    settle: float
    """Seconds within which everything has to be in place or named, once nobody meddles any more."""

    @property
    def seconds(self) -> float:
        """Of meddling."""
        return self.minutes * 60


@dataclass
class Soak:
    """One of them, under way."""

    asked: Asked
    count: int
    """Of declared resources."""
    server: Server
    families: Families
    pair: Pair
    wire: Wire
    traffic: Traffic
    meddler: Meddler
    ledger: Ledger
    lease: LeaseRecord = field(default_factory=LeaseRecord)
    verdicts: Verdicts = field(default_factory=Verdicts)
    before: dict[str, Json] = field(default_factory=dict)
    began: float = 0.0
    kills: int = 0
    commits: int = 0
    two_leaders: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    """Processes that ended by themselves."""

    async def put_in_place(self) -> None:
        """Everything as declared, every source flowing, and both daemons there."""
        (first,) = self.pair.lives
        await first.process.until(in_place, _FIRST)
        await first.process.until(_flowing, _FIRST)
        await (await self.pair.begin("b")).process.ready()
        self.before = await verdict.configurations(self.wire, self.families)
        await self.lease.listen(self.wire)

    async def meddle(self) -> None:
        """With all that goes on meanwhile; nothing of it is left when this returns."""
        self.began = time.monotonic()
        publishing = asyncio.create_task(self.traffic.publishing())
        async with beside(self._sampling(), self._killing(), self._committing()):
            await self.meddler.meddle(self.began + self.asked.seconds)
            self.traffic.over.set()
            await publishing  # the last message has to be confirmed

    async def leave_alone(self) -> float:
        """Nobody changes anything any more; how long it took until everything was in place or named, and every source flowed."""
        self.families.write(0)
        await self.meddler.take_back()
        began = time.monotonic()
        await asyncio.sleep(_TAKEN_UP)
        with suppress(TimeoutError):
            await until(self._settled, self.asked.settle)
        return time.monotonic() - began

    async def _settled(self) -> bool:
        leader = await self.pair.leader()
        document = await leader.status() if leader else None
        return bool(document and _flowing(document) and not verdict.settled(document, self.ledger))

    async def _sampling(self) -> None:
        while True:
            await self.pair.look()
            await self._count_leaders()
            self.gone = self.pair.ended_by_themselves()
            await asyncio.sleep(min(SAMPLES, self.asked.seconds / 30))

    async def _count_leaders(self) -> None:
        """One that leads before and after another one was asked, and that one as well, are two."""
        lives = list(self.pair.now.values())
        said = [await life.process.metric("reconciler_leader") for life in (*lives, lives[0])]
        if all(said):
            self.two_leaders.append(f"both lead, {time.monotonic() - self.began:.0f} s from the beginning")

    async def _killing(self) -> None:
        for part in KILLS:
            await self._at(part)
            await until(self.pair.kill_the_leader, _FIRST)
            self.kills += 1

    async def _committing(self) -> None:
        for number in range(1, COMMITS):
            await self._at(number / COMMITS + 0.02)
            self.commits += 1
            self.families.write(self.commits % 2)

    async def _at(self, part: float) -> None:
        await asyncio.sleep(max(0.0, self.began + part * self.asked.seconds - time.monotonic()))


def _flowing(document: Json) -> bool:
    return all(source["state"] == "Flowing" for source in document["sources"])


@asynccontextmanager
async def beside(*others: Awaitable[None]) -> AsyncIterator[None]:
    """Each goes on until it is over or the block is; one that fails fails the block at its end."""
    tasks = [asyncio.ensure_future(one) for one in others]
    try:
        yield
    finally:
        ended = [task for task in tasks if task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in ended:
        task.result()


@asynccontextmanager
async def prepared(asked: Asked, place: Path) -> AsyncIterator[Soak]:
    """A server, a daemon, and all that is going to happen to them."""
    families = Families.of(asked.resources, place / "manifests")
    count = families.write(0)
    ledger = Ledger()
    ledger.open(families.every, FULL)
    async with AsyncExitStack() as stack:
        server = stack.enter_context(Server(place / "server", version=asked.version))
        wire, used, meddling = [await stack.enter_async_context(await Wire.connect(server.url, name=name)) for name in _CLIENTS]
        home = place / "home"
        home.mkdir()
        pair = await stack.enter_async_context(two(Command(home, server.url), families.directory, place, *_FLAGS))
        hands = Hands(meddling, random.Random(asked.seed), ledger, asked.resources)  # noqa: S311 - variety
        traffic = Traffic(used, ledger, [family for family in families.every if family.subjects], asked.messages)
        meddler = Meddler(families, hands, asked.rate)
        yield Soak(asked, count, server, families, pair, wire, traffic, meddler, ledger)


_CLIENTS = ("soak", "traffic", "meddler")
