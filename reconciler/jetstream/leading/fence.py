"""What must be known before a term changes what exists: that nothing of the term before can land any more.

1. Its links are gone: the very server that had one says so (CONNZ, asked by the name of the server and the number of the
   connection). A process that was stopped sends, when it goes on, what it was about to send.
2. A write of ours that changes nothing has gone the way of its last one, behind the thousands of requests that others may have
   waiting: in the home domain an UPDATE of the lease's bucket, through the queue of the server and the log of the cluster, in
   other domains a CREATE that is refused. (An answer to STREAM.NAMES came up to five seconds before the last change landed.)
3. Two seconds, since servers of a cluster are not equally quick.

Silence proves nothing: a server that does not answer, another account, a missing grant or a leader that nobody knows is
*unproven*. Then it goes on as well, after `patience` where a proof may still come, and says so.

Invariant: `PROVEN` is said only when each link was answered for by the very server that had it, or by its next life.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import orjson
import structlog

from reconciler.errors import ApiError, NatsError, NoAnswer, NotSent
from reconciler.jetstream.domains import DomainApis
from reconciler.jetstream.leading.kv import KeyValueBucket
from reconciler.jetstream.leading.term import Announce, Aside, LinkName, Term
from reconciler.jetstream.transport.link import Link

PATIENCE = 30.0
"""Seconds to wait by default for a proof."""
CONNECTIONS = "$SYS.REQ.ACCOUNT.PING.CONNZ"
"""Where servers tell a user about the connections of its account."""
log = structlog.get_logger(__name__)

_MARK = "reconciler.links"
"""In the metadata of the lease's bucket, whose entry vanishes with its holder: the links of the last term."""
_AFTER = 2.0
_AGAIN = 0.25
_ASK = 1.0
"""Seconds for one answer about a connection."""
_TRIES = 2
"""To get one about our own."""
_UNNAMED = "$G"
"""The account of everybody where none is configured: servers do not name it."""
_WRITE = 10.0
"""Seconds for one write behind all others."""


class FenceState(StrEnum):
    """How a term stands to the one before."""

    NONE = ""
    """There is no term."""
    WAITING = "waiting"
    CLEAN = "clean"
    """There was none before, or it ended by saying that nothing of it is on its way."""
    PROVEN = "proven"
    UNPROVEN = "unproven"
    """A change of it may still land."""


@dataclass(frozen=True, slots=True)
class FenceNews:
    """What became of a fence."""

    state: FenceState
    why: str = ""
    """What is waited for, or could not be proven; and for a proven one what its own successor will miss."""
    seconds: float = 0.0


Listener = Callable[[FenceNews], None]


