"""What a process writes with: the lease, the fence before each of its terms, and the connection that its changes go over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass

from reconciler.cli.daemon_client import DaemonClient, DaemonFlags, Json
from reconciler.cli.saying.terminal import Terminal
from reconciler.errors import LeaseHeld, NatsError, Unreachable
from reconciler.jetstream.domains import DomainApis
from reconciler.jetstream.leading.fence import PATIENCE, Fence, FenceNews, FenceState
from reconciler.jetstream.leading.holder import Holder
from reconciler.jetstream.leading.lease import KvLease, bucket_name
from reconciler.jetstream.leading.term import Term
from reconciler.jetstream.leading.traces import traces_of
from reconciler.jetstream.writer import JetStreamWriter
from reconciler.model.desired import Desired
from reconciler.model.identity import Key
from reconciler.model.sourcing import durables_read

Ask = Callable[[DaemonClient, str], Json]
"""Asks a daemon, which has to be the holder of the lease that is given."""
_WITHOUT_A_WORD = 1.0
"""Seconds."""


@dataclass(frozen=True, slots=True)
class Pen:
    """The right to write, and what writes."""

    lease: KvLease
    writer: JetStreamWriter


def pen(  # noqa: PLR0913 - all that tells one process from another
    apis: DomainApis,
    owner: str,
    holder: Holder,
    *,
    patience: float = PATIENCE,
    streams: Callable[[], Collection[Key]] = tuple,
    tell: Callable[[FenceNews], None] = lambda _: None,
) -> Pen:
    """For one process; `streams` are those that it writes, or whose consumers it does; `tell` hears of each fence."""
    term = Term(apis.connection)
    fence = Fence(term, apis, patience=patience, domains=lambda: {stream.domain for stream in streams()}, tell=tell)
    bucket = Key("KeyValue", bucket_name(owner)).stream_name
    lease = KvLease(apis(""), owner, holder, fence=fence, traces=traces_of(owner, apis, streams, beside=bucket))
    return Pen(lease, JetStreamWriter(apis, apis.through(term)))


@asynccontextmanager
async def taken(terminal: Terminal, lease: KvLease) -> AsyncIterator[KvLease]:
    """The lease for the time of a block; a person who has to wait for it is told for whom."""
    telling = asyncio.create_task(_tell_wait(terminal, lease))
    try:
        async with lease.take():
            telling.cancel()
            yield lease
    finally:
        telling.cancel()


async def through_daemon(terminal: Terminal, lease: KvLease, flags: DaemonFlags, doing: str, ask: Ask) -> Json | None:
    """The answer, when the process that holds the lease is a daemon which can be asked; None when there is none."""
    state = await lease.show()
    if state is None:
        return None
    try:
        with terminal.working(f"asking the daemon that holds the lease to {doing}"):
            return await asyncio.to_thread(ask, flags.client(), state.holder.holder)
    except Unreachable:
        if flags.daemon is not None:  # one was named, so it is asked or nobody
            raise
        return None


@contextmanager
def telling_of_daemon(what: str) -> Iterator[None]:
    """Whoever finds the lease held learns that `what` was not done, and how it can be."""
    try:
        yield
    except LeaseHeld as held:
        way_out = f"{what}: give the URL of that daemon with --daemon, or stop that process first"
        raise LeaseHeld((*held.reasons, way_out)) from None


async def _tell_wait(terminal: Terminal, lease: KvLease) -> None:
    await asyncio.sleep(_WITHOUT_A_WORD)
    with suppress(NatsError):
        state = await lease.show()
        if state is not None and state.holder.holder == lease.holder_id:
            return  # it is ours: what it waits for is told by the fence
        who = f"held by {state.holder}" if state else "last held by somebody who has not given it back: until nobody can hold it"
        terminal.say(f"waiting for the write lease of {lease.owner}, {who}")


def streams_of(desired: Desired) -> Collection[Key]:
    """The streams of all that is declared, or kept for what is."""
    return {key.stream_key for key in (*desired.resources, *durables_read(desired))}


def tell_fence(terminal: Terminal, news: FenceNews) -> None:
    """To a person at a command."""
    match news.state:
        case FenceState.WAITING:
            terminal.say(f"waiting {news.why}")
        case FenceState.UNPROVEN:
            terminal.warn(f"a change may still land late: {news.why}")
