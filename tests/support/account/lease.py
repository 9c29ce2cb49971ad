"""A write lease in the hands of somebody else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from reconciler.jetstream.api import JetStreamApi
from reconciler.jetstream.domains import DomainApis
from reconciler.jetstream.leading.fence import Fence
from reconciler.jetstream.leading.holder import Holder
from reconciler.jetstream.leading.lease import KvLease
from reconciler.jetstream.leading.term import Term
from reconciler.jetstream.transport.connection import Connection
from reconciler.jetstream.transport.settings import ConnectionSettings
from tests.support.server.process import Server

OTHER = Holder(host="elsewhere", pid=4711, source="git")


async def hold(server: Server, owner: str = "default", ttl: float = 60.0, holder: Holder = OTHER) -> tuple[Connection, KvLease]:
    """A lease that another process holds; by default longer than a test may take, for nothing may depend on its pace."""
    connection = await Connection.open(ConnectionSettings(servers=(server.url,)))
    lease = KvLease(JetStreamApi(connection), owner, holder, ttl=ttl)
    await lease.acquire()
    return connection, lease


async def hold_fenced(server: Server, ttl: float) -> Callable[[], Awaitable[None]]:
    """The same with a connection for changes that its successor can ask after; returns what ends both connections."""
    connection = await Connection.open(ConnectionSettings(servers=(server.url,)))
    fence = Fence(Term(connection), DomainApis(connection))
    lease = KvLease(JetStreamApi(connection), "default", OTHER, ttl=ttl, fence=fence)

    async def gone() -> None:
        fence.cut()
        await connection.close()

    await lease.acquire()
    return gone
