"""Who writes: takes the lease as soon as it is free, and tells when it is gone.

Invariant: a failure of the server or of the lease never ends it; without the lease this process is a follower, which looks,
plans and shows, and writes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NoReturn, Protocol

import structlog

from reconciler.engine.ports import Clock, Lease
from reconciler.errors import LeaseLost, NatsError, Refused

_PAUSE = 1.0
"""Seconds between attempts while the server does not answer."""
_GLANCE = 0.1
"""Seconds between two looks whether it may stand at all."""
_LOOK = 1.0
"""Seconds between two looks at who leads."""

log = structlog.get_logger(__name__)


class _Listener(Protocol):
    """Told when this process begins to lead, and when it no longer does."""

    def __call__(self, *, leading: bool, reason: str) -> None:
        """This is so from now on."""
        ...


class _Watcher(Protocol):
    """Told who holds the lease."""

    def __call__(self, holder: str, *, unknown: str = "") -> None:
        """This holder, as far as it is known."""
        ...


class Candidate(Lease, Protocol):
    """The lease, for whoever wants to hold it for good. Implemented by `jetstream.leading.lease.KvLease`."""

    @property
    def holder(self) -> object:
        """This process, as it says who it is to the others."""
        ...

    @property
    def holder_id(self) -> str:
        """This process, as nobody else is called."""
        ...

    async def acquire(self, wait: float | None = None) -> None:
        """Takes the lease, waiting at most that many seconds for another holder."""
        ...

    async def until_lost(self) -> str:
        """Returns when the lease is no longer ours, with the reason."""
        ...

    async def release(self) -> None:
        """Gives it back."""
        ...

    async def holder_text(self) -> str:
        """Who holds it, as text; empty when nobody does."""
        ...


async def stand(lease: Candidate, clock: Clock, tell: _Listener, permitted: Callable[[], bool] = lambda: True) -> NoReturn:
    """Leads whenever possible, for ever; whoever listens is told of each change, with the reason.

    Not before it is `permitted`: even the lease is written somewhere.
    """
    said = ""
    while True:
        while not permitted():
            await clock.sleep(_GLANCE)
        try:
            await lease.acquire(math.inf)
        except (NatsError, LeaseLost, Refused) as error:
            if str(error) != said:
                log.warning("lease.not_available", error=str(error))
                said = str(error)
                tell(leading=False, reason=said)
            await clock.sleep(_PAUSE)
            continue
        said = ""
        tell(leading=True, reason="took the lease")
        tell(leading=False, reason=await lease.until_lost())


async def watch(lease: Candidate, clock: Clock, held_by: _Watcher) -> NoReturn:
    """Tells again and again, for ever, who holds the lease; an empty text: nobody, unless it says why that is unknown."""
    while True:
        try:
            held_by(await lease.holder_text())
        except NatsError as error:
            log.debug("lease.not_seen", error=str(error))
            held_by("", unknown=str(error))
        await clock.sleep(_LOOK)
