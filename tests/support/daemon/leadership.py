"""A leader and its followers, as a test has them: processes of one owner, and somebody who edits what they keep.

Invariant: whether something was repaired is asked of the server, not of them.
"""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.account.wire import TIMEOUT_SECONDS, Wire
from tests.support.clock.until import until
from tests.support.daemon.command import Command
from tests.support.daemon.process import Daemon, daemon, settled
from tests.support.server.process import Server
from tests.support.server.proxy import Proxy
from tests.support.values.catalogues import Json, consumer, stream, write

PATIENCE = 60.0
DECLARED = 1000
"""The limit of the streams, in messages."""


async def short_lease(wire: Wire, seconds: float, owner: str = "default") -> None:
    """Make the bucket of the lease with a short TTL."""
    name = f"KV_reconciler-{owner}"
    config = {"subjects": [f"$KV.reconciler-{owner}.>"], "max_msgs_per_subject": 1, "max_age": int(seconds * 1e9)}
    await wire.expect(f"STREAM.CREATE.{name}", {"name": name, "discard": "new", "allow_rollup_hdrs": True, **config})


async def release_for_the_dead(wire: Wire, owner: str = "default") -> None:
    """Say of a holder that was killed, and has nothing on its way, what it would have said at its end: nobody waits for it."""
    bucket = f"reconciler-{owner}"
    found = await wire.call(f"STREAM.MSG.GET.KV_{bucket}", {"last_by_subj": f"$KV.{bucket}.writer"})
    if "message" not in found:
        return
    holder = json.loads(base64.b64decode(found["message"]["data"])) | {"links": []}
    headers = {"KV-Operation": "DEL", "Nats-Expected-Last-Subject-Sequence": str(found["message"]["seq"])}
    answer = await wire.client.request(f"$KV.{bucket}.writer", json.dumps(holder).encode(), TIMEOUT_SECONDS, headers=headers)
    assert "error" not in json.loads(answer.data), answer.data


def shop(path: Path, *names: str, limit: int = DECLARED) -> Path:
    """Streams to declare, each with a consumer."""
    documents = [[stream(name, f"{name}.>", maxMsgs=limit), consumer(name, "c", f"{name}.x")] for name in names]
    return write(path, (document for pair in documents for document in pair))


async def edit(wire: Wire, name: str, limit: int = 7777) -> None:
    """Somebody else changes a stream's limit."""
    config = (await wire.stream_info(name))["config"]
    await wire.expect(f"STREAM.UPDATE.{name}", {**config, "max_msgs": limit})


async def limit_is(wire: Wire, name: str, limit: int, seconds: float = PATIENCE) -> None:
    """Waits until it is."""

    async def is_so() -> bool:
        return bool((await wire.stream_info(name))["config"]["max_msgs"] == limit)

    await until(is_so, seconds)


async def repaired(wire: Wire, name: str, seconds: float) -> float:
    """Waits until its limit is what is declared; returns when that was seen (monotonic)."""
    await limit_is(wire, name, DECLARED, seconds)
    return time.monotonic()


def names(who: Daemon) -> Callable[[Json], bool]:
    """Whether the status says that this daemon leads."""
    return lambda document: str(document["leader"]).startswith(f"{socket.gethostname()} (pid {who.pid},")


@dataclass(frozen=True)
class Place:
    """A server with room for daemons of one owner; the streams' names are the owner's."""

    server: Server
    wire: Wire
    directory: Path
    owner: str = "default"

    @property
    def manifests(self) -> Path:
        """What is declared."""
        return shop(self.directory / f"{self.owner}.yaml", self.stream, f"{self.stream}-beside")

    @property
    def stream(self) -> str:
        """A stream of it."""
        return f"S-{self.owner}"

    def command(self, url: str = "") -> Command:
        """The command, through a proxy if the URL is its."""
        return Command(self.directory, url or self.server.url)

    @asynccontextmanager
    async def daemon(self, name: str, *arguments: str | Path, url: str = "", ready: bool = True) -> AsyncIterator[Daemon]:
        """A daemon, ready if that is to be waited for."""
        given = ("-f", self.manifests, "--audit", "on", *arguments)
        log = self.directory / f"{self.owner}-{name}.log"
        async with daemon(self.command(url), log, *given, ready=ready, RECONCILER_OWNER=self.owner) as running:
            yield running


@dataclass
class Count:
    """How many said that they led, each time they were asked."""

    daemons: tuple[Daemon, ...]
    sums: list[float] = field(default_factory=list)

    async def watch(self) -> None:
        """Asks again and again."""
        while True:
            said = await asyncio.gather(*(one.metric("reconciler_leader") for one in self.daemons))
            self.sums.append(sum(said))
            await asyncio.sleep(0.05)


@asynccontextmanager
async def counting(*daemons: Daemon) -> AsyncIterator[list[float]]:
    """Asks them all the time how many of them lead."""
    count = Count(daemons)
    task = asyncio.create_task(count.watch())
    try:
        yield count.sums
    finally:
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@dataclass
class Two:
    """A leader, which reaches the server through a proxy, and its follower."""

    leader: Daemon
    follower: Daemon
    proxy: Proxy


@asynccontextmanager
async def two(place: Place) -> AsyncIterator[Two]:
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(Proxy(place.server.port))
        leader = await stack.enter_async_context(place.daemon("leader", url=proxy.url))
        await leader.until(settled)
        follower = await stack.enter_async_context(place.daemon("follower"))
        await follower.until(names(leader))
        yield Two(leader, follower, proxy)
