"""A hub and leaf nodes, each with a JetStream domain of its own, joined by links that can be cut.

Invariant: a leaf knows its hub by the link alone, so that a link that is cut leaves no other way.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tests.support.account.wire import Wire
from tests.support.cluster.servers import free_ports
from tests.support.server.binaries import NEWEST
from tests.support.server.process import Server

HUB = "hub"
_CHUNK = 1 << 16


@dataclass
class Link:
    """`async with Link(port) as link:`: a network to that port, bytes as they come."""

    upstream: int
    port: int = 0
    _listener: asyncio.Server | None = None
    _pumps: set[asyncio.Task[None]] = field(default_factory=set)
    _cut: bool = False

    def cut(self) -> None:
        """Every connection ends, and no new one comes about."""
        self._cut = True
        for pump in self._pumps:
            pump.cancel()

    def mend(self) -> None:
        """New connections come about again."""
        self._cut = False

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._listener is not None
        self._listener.close()
        self.cut()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    async def _serve(self, near: asyncio.StreamReader, to_near: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        to_far: asyncio.StreamWriter | None = None
        self._pumps.add(task)
        try:
            if not self._cut:
                far, to_far = await asyncio.open_connection("127.0.0.1", self.upstream)
                async with asyncio.TaskGroup() as ways:
                    ways.create_task(_pump(near, to_far))
                    ways.create_task(_pump(far, to_near))
        except (asyncio.CancelledError, OSError, ExceptionGroup):
            return  # cut, or one of the two servers is gone: both connections end with this
        finally:
            self._pumps.discard(task)
            to_near.close()
            if to_far is not None:
                to_far.close()


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(_CHUNK):
        sink.write(data)
        await sink.drain()
    msg = "the other side ended the connection"
    raise ConnectionError(msg)


@dataclass(frozen=True)
class Leaf:
    """A leaf node; its domain is its name."""

    server: Server
    link: Link
    wire: Wire
    """To the leaf itself, so it works while the link is cut."""


@dataclass(frozen=True)
class Hub:
    """The middle, and its leaves by name."""

    server: Server
    wire: Wire
    leaves: dict[str, Leaf]


@asynccontextmanager
async def hub_and_leaves(store: Path, *names: str, version: str = NEWEST) -> AsyncIterator[Hub]:
    """All of them running, and each leaf's domain answering at the hub."""
    async with AsyncExitStack() as stack:
        (port,) = free_ports(1)
        config = f'leafnodes {{ listen: "127.0.0.1:{port}", no_advertise: true }}'
        middle = Server(store / HUB, version=version, jetstream=f"domain: {HUB}", config=config)
        stack.enter_context(middle)
        hub = Hub(middle, await stack.enter_async_context(await Wire.connect(middle.url)), {})
        for name in names:
            link = await stack.enter_async_context(Link(port))
            url = f'url: "nats-leaf://127.0.0.1:{link.port}", ignore_discovered_servers: true'  # 2.14 advertises all the same
            remote = f'leafnodes {{ remotes: [{{ {url} }}], reconnect: "1s" }}'
            server = Server(store / name, version=version, jetstream=f"domain: {name}", config=remote)
            stack.enter_context(server)
            own = await stack.enter_async_context(await Wire.connect(server.url, domain=name))
            hub.leaves[name] = Leaf(server, link, own)
            await _answering(Wire(hub.wire.client, name))
        yield hub


async def _answering(wire: Wire) -> None:
    async with asyncio.timeout(20):
        while True:
            try:
                await wire.client.request(wire.subject("INFO"), b"", timeout=0.5)
            except Exception:  # noqa: BLE001 - nobody there yet, in one way or another
                await asyncio.sleep(0.05)
            else:
                return
