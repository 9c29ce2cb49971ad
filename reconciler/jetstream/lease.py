"""The write lease: at most one process per owner changes JetStream at a time.

A key in a bucket whose values vanish TTL seconds after their last write (a TTL per key would be lost at the first renewal, and
a crashed holder would keep the lease for ever). Acquire = create, renew = update(revision), release = delete(revision): every
one fenced, so nobody ever ends the lease of a successor.

Invariant: the holder stops by its own clock, counted from BEFORE the request that renewed the lease was sent, and a margin
before the server forgets it. Hence a successor never overlaps with a holder that still believes, not even one that was frozen.
What no lease can stop is the one request already on its way when a process freezes: behind the lease stands the fence
(`jetstream.fence`), and who has one holds the lease only when it is passed. Of a holder that is cut off nothing is left on its
way: when its time is over, it takes its connections with it.
"""

from __future__ import annotations

import asyncio
import os
import socket
import uuid
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Self

import orjson
import structlog

from reconciler.errors import ApiError, LeaseHeld, LeaseLost, NatsError, Refused
from reconciler.jetstream.api import JetStreamApi
from reconciler.jetstream.clock import Clock, SystemClock
from reconciler.jetstream.fence import Fence, parse_links, recorded
from reconciler.jetstream.kv import Entry, KeyValueBucket
from reconciler.jetstream.term import LinkName
from reconciler.model.units import SECOND

TTL = 10.0
_KEY = "writer"
_MARGIN = 0.2
"""Of the TTL: how much earlier than the server a holder considers its lease over."""
_RENEWALS = 3
"""Renewals per TTL."""
_REQUESTS = 5
"""Requests that can time out one after the other within a TTL."""
_LOOK = 40
"""Looks per TTL while waiting for another holder to go."""
_PATIENCE = 1.2
"""TTLs to wait for another holder by default: one, and the moment the server needs to forget a crashed one."""
_SETTLE = 20
"""Part of the TTL to wait after a holder vanished without a release, for the request it may have had on its way."""
_NOTICE = 0.5
"""Of the TTL: how long a successor waits after somebody else ended the lease, so that a holder that lives after all notices."""
_EVICTED = b"evicted"
_UNSURE = b"unsure"
"""What a holder says that does not know what became of a change of its."""
_NAME_IN_USE = 10058
_RELEASE_ATTEMPTS = 2

