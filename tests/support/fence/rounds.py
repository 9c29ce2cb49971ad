"""One leader after the other: what happens to the first, how long the second waits, and what of the first lands behind it.

Invariant: what has landed is asked of the server that keeps the consumer, never of either process.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reconciler.cli.pen import pen
from reconciler.errors import NatsError
from reconciler.jetstream.domains import DomainApis
from reconciler.jetstream.leading.fence import FenceNews, FenceState
from reconciler.jetstream.leading.holder import Holder
from reconciler.jetstream.transport.connection import Connection
from reconciler.jetstream.transport.settings import ConnectionSettings
from tests.support.account.wire import Json, Wire, eventually
from tests.support.daemon.leadership import short_lease

SECONDS = 120.0
QUIET = 1.5
"""Seconds in which whatever is on its way has landed, on a server with nothing else to do."""
_AROUND = 5
_AGAIN = 0.05
SHORT_PINGS = 'ping_interval: "1s"\nping_max: 2\n'
"""Of a server that gives up a stopped client within three seconds."""


_TOLD = ("leads ", "failed ", "done ")


@dataclass
class Former:
    """The leader before, a process."""

    process: asyncio.subprocess.Process

    def send(self, number: signal.Signals) -> None:
        """A signal."""
        self.process.send_signal(number)

    async def change(self, consumer: str) -> None:
        """Has it change a consumer; `said` tells what came of it."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{consumer}\n".encode())
        await self.process.stdin.drain()

    async def said(self) -> str:
        """The next thing it tells us; what it logs in between is for people. Empty when it has ended."""
        assert self.process.stdout is not None
        async with asyncio.timeout(SECONDS):
            while line := (await self.process.stdout.readline()).decode():
                if line.startswith(_TOLD):
                    return line.strip()
        return ""

    async def until_stopped(self) -> None:
        """Returns when it stands still."""
        await eventually(lambda: _state(self.process.pid) == "T", SECONDS)


@asynccontextmanager
async def former(url: str, owner: str, stream: str, point: int = -1) -> AsyncIterator[Former]:
    """One that leads; gone when the block ends."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.support.fence.former", url, owner, stream, str(point)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[3],
    )
    one = Former(process)
    try:
        said = await one.said()
        assert said.startswith("leads "), said
        yield one
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
        await process.communicate()


@dataclass
class Behind:
    """A term that has begun behind another."""

    news: list[FenceNews] = field(default_factory=list)
    lease_after: float = 0.0
    passed_after: float = 0.0
    """Seconds since what happened to the leader before."""
    late: int = 0
    """Changes of the leader before that landed when the fence was passed."""

    @property
    def last(self) -> FenceNews:
        """How the fence was passed."""
        return next(news for news in reversed(self.news) if news.state is not FenceState.NONE)

    @property
    def proven(self) -> bool:
        """Whether it was proven that nothing can land."""
        return self.last.state is FenceState.PROVEN


async def succeed(
    url: str, owner: str, watched: Callable[[], Awaitable[Any]], then: Callable[[], Awaitable[None]], **how: Any
) -> Behind:
    """Takes the lease, waits at the fence, lets `then` happen, and compares what is `watched` before and after."""
    behind, began = Behind(), time.monotonic()
    settings = ConnectionSettings(servers=(url,), **how.pop("settings", {}))

    def heard(news: FenceNews) -> None:
        behind.news.append(news)
        if news.state is FenceState.WAITING:
            behind.lease_after = time.monotonic() - began

    async with await Connection.open(settings, f"next-{owner}") as connection:
        ours = pen(DomainApis(connection), owner, Holder(source="a test"), tell=heard, **how)
        while not ours.lease.held():
            try:
                await ours.lease.acquire(SECONDS)
            except NatsError:  # as a daemon does, while the server is busy
                await asyncio.sleep(_AGAIN)
        behind.passed_after = time.monotonic() - began
        before = await watched()
        await then()
        await asyncio.sleep(QUIET)
        behind.late = sum(one != other for one, other in zip(before, await watched(), strict=True))
        await ours.lease.release()
    return behind


@dataclass(frozen=True)
class Consumers:
    """What leaders change: consumers of one stream."""

    wire: Wire
    stream: str
    names: tuple[str, ...]

    async def made(self, replicas: int = 1, filters: int = 1) -> None:
        """Makes them."""
        config = {"name": self.stream, "subjects": [f"{self.stream}.>"], "num_replicas": replicas}
        await self.wire.expect(f"STREAM.CREATE.{self.stream}", config)
        subjects = [f"{self.stream}.{number}" for number in range(filters)]
        for name in self.names:
            one = {"durable_name": name, "ack_policy": "explicit", "filter_subjects": subjects}
            request = {"stream_name": self.stream, "action": "create", "config": one}
            await self.wire.expect(f"CONSUMER.CREATE.{self.stream}.{name}", request)

    async def seen(self) -> list[int]:
        """How often each was changed, one after the other."""
        return [(await self.wire.consumer_info(self.stream, name))["config"]["max_deliver"] for name in self.names]

    async def queue(self, name: str, count: int) -> None:
        """Somebody else has so many changes of one consumer waiting at the server when this returns."""
        config: Json = (await self.wire.consumer_info(self.stream, name))["config"]
        bodies = [
            json.dumps({"stream_name": self.stream, "action": "update", "config": {**config, "max_deliver": number}}).encode()
            for number in (100, 101)
        ]
        for number in range(count):
            await self.wire.client.publish(
                self.wire.subject(f"CONSUMER.CREATE.{self.stream}.{name}"), bodies[number % 2], reply="_"
            )
        await self.wire.client.flush(timeout=int(SECONDS))


async def stopped_between_look_and_send(url: str, wire: Wire, owner: str, point: int, ttl: float, **how: Any) -> Behind:
    """The leader stands still with that line of its change, and goes on when the fence is passed."""
    consumers = Consumers(wire, f"S-{owner}", ("w",))
    await consumers.made(replicas=how.pop("replicas", 1))
    await short_lease(wire, ttl, owner)
    async with former(how.pop("near", url), owner, consumers.stream, point) as before:
        await before.change("w")
        await before.until_stopped()

        async def goes_on() -> None:
            before.send(signal.SIGCONT)

        return await succeed(url, owner, consumers.seen, goes_on, **how)


async def way_out(url: str, wire: Wire, owner: str) -> range:
    """The lines of code of a change from the look's answer to the kernel: the leader may stand still with each."""
    consumers = Consumers(wire, f"S-{owner}", ("w",))
    await consumers.made()
    async with former(url, owner, consumers.stream, 0) as one:
        await one.change("w")
        done, looked, sent = (await one.said()).split()
        assert done == "done"
        return range(int(looked) - _AROUND, int(sent) + _AROUND + 1)


def _state(pid: int) -> str:
    """Of a process, as the kernel has it: T is stopped."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
