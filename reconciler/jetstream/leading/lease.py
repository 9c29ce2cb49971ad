"""The write lease: at most one process per owner changes JetStream at a time.

A key in a bucket whose values vanish TTL seconds after their last write (a TTL per key would be lost at the first renewal, and
a crashed holder would keep the lease for ever). Acquire = create, renew = update(revision), release = delete(revision): every
one fenced, so nobody ever ends the lease of a successor. A release names its holder, and what of it may be on its way: it is a
statement of that holder. An entry that is gone otherwise (it ran out, or somebody deleted or purged it, its bucket, or lowered
the TTL of that) says nothing, and is waited out: nothing was written for a whole TTL, as the server counts, which keeps the time
of the last write when nothing is left of it.

Invariant: the holder stops by its own clock, counted from BEFORE the request that renewed the lease was sent, and a margin
before anybody else may begin. Hence a successor never overlaps with a holder that still believes, not even one that was frozen,
and whatever became of the entry: once it is gone, no renewal of it succeeds.
What no lease can stop is the one request already on its way when a process freezes: behind the lease stands the fence
(`fence`), and who has one holds the lease only when it is passed. Of a holder that is cut off nothing is left on its
way: when its time is over, it takes its connections with it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Self

import structlog

from reconciler.errors import ApiError, LeaseHeld, LeaseLost, NatsError, NoResponders, NotSent, Refused
from reconciler.jetstream.api import JetStreamApi
from reconciler.jetstream.clock import LeaseClock, SystemClock
from reconciler.jetstream.leading.fence import Fence, recorded
from reconciler.jetstream.leading.holder import Holder, LeaseState, now
from reconciler.jetstream.leading.kv import BucketEntry, BucketState, KeyValueBucket
from reconciler.jetstream.leading.term import LinkName
from reconciler.jetstream.leading.traces import Trace, Traces
from reconciler.model.units import SECOND

TTL = 10.0
"""Seconds; a bucket may say less, and nobody believes for longer."""
_KEY = "writer"
_MARGIN = 0.2
"""Of the TTL: how much earlier than all others a holder considers its lease over."""
_RENEWALS = 3
"""Renewals per TTL."""
_REQUESTS = 5
"""Requests that can time out one after the other within a TTL."""
_LOOK = 40
"""Looks per TTL while waiting for another holder to go."""
_PATIENCE = 1.2
"""TTLs to wait for another holder by default: one, and the moment the server needs to forget a crashed one."""
_EVICTED = b"evicted"
"""What somebody says who ends the lease of another: nobody's release."""
_NAME_IN_USE = 10058
_RELEASE_ATTEMPTS = 2

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Vacancy:
    """Whether the lease may be taken."""

    after: float
    """In so many seconds."""
    links: tuple[LinkName, ...] | None
    """Over which connections the term before may have something on its way; None: nobody knows."""
    last: int | None = None
    """The revision of the last write of all: nothing may have been written since."""
    why: str = ""
    """Who holds it, or is gone without a release."""


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
        clock: LeaseClock | None = None,
        fence: Fence | None = None,
        traces: Traces | None = None,
    ) -> None:
        self.owner = owner
        self.holder = holder or Holder()
        self.ttl = self._longest = ttl
        self._bucket = KeyValueBucket(api, bucket_name(owner), timeout=ttl / _REQUESTS)
        self._connection = api.connection
        self._clock: LeaseClock = clock or SystemClock()
        self._fence = fence
        self._traces = traces
        self._passed = False
        """Nothing of the term before can land any more, as far as it was to be proven."""
        self._led: Trace | None = None
        """The trace of whoever led before; None: nobody has looked for one."""
        self._last: Holder | None = None
        """Who was last seen to hold the lease, this process or another."""
        self._revision = 0
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

        A released lease is taken at once; one that is gone otherwise, when nothing was written for one TTL.
        """
        state = await self._prepare_bucket()
        await self._stop_renewing()
        give_up = self._clock.monotonic() + (self._alone_after(state) * _PATIENCE if wait is None else wait)
        said = False
        while True:
            asked = self._clock.monotonic()
            entry = await self._bucket.get(_KEY)
            vacancy = await self._vacancy(entry)
            if vacancy.after <= 0:
                previous = self._last
                if await self._enter(entry.revision if entry else 0, vacancy):
                    break
            elif asked >= give_up:
                raise LeaseHeld((vacancy.why,))
            elif vacancy.after < math.inf and not said:
                log.warning("lease.vanished", owner=self.owner, why=vacancy.why)
                said = True
            await self._clock.sleep(self.ttl / _LOOK)
        self._renewer = asyncio.get_running_loop().create_task(self._keep(), name=f"lease-{self.owner}")
        if vacancy.last is not None and previous is not None:
            log.warning("lease.taken_over", owner=self.owner, previous=str(previous))
        if self._fence is not None:
            await self._pass(self._fence)

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
        """Gives the lease back, so that the next one need not wait; never touches a successor's.

        Whoever is still at the fence and does not know what it waits for says nothing: its entry runs out.
        """
        await self._stop_renewing()
        links = self.holder.links
        if self._fence is not None:
            await self._fence.end()
            links = self._fence.term.left if self._passed else links
        revision, self._deadline = self._revision, float("-inf")
        self._revision = 0
        if not revision or not (self._passed or links):
            return
        note = replace(self.holder, links=links).encode()
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

        That is no release: should it live after all, it notices in time, for a successor waits for its TTL.
        """
        return await self._bucket.delete(_KEY, state.lease_revision, _EVICTED)

    async def _prepare_bucket(self) -> BucketState:
        self._led = None
        if await self._bucket.look() is None:
            await self._make_bucket()
        return await self._state()

    async def _make_bucket(self) -> None:
        try:
            await self._bucket.create_bucket(self.ttl, f"write lease of reconciler, owner {self.owner}")
        except ApiError as error:
            if error.err_code != _NAME_IN_USE:  # else somebody else has made it in the meantime
                raise

    async def _state(self) -> BucketState:
        """The bucket; from now on we believe as long as it says, or shorter."""
        state = await self._bucket.look()
        if state is None:
            msg = f"the bucket {self._bucket.bucket} is gone"
            raise NotSent(msg)
        if not state.config.get("max_age"):
            reason = f"lease bucket {self._bucket.bucket} has no TTL: a crashed holder would keep it for ever; set max age 10s"
            raise Refused((reason,))
        self.ttl = min(self._longest, state.config["max_age"] / SECOND)
        return state

    async def _vacancy(self, entry: BucketEntry | None) -> _Vacancy:
        """When the lease may be taken."""
        if entry is not None and not entry.deleted:
            holder = Holder.decode(entry.value)
            ours = self._is_ours(entry)
            self._last = self._last if ours else holder
            return _Vacancy(0.0 if ours else math.inf, holder.links or None, why=self._held_by(entry))
        if entry is not None and (released := Holder.decode(entry.value)).holder:
            return _Vacancy(0.0, released.links)
        state = await self._state()
        if state.last == 0 and self._last is None and not await self._was_led():
            return _Vacancy(0.0, (), state.last)
        links, gone = recorded(state.config), "is gone without a release"
        if self._last is not None:  # who names none does not know them, whatever was noted
            links = tuple(dict.fromkeys((*self._last.links, *(links or ())))) if self._last.links else None
        elif state.last == 0 and self._led is Trace.HIDDEN:  # nobody is known to have led
            links, gone = links or (), f"{gone} (or was never held, which cannot be seen)"
        after = self._alone_after(state) - state.still
        last = f", last held by {self._last}," if self._last else ""
        why = f"the write lease of {self.owner}{last} {gone}: nobody may take it for {after:.1f} seconds"
        return _Vacancy(after, links, state.last, why)

    def _alone_after(self, state: BucketState) -> float:
        """How many seconds after the last write of all nobody can hold the lease any more."""
        last, kept = self._last.ttl if self._last else 0.0, int(state.config["max_age"]) / SECOND
        most = max(self._longest, kept)
        return min(most, max(last, min(self._longest, kept))) if last else most

    async def _was_led(self) -> Trace:
        """Whether anybody may have led before, though the bucket of the lease has never been used: another one was there then."""
        if self._led is None:
            self._led = Trace.NONE if self._traces is None else await self._traces()
        return self._led

    async def _enter(self, revision: int, vacancy: _Vacancy) -> bool:
        """Takes the lease, if this is still its entry; behind a fence, what it waits for stays named for whoever comes next."""
        self.holder = replace(self.holder, at=now(), ttl=self.ttl, links=())
        self._passed = self._fence is None
        if self._fence is not None:
            await self._fence.open(self._bucket, self._announce, self.held, vacancy.links)
            self.holder = replace(self.holder, links=self._fence.names)
        if await self._write(revision, vacancy.last):
            return True
        if self._fence is not None:
            await self._fence.end()
        return False

    async def _pass(self, fence: Fence) -> None:
        """Returns when the fence is passed; raises LeaseLost when the lease is lost first."""
        passing = asyncio.create_task(fence.behind(self._bucket))
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
        self.holder = replace(self.holder, links=fence.names)  # the next renewal writes it
        self._passed = True
        fence.term.admit()

    async def _announce(self, links: tuple[LinkName, ...]) -> None:
        """Rewrites our entry, and what outlasts it; raises LeaseLost."""
        self.check()
        self.holder = replace(self.holder, links=links)
        if not (await self._write(self._revision) or await self._renew_over_own()):
            msg = f"the write lease of {self.owner} was taken by another process"
            raise LeaseLost(msg)

    async def _write(self, revision: int, last: int | None = None) -> bool:
        """Writes our name over that revision; the time counts from before the request, so the lease is never overestimated."""
        started = self._clock.monotonic()
        written = await self._bucket.update(_KEY, self.holder.encode(), revision, last)
        if written is None:
            return False
        self._revision, self._last = written, self.holder
        self._deadline = started + self.ttl * (1 - _MARGIN)
        return True

    async def _keep(self) -> str:
        """Renews until the lease is lost, and says why it was; a request that fails is repeated as long as the lease lasts."""
        pause, said = self.ttl / _RENEWALS, ""
        while True:
            await self._clock.sleep(min(pause, self._left()))
            if not self.held():
                self._connection.cut()
                return self._lost("not renewed in time")
            try:
                async with asyncio.timeout(self._left()):
                    renewed = await self._write(self._revision) or await self._renew_over_own()
            except TimeoutError:
                continue
            except NatsError as error:
                if isinstance(error, NoResponders) and await self._bucket_is_gone():
                    self._deadline = float("-inf")
                    return self._lost("its bucket was deleted")
                if str(error) != said:
                    log.warning("lease.renewal_failed", owner=self.owner, error=str(error))
                pause, said = self.ttl / _LOOK, str(error)
                continue
            if not renewed:
                self._deadline = float("-inf")
                return self._lost("taken by another process, or removed")
            pause, said = self.ttl / _RENEWALS, ""

    async def _bucket_is_gone(self) -> bool:
        """Nobody takes in renewals: is there nothing left to renew, or only nobody there for now?"""
        try:
            async with asyncio.timeout(self._left()):
                return await self._bucket.look() is None
        except (NatsError, TimeoutError):
            return False

    def _left(self) -> float:
        """Seconds for which it is still ours."""
        return max(0.0, self._deadline - self._clock.monotonic())

    def _lost(self, reason: str) -> str:
        if self._fence is not None:
            self._fence.cut()
        return reason

    async def _renew_over_own(self) -> bool:
        """After a conflict: if the newest entry is a renewal of ours whose answer was lost, renews that one."""
        entry = await self._bucket.get(_KEY)
        if entry is None or not self._is_ours(entry):
            return False
        return await self._write(entry.revision)

    async def _stop_renewing(self) -> None:
        if self._renewer is not None:
            self._renewer.cancel()
            await asyncio.gather(self._renewer, return_exceptions=True)
            self._renewer = None

    def _is_ours(self, entry: BucketEntry) -> bool:
        return not entry.deleted and Holder.decode(entry.value).holder == self.holder.holder

    def _held_by(self, entry: BucketEntry) -> str:
        holder = Holder.decode(entry.value)
        return f"the write lease of {self.owner} is held by {holder}, last renewed {entry.time}; see `reconciler lease show`"
