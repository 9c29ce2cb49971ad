"""Two daemons of one owner that take turns in leading, because whoever leads is frozen again and again.

Meanwhile somebody edits what they keep, somebody publishes and consumes, and the servers' audit says who wrote what.
Invariant: nothing here asks the daemons who wrote; only the server is believed.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.account.wire import AUDIT_SUBJECT, Audit, Wire
from tests.support.daemon.command import Command
from tests.support.daemon.leadership import short_lease
from tests.support.daemon.process import Daemon, daemon, settled
from tests.support.daemon.steady_work import PATIENCE, Work
from tests.support.server.process import Server
from tests.support.server.proxy import Proxy, Request, Verdict, let_pass
from tests.support.values.catalogues import consumer, stream, write

STREAMS = 3
_QUIET = 0.15
"""Seconds in which whatever was on its way has arrived."""


class Ledger:
    """Every changing request, in the order in which the server reported it."""

    def __init__(self, wire: Wire) -> None:
        self.writes: list[tuple[float, str, str]] = []
        """When it was heard of (monotonic), the client's name, the subject."""
        self._audit = Audit(wire)
        self._wire = wire

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[Ledger]:
        """From now on, until the block ends."""
        subscription = await self._wire.client.subscribe(AUDIT_SUBJECT, cb=self._hear)
        await self._wire.client.flush()
        try:
            yield self
        finally:
            await subscription.unsubscribe()

    def by(self, names: set[str], since: float = 0.0) -> list[float]:
        """When clients of these names wrote."""
        return [at for at, name, _ in self.writes if name in names and at >= since]

    async def _hear(self, message: Any) -> None:
        await self._audit.hear(message)
        record = self._audit.records.pop()
        if Request(record["subject"], "", 0.0).is_write:
            self.writes.append((time.monotonic(), record["client"].get("name", ""), record["subject"]))


@dataclass
class Member:
    """A daemon, and what stands between it and the server."""

    daemon: Daemon
    proxy: Proxy

    async def leads(self) -> bool:
        """Whether it says so."""
        return bool((await self.daemon.status())["leading"])


@dataclass
class Freeze:
    """What came of one freeze."""

    within: bool
    """Whether it happened between a write's way out of the process and its arrival."""
    taken_over: float
    """Seconds until the other's first write."""
    on_the_way: int
    """Writes that arrived after that first write, of those that had left the process before it froze."""
    afterwards: int
    """Writes that left the process after it woke up."""


