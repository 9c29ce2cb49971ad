"""Whether processes of an owner have ever written: what tells a lease's bucket that was deleted from one that never was.

Looked at is what its grants let it look at: every stream, where anything is declared, and the consumers of declared streams.
Invariant: what cannot be looked at of that may be such a trace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from enum import StrEnum
from itertools import chain

import structlog

from reconciler.errors import NatsError
from reconciler.jetstream.domains import DomainApis
from reconciler.jetstream.read.snapshot import snapshot
from reconciler.model.identity import Key
from reconciler.model.seen.wanted import Wanted


class Trace(StrEnum):
    """What shows that the owner of a lease has led before."""

    NONE = ""
    MARK = "mark"
    HIDDEN = "hidden"
    """There may be one where nothing can be seen."""


Traces = Callable[[], Awaitable[Trace]]
_PATIENCE = 10.0
"""Seconds for a look at everything: whoever may have led needs no longer to stop."""
log = structlog.get_logger(__name__)


def traces_of(owner: str, apis: DomainApis, streams: Callable[[], Collection[Key]], *, beside: str) -> Traces:
    """Marks of the owner on any stream in the domains of these, and on any consumer of these; the stream `beside` is none."""

    async def found() -> Trace:
        declared = frozenset(streams())
        wanted = Wanted(domains=frozenset(key.domain for key in declared) or frozenset({""}), streams=declared)
        try:
            async with asyncio.timeout(_PATIENCE):
                live = await snapshot(apis, wanted, lambda: 0)
        except (NatsError, TimeoutError) as error:
            log.debug("lease.traces_not_seen", owner=owner, error=str(error))
            return Trace.HIDDEN
        seen = chain(live.streams.values(), *(consumers.values() for consumers in live.consumers.values()))
        if any(one.owner == owner for one in seen):
            return Trace.MARK
        return Trace.HIDDEN if any(key.name != beside for key in live.unknown) else Trace.NONE

    return found