log = structlog.get_logger(__name__)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who holds the lease, as written in it."""

    holder: str = field(default_factory=lambda: uuid.uuid4().hex)
    host: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)
    source: str = ""
    """Where its manifests come from."""
    revision: str = ""
    """The revision of those manifests."""
    at: str = field(default_factory=_now)
    """Since when, by its own clock."""
    links: tuple[LinkName, ...] = ()
    """Over which connections its changes may be on their way."""

    def encode(self) -> bytes:
        """The value of the key."""
        return orjson.dumps(self)

    @classmethod
    def decode(cls, value: bytes) -> Self:
        """The holder in a value; fields of later versions are ignored, and a foreign value is somebody unknown."""
        try:
            document = orjson.loads(value)
        except orjson.JSONDecodeError:
            document = None
        if not isinstance(document, dict):
            return cls(holder="", host="somebody unknown", pid=0, at="an unknown time")
        links = parse_links(document.get("links") or []) or ()
        return cls(**{name: document[name] for name in cls.__slots__ if name in document} | {"links": links})

    def __str__(self) -> str:
        source = f", manifests {self.source}" if self.source else ""
        return f"{self.host} (pid {self.pid}{source}) since {self.at}"


@dataclass(frozen=True, slots=True)
class LeaseState:
    """What `lease show` prints."""

    holder: Holder
    lease_revision: int
    renewed: str
    """When the server stored the last renewal, RFC 3339."""


def bucket_name(owner: str) -> str:
    """The bucket of an owner; what a bucket name cannot hold is escaped, so that distinct owners never share one."""
    safe = "".join(
        chr(byte) if byte < 128 and (chr(byte).isalnum() or byte == ord("-")) else f"_{byte:02X}"  # noqa: PLR2004 - ASCII
        for byte in owner.encode()
    )
    return f"reconciler-{safe}"


class KvLease:
    """The write lease of one owner, for one process."""

    def __init__(  # noqa: PLR0913 - and all that tests need
        self,
        api: JetStreamApi,
        owner: str,
        holder: Holder | None = None,
        *,
        ttl: float = TTL,
        clock: Clock | None = None,
        fence: Fence | None = None,
    ) -> None:
        self.owner = owner
        self.holder = holder or Holder()
        self.ttl = ttl
        self._bucket = KeyValueBucket(api, bucket_name(owner), timeout=ttl / _REQUESTS)
        self._connection = api.connection
        self._clock: Clock = clock or SystemClock()
        self._fence = fence
        self._revision = 0
        self._recorded: tuple[LinkName, ...] | None = None
        """The links of the last term, as they were written down beside the entry when the bucket was looked at."""
        self._deadline = float("-inf")
        self._renewer: asyncio.Task[str] | None = None

    @property
    def holder_id(self) -> str:
        """This process, as nobody else is called."""
        return self.holder.holder

    def held(self) -> bool:
        """Whether this process may write now."""
        return self._clock.monotonic() < self._deadline

    def check(self) -> None:
        """To be called right before every write; raises LeaseLost."""
        if not self.held():
            msg = f"the write lease of {self.owner} is not (or no longer) ours"
            raise LeaseLost(msg)

    async def acquire(self, wait: float | None = None) -> None:
        """Takes the lease, waiting at most `wait` seconds (default: one TTL) for another holder; raises LeaseHeld.

        A released lease is taken at once; one whose holder vanished is taken when the server has forgotten it.
        """
        await self._prepare_bucket()
        await self._stop_renewing()
        give_up = self._clock.monotonic() + (self.ttl * _PATIENCE if wait is None else wait)
        other: Entry | None = None
        while True:
            started = self._clock.monotonic()
            entry = await self._bucket.get(_KEY)
            if entry is None or self._takeable(entry):
                before = self._before(entry, other)
                if await self._enter(entry, before, started):
                    break
            elif started >= give_up:
                raise LeaseHeld((self._held_by(entry),))
            else:
                other = entry
            await self._clock.sleep(self.ttl / _LOOK)
        self._renewer = asyncio.get_running_loop().create_task(self._keep(), name=f"lease-{self.owner}")
        if other is not None and entry is None:
            log.warning("lease.taken_over", owner=self.owner, previous=str(Holder.decode(other.value)))
            await self._clock.sleep(self.ttl / _SETTLE)
        elif entry is not None and entry.value == _EVICTED:
            await self._clock.sleep(self.ttl * _NOTICE)
        if self._fence is not None:
            await self._pass(self._fence, before)

    async def settled(self) -> bool:
        """Whether it is proven that nothing can land any more of what got no answer in this term."""
        return self._fence is not None and self.held() and await self._fence.settled(self._bucket)

    async def until_lost(self) -> str:
        """Returns when the lease is no longer ours, with the reason."""
        if self._renewer is None:
            return "not held"
        return await asyncio.shield(self._renewer)

    async def holder_text(self) -> str:
        """Who holds it, as text; empty when nobody does."""
        state = await self.show()
        return str(state.holder) if state else ""

    async def release(self) -> None:
        """Gives the lease back, so that the next one need not wait; never touches a successor's."""
        await self._stop_renewing()
        note = b""
        if self._fence is not None:
            await self._fence.end()
            note = _UNSURE if self._fence.term.silent else b""
        revision, self._deadline = self._revision, float("-inf")
        if not revision:
            return
        self._revision = 0
        try:
            for _ in range(_RELEASE_ATTEMPTS):
                if await self._bucket.delete(_KEY, revision, note):
                    return
                entry = await self._bucket.get(_KEY)  # a renewal may have been stored without our seeing its answer
                if entry is None or not self._is_ours(entry):
                    return
                revision = entry.revision
        except NatsError as error:
            log.warning("lease.release_failed", owner=self.owner, error=str(error), free_in_seconds=self.ttl)

    @asynccontextmanager
    async def take(self, wait: float | None = None) -> AsyncIterator[Self]:
        """Holds the lease for the time of a block."""
        try:
            await self.acquire(wait)
            yield self
        finally:
            await self.release()

    async def show(self) -> LeaseState | None:
        """Who holds the lease now, whoever it is."""
        try:
            entry = await self._bucket.get(_KEY)
        except ApiError as error:
            if error.absent:  # nobody has ever held it
                return None
            raise
        if entry is None or entry.deleted:
            return None
        return LeaseState(Holder.decode(entry.value), entry.revision, entry.time)

    async def evict(self, state: LeaseState) -> bool:
        """Ends the lease that `show` returned, for a person who knows its holder is gone; False when it has moved on.

        One that lives after all notices at its next renewal; a successor waits for that.
        """
        return await self._bucket.delete(_KEY, state.lease_revision, _EVICTED)

    async def _prepare_bucket(self) -> None:
        config = await self._bucket.config()
        if config is None:
            config = await self._made_bucket()
        if not config.get("max_age"):
            reason = f"lease bucket {self._bucket.bucket} has no TTL: a crashed holder would keep it for ever; set max age 10s"
            raise Refused((reason,))
        self.ttl = config["max_age"] / SECOND
        self._recorded = recorded(config)

    async def _made_bucket(self) -> dict[str, Any]:
        try:
            return await self._bucket.create_bucket(self.ttl, f"write lease of reconciler, owner {self.owner}")
        except ApiError as error:
            config = await self._bucket.config() if error.err_code == _NAME_IN_USE else None
            if config is None:
                raise
            return config  # somebody else has made it in the meantime, and noted something in it

    def _before(self, entry: Entry | None, other: Entry | None) -> tuple[LinkName, ...] | None:
        """The links over which the term before may have something on its way; None: nobody knows them.

        As its last entry says, or as they were written down; none if it said so itself, or if there was none.
        """
        if entry is not None and entry.deleted and not entry.value:
            return ()
        last = other if entry is None or entry.deleted else entry
        if last is not None:
            return Holder.decode(last.value).links or None
        return () if self._bucket.unused else self._recorded

    async def _enter(self, entry: Entry | None, before: tuple[LinkName, ...] | None, started: float) -> bool:
        """Takes the lease, if this is still its entry; behind a fence, what it waits for stays named for whoever comes next."""
        self.holder = replace(self.holder, at=_now(), links=())
        if self._fence is not None:
            own = await self._fence.open(self._bucket, self._announce, self.held)
            if before is not None:
                self.holder = replace(self.holder, links=(own, *before))
        if await self._write(entry.revision if entry else 0, started):
            return True
        if self._fence is not None:
            await self._fence.end()
        return False

    async def _pass(self, fence: Fence, before: Collection[LinkName] | None) -> None:
        """Returns when the fence is passed; raises LeaseLost when the lease is lost first."""
        passing = asyncio.create_task(fence.behind(self._bucket, before))
        renewer = self._renewer
        try:
            await asyncio.wait({passing, *([renewer] if renewer else [])}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not passing.done():
                passing.cancel()
                await asyncio.gather(passing, return_exceptions=True)
        if passing.cancelled():
            msg = f"the write lease of {self.owner} was lost before it was known that nothing of the leader before can land"
            raise LeaseLost(msg)
        passing.result()
        self.holder = replace(self.holder, links=fence.term.names)  # the next renewal writes it
        fence.term.admit()

    async def _announce(self, links: tuple[LinkName, ...]) -> None:
        """Rewrites our entry, and what outlasts it; raises LeaseLost."""
        self.check()
        self.holder = replace(self.holder, links=links)
        started = self._clock.monotonic()
        if not (await self._write(self._revision, started) or await self._renew_over_own(started)):
            msg = f"the write lease of {self.owner} was taken by another process"
            raise LeaseLost(msg)

    async def _write(self, revision: int, started: float) -> bool:
        """Writes our name over that revision; `started` is from before the request, so the lease is never overestimated."""
        written = await self._bucket.update(_KEY, self.holder.encode(), revision)
        if written is None:
            return False
        self._revision = written
        self._deadline = started + self.ttl * (1 - _MARGIN)
        return True

    async def _keep(self) -> str:
        """Renews until the lease is lost, and says why it was; a request that fails is repeated as long as the lease lasts."""
        pause, said = self.ttl / _RENEWALS, ""
        while True:
            await self._clock.sleep(min(pause, self._left()))
            started = self._clock.monotonic()
            if not self.held():
                self._connection.cut()
                return self._lost("not renewed in time")
            try:
                async with asyncio.timeout(self._left()):
                    renewed = await self._write(self._revision, started) or await self._renew_over_own(started)
            except TimeoutError:
                continue
            except NatsError as error:
                if str(error) != said:
                    log.warning("lease.renewal_failed", owner=self.owner, error=str(error))
                pause, said = self.ttl / _LOOK, str(error)
                continue
            if not renewed:
                self._deadline = float("-inf")
                return self._lost("taken by another process")
            pause, said = self.ttl / _RENEWALS, ""

    def _left(self) -> float:
        """Seconds for which it is still ours."""
        return max(0.0, self._deadline - self._clock.monotonic())

    def _lost(self, reason: str) -> str:
        if self._fence is not None:
            self._fence.cut()
        log.error("lease.lost", owner=self.owner, reason=reason)
        return reason

    async def _renew_over_own(self, started: float) -> bool:
        """After a conflict: if the newest entry is a renewal of ours whose answer was lost, renews that one."""
        entry = await self._bucket.get(_KEY)
        if entry is None or not self._is_ours(entry):
            return False
        return await self._write(entry.revision, started)

    async def _stop_renewing(self) -> None:
        if self._renewer is not None:
            self._renewer.cancel()
            await asyncio.gather(self._renewer, return_exceptions=True)
            self._renewer = None

    def _is_ours(self, entry: Entry) -> bool:
        return not entry.deleted and Holder.decode(entry.value).holder == self.holder.holder

    def _takeable(self, entry: Entry) -> bool:
        """Released, or left by this very process."""
        return entry.deleted or self._is_ours(entry)

    def _held_by(self, entry: Entry) -> str:
        holder = Holder.decode(entry.value)
        return f"the write lease of {self.owner} is held by {holder}, last renewed {entry.time}; see `reconciler lease show`"