@dataclass
class Freezer:
    """Two daemons on a server of many owners."""

    members: tuple[Member, Member]
    work: Work
    ledger: Ledger
    dice: random.Random
    ttl: float
    freezes: list[Freeze] = field(default_factory=list)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def freeze(self) -> None:
        """Freezes the leader, lets the other take over, and wakes it up."""
        within = self.dice.random() < 0.5
        leader, other = await self._roles()
        await asyncio.sleep(self.dice.uniform(0.0, 0.5))
        while within and not await self._freeze_on_the_way(leader, other):
            leader.proxy.rule = let_pass
            leader, other = await self._roles()
        leader.daemon.send(signal.SIGSTOP)
        frozen_at = time.monotonic()

        async def taken_over() -> bool:
            return bool(self.ledger.by(other.proxy.names, frozen_at))

        await self._until(taken_over, "nobody took over")
        took_over = self.ledger.by(other.proxy.names, frozen_at)[0]
        await asyncio.sleep(max(0.0, self.ttl - (time.monotonic() - frozen_at)) + self.dice.uniform(0.0, 0.3))
        leader.proxy.rule = let_pass
        leader.proxy.mend()
        await asyncio.sleep(_QUIET)
        woken = time.monotonic()
        leader.daemon.send(signal.SIGCONT)
        await leader.daemon.until(lambda document: document["leading"] is False)
        await asyncio.sleep(_QUIET)
        stale = self.ledger.by(leader.proxy.names, took_over)
        on_the_way = sum(at < woken for at in stale)
        self.freezes.append(Freeze(within, took_over - frozen_at, on_the_way, len(stale) - on_the_way))

    async def end(self) -> None:
        """Lets the daemons come to rest, as declared."""
        await self.end_work()
        await self._until(self._in_place, "not repaired")

    async def end_work(self) -> None:
        """Nobody edits and publishes any more; raises what they found."""
        self.work.over = True
        tasks, self.tasks = self.tasks, []
        await asyncio.gather(*tasks)

    async def _until(self, holds: Callable[[], Awaitable[bool]], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not await holds():
            if time.monotonic() > deadline:
                logs = "\n\n".join(member.daemon.log()[-6000:] for member in self.members)
                msg = f"{what}; not as declared: {await self.work.differing()}\n{logs}"
                raise AssertionError(msg)
            await asyncio.sleep(0.02)

    async def _in_place(self) -> bool:
        return not await self.work.differing()

    async def _freeze_on_the_way(self, leader: Member, other: Member) -> bool:
        """Freezes it as soon as its next write has left it; alone, so that nothing else is on its way.

        False: the other has led meanwhile (on a machine that is too busy to renew a lease in time).
        """
        self.work.paused = True
        await self._until(self._in_place, "not repaired")
        await asyncio.sleep(_QUIET)
        frozen: list[Request] = []

        def rule(request: Request) -> Verdict:
            if request.is_write and not frozen:
                leader.daemon.send(signal.SIGSTOP)
                leader.proxy.stall()
                frozen.append(request)
            return Verdict.PASS

        async def written() -> bool:
            return bool(frozen or self.ledger.by(other.proxy.names, began))

        began = time.monotonic()
        leader.proxy.rule = rule
        await self.work.edit()
        await self._until(written, "nobody repairs")
        self.work.paused = False
        return bool(frozen)

    async def _roles(self) -> tuple[Member, Member]:
        first, second = self.members
        async with asyncio.timeout(PATIENCE):
            while True:
                if await first.leads():
                    return first, second
                if await second.leads():
                    return second, first
                await asyncio.sleep(0.02)


@asynccontextmanager
async def freezer(server: Server, directory: Path, owner: str, ttl: float, seed: int) -> AsyncIterator[Freezer]:
    """Two daemons that have settled, with somebody at work on what they keep."""
    dice = random.Random(seed)
    names = tuple(f"{owner}-{number}" for number in range(STREAMS))
    pairs = [[stream(name, f"{name}.>", maxMsgs=1_000_000), consumer(name, "c", f"{name}.x", ackWait="2s")] for name in names]
    manifests = write(directory / f"{owner}.yaml", (document for pair in pairs for document in pair))
    async with AsyncExitStack() as stack:
        wire = await stack.enter_async_context(await Wire.connect(server.url, name=f"work-{owner}"))
        await short_lease(wire, ttl, owner)
        members = []
        for name in ("a", "b"):
            proxy = await stack.enter_async_context(Proxy(server.port))
            # Nobody waits for a proof that servers keep back for minutes: this is about what a lease alone leaves.
            log, given = directory / f"{owner}-{name}.log", ("-f", manifests, "--audit", "on", "--fence", "0s")
            through = Command(directory, proxy.url)
            members.append(Member(await stack.enter_async_context(daemon(through, log, *given, RECONCILER_OWNER=owner)), proxy))
        await members[0].daemon.until(settled)
        ledger = await stack.enter_async_context(Ledger(wire).kept())
        work = Work(wire, names, dice)
        await work.learn()
        pair = Freezer((members[0], members[1]), work, ledger, dice, ttl)
        pair.tasks = [asyncio.create_task(work.keep_editing()), asyncio.create_task(work.keep_publishing())]
        try:
            yield pair
        finally:
            await pair.end_work()