class Fence:
    """Stands before each term of one process."""

    def __init__(
        self,
        term: Term,
        apis: DomainApis,
        *,
        patience: float = PATIENCE,
        domains: Callable[[], Collection[str]] = tuple,
        tell: Listener = lambda _: None,
    ) -> None:
        self.term = term
        self._apis = apis
        self._aside = apis.through(Aside(term))("")
        self._patience = patience
        self._domains = domains
        self._tell = tell
        self._blind = ""
        """Why a successor could not prove anything about our link."""
        self._held: Callable[[], bool] = lambda: False
        self._before: Collection[LinkName] | None = ()
        """The links of the term before, as long as it is waited for; None: nobody knows them."""
        self._begun = FenceNews(FenceState.NONE)
        """What was said when this term began."""
        self._doubt = False
        """Since then something of its own was not proven to have landed."""

    @property
    def names(self) -> tuple[LinkName, ...]:
        """The links that a successor has to ask for: what this term waits for as well; empty: nobody knows them."""
        return () if self._before is None else (*self.term.names, *self._before)

    async def open(
        self,
        bucket: KeyValueBucket,
        announce: Announce,
        held: Callable[[], bool],
        before: Collection[LinkName] | None = (),
    ) -> None:
        """Opens the link of a new term, which sends nothing before the fence is passed; raises NatsError.

        `before` are the links of the term before (none: it ended), None: nobody knows them.
        """
        self._held, self._doubt, self._before = held, False, before

        async def told(_: tuple[LinkName, ...]) -> None:
            await announce(self.names)
            if missed := await self._record(bucket, self.names, within=_ASK):
                log.warning("fence.not_recorded", why=missed)

        await self.term.begin(lambda link: self._name_of(link, bucket), told)

    async def behind(self, bucket: KeyValueBucket) -> None:
        """Returns when the term may begin."""
        before = self._before
        started, clean = time.monotonic(), before is not None and not before
        reasons: list[str] = []
        if not clean:
            self._told(FenceState.WAITING, "for what the leader before may have on its way", started)
            reasons = await self._unproven(bucket, before)
        self._before = ()
        blind = [self._blind, await self._record(bucket, self.names)]
        state = FenceState.UNPROVEN if reasons else FenceState.CLEAN if clean else FenceState.PROVEN
        missed = [f"{reason}: a successor will not know whether our changes have landed" for reason in blind if reason]
        self._begun = self._told(state, "; ".join(dict.fromkeys(reasons or missed)), started)

    async def settled(self, bucket: KeyValueBucket) -> bool:
        """Whether it is proven that nothing of what got no answer in this term can land any more."""
        started, silent = time.monotonic(), self.term.silent
        reasons = await self._unproven(bucket, silent)
        if reasons:
            self._doubt = True
            self._told(FenceState.UNPROVEN, f"of a change of its own without an answer: {'; '.join(reasons)}", started)
            return False
        self.term.settled(silent)
        if self._doubt:
            self._doubt = False
            self._tell(self._begun)
        return True

    async def end(self) -> None:
        """The term is over."""
        await self.term.end()
        self._tell(FenceNews(FenceState.NONE))

    def cut(self) -> None:
        """The same at once."""
        self.term.cut()
        self._tell(FenceNews(FenceState.NONE))

    async def _name_of(self, link: Link, bucket: KeyValueBucket) -> LinkName:
        """What its server calls this link; with the account, if that is to be found out."""
        server = link.server
        number = link.info.get("client_id")
        name = LinkName(
            server=server.name,
            server_id=server.id,
            cid=number if isinstance(number, int) else 0,
            alone=not server.cluster and bucket.kept_by == server.name,
        )
        account = ""
        for _ in range(_TRIES):
            try:
                found = await self._ask(name)
            except NatsError as error:
                self._blind = str(error)
                if error.transient:
                    continue
                break
            seen = found.connections if found.life == name.server_id else []
            account = str(seen[0].get("account", _UNNAMED)) if seen else ""
            self._blind = "" if seen else f"{name.server} does not show our own connection"
            break
        return replace(name, account=account)

    async def _unproven(self, bucket: KeyValueBucket, links: Collection[LinkName] | None) -> list[str]:
        """Why it is not proven that nothing that was sent over these can land any more; empty when it is."""
        if links is None:
            reasons = ["it is not known over which connection the leader before sent its changes"]
        else:
            give_up = time.monotonic() + self._patience
            reasons = await asyncio.gather(*(self._open_still(link, give_up) for link in links))
        domains = (domain for domain in self._domains() if domain)
        reasons += await asyncio.gather(
            self._record(bucket, self.names, self._patience), *(self._went_through(bucket, one) for one in domains)
        )
        await asyncio.sleep(_AFTER)
        return [reason for reason in reasons if reason]

    async def _open_still(self, link: LinkName, give_up: float) -> str:
        """Why this link is not proven to be gone; waits for it where that may come."""
        own = self.term.name
        if own is not None and link.alone and own.alone and link.server_id != own.server_id:
            return ""  # one server is all there is, and it has ended since
        if own is None or not own.account:
            return self._blind or "this process has no connection for changes"
        if link.account != own.account:
            there = f"the account {link.account}" if link.account else "an account that it could not find out"
            return f"the leader before was in {there}, and this process is in {own.account}"
        while True:
            try:
                found = await self._ask(link)
                if found.life != link.server_id or not found.connections:
                    return ""
                reason = f"its connection {link.cid} to {link.server} is still open"
            except NatsError as error:
                reason = f"{link.server} does not say whether its connection is gone ({error})"
                if not error.transient:
                    return reason
            if time.monotonic() >= give_up:
                return reason
            await asyncio.sleep(_AGAIN)

    async def _ask(self, link: LinkName) -> _Answer:
        """What the server of that name says about the connection of that number."""
        question = {"cid": link.cid, "auth": True, "server_name": link.server, "exact_match": True}
        reply = await self._apis.connection.request(CONNECTIONS, orjson.dumps(question), timeout=_ASK)
        try:
            found = orjson.loads(reply.data)
            return _Answer(found["server"]["id"], [dict(one) for one in found["data"]["connections"]])
        except (KeyError, TypeError, ValueError) as error:
            msg = f"{CONNECTIONS} is answered by something unknown: {reply.data[:200]!r}"
            raise NoAnswer(msg) from error

    async def _went_through(self, bucket: KeyValueBucket, domain: str) -> str:
        """A write that is refused, and lies behind all that waited there; why it did not get through."""

        async def refused() -> None:
            try:
                await self._apis(domain).call(f"STREAM.CREATE.{bucket.stream}", b"{}", write=True)
            except ApiError as error:
                if error.transient:
                    raise

        return await self._written(refused, f"the domain {domain}", 0.0)

    async def _record(
        self, bucket: KeyValueBucket, links: Collection[LinkName], patience: float = 0.0, within: float = _WRITE
    ) -> str:
        """Writes down links where they outlast us, behind all writes that wait; why that did not work.

        Over the newest of them: when it is proven to be gone, no note of this term overwrites that of the next.
        """
        text = orjson.dumps(links).decode()

        async def noted() -> None:
            if not self._held():
                msg = "the lease is no longer ours"
                raise NotSent(msg)
            await bucket.note(_MARK, text, self._aside, within)

        return await self._written(noted, "JetStream", patience)

    async def _written(self, write: Callable[[], Awaitable[None]], where: str, patience: float) -> str:
        give_up = time.monotonic() + patience
        while True:
            try:
                await write()
            except NatsError as error:
                if not error.transient or time.monotonic() >= give_up:
                    return f"{where} did not take a write behind all others ({error})"
            else:
                return ""
            await asyncio.sleep(_AGAIN)

    def _told(self, state: FenceState, why: str, started: float) -> FenceNews:
        news = FenceNews(state, why, time.monotonic() - started)
        self._tell(news)
        return news


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a server says about one of its connections."""

    life: str
    """The id of the server, which is another one after each start."""
    connections: list[dict[str, Any]]


def recorded(config: Mapping[str, Any]) -> tuple[LinkName, ...] | None:
    """The links of the last term that were written down in the config of the lease's bucket; None: none, or nothing readable."""
    return parse_links((config.get("metadata") or {}).get(_MARK, ""))


def parse_links(text: str | bytes | list[Any]) -> tuple[LinkName, ...] | None:
    """Names of links as they are written; None when anything in there is none."""
    try:
        found = orjson.loads(text) if isinstance(text, str | bytes) else text
    except orjson.JSONDecodeError:
        return None
    links = [LinkName.parse(one) for one in found] if isinstance(found, list) else []
    return tuple(link for link in links if link is not None) if links and None not in links else None
