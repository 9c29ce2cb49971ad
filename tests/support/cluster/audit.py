"""The API audit of a cluster: requests are answered, counted and reported by whichever server is in charge.

Invariant: the servers' own monitoring says how many reports there must be, so none is missed and nobody waits in vain.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from tests.support.account.wire import Audit, Wire
from tests.support.cluster.servers import Cluster


class _ClusterAudit(Audit):
    def __init__(self, wire: Wire, cluster: Cluster) -> None:
        super().__init__(wire)
        self._cluster = cluster

    async def settle(self) -> None:
        await self.complete(await self._count() - self._counted)

    async def _count(self) -> int:
        return sum(int(server.monitor("jsz")["api"]["total"]) for server in self._cluster.servers)


def cluster_audit(wire: Wire, cluster: Cluster) -> AbstractAsyncContextManager[Audit]:
    """Like `Wire.audit`, for a cluster whose servers all run; nobody else may ask anything meanwhile."""
    return _ClusterAudit(wire, cluster).listening()
