"""A write lease in the hands of somebody else."""

from __future__ import annotations

from reconciler.jetstream.api import JetStreamApi
from reconciler.jetstream.connection import Connection
from reconciler.jetstream.lease import Holder, KvLease
from reconciler.jetstream.settings import ConnectionSettings
from tests.support.server.process import Server

OTHER = Holder(host="elsewhere", pid=4711, source="git")


async def hold(server: Server, owner: str = "default", ttl: float = 60.0, holder: Holder = OTHER) -> tuple[Connection, KvLease]:
    """A lease that another process holds; by default longer than a test may take, for nothing may depend on its pace."""
    connection = await Connection.open(ConnectionSettings(servers=(server.url,)))
    lease = KvLease(JetStreamApi(connection), owner, holder, ttl=ttl)
    await lease.acquire()
    return connection, lease
