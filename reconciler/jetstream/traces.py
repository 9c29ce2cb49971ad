"""Whether processes of an owner have ever written: what tells a lease's bucket that was deleted from one that never was.

Invariant: what cannot be looked at may be such a trace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from itertools import chain

import structlog

from reconciler.errors import NatsError
from reconciler.jetstream.domains import DomainApis
from reconciler.jetstream.snapshot import snapshot
from reconciler.model.wanted import Wanted

Traces = Callable[[], Awaitable[bool]]
"""Whether anything shows that the owner of a lease has led before."""
_PATIENCE = 10.0
"""Seconds for a look at everything: whoever may have led needs no longer to stop."""
log = structlog.get_logger(__name__)


def traces_of(owner: str, apis: DomainApis, domains: Callable[[], Collection[str]], *, beside: str) -> Traces:
    """Marks of the owner on any stream or consumer of these domains and of the home domain; the stream `beside` is none."""

    async def found() -> bool:
        wanted = Wanted(domains=frozenset({"", *domains()}), owner=owner, everything=True)
        try:
            async with asyncio.timeout(_PATIENCE):
                live = await snapshot(apis, wanted, lambda: 0)
        except (NatsError, TimeoutError) as error:
            log.debug("lease.traces_not_seen", owner=owner, error=str(error))
            return True
        seen = chain(live.streams.values(), *(consumers.values() for consumers in live.consumers.values()))
        return any(one.owner == owner for one in seen) or any(key.name != beside for key in live.unknown)

    return found
