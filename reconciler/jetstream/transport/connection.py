"""The connection to NATS: requests, subscriptions, and coming back after a loss.

Invariant: a request is sent or dropped, never queued. nats-py keeps requests made while it is disconnected and sends them
after it has reconnected, long after the caller gave up; so it is not allowed to reconnect. Each comeback is a new link with
empty buffers, and what was in flight on the old one has failed before the new one is used.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Self

import structlog

from reconciler.errors import NatsError, NoAnswer, NotSent, Unreachable
from reconciler.jetstream.transport.credentials import login, tls_context
from reconciler.jetstream.transport.dial import LoginRefused
from reconciler.jetstream.transport.inbox import Reply
from reconciler.jetstream.transport.link import Link
from reconciler.jetstream.transport.servers import ServerIdentity, ServerList
from reconciler.jetstream.transport.settings import ConnectionSettings, redact
from reconciler.jetstream.transport.subscription import Handler, Subscription, Taker, Tap

_RETRY_FIRST = 0.1
_RETRY_MOST = 2.0
_LEAST_TIMEOUT = 0.5
"""What a server gets to let us in, however many there are to share the timeout."""

log = structlog.get_logger(__name__)

StateListener = Callable[[bool], None]


class Connection:
    """A connection that keeps itself up until it is closed. Make one with `await Connection.open(settings)`."""

    def __init__(self, settings: ConnectionSettings, name: str) -> None:
        self.settings = settings
        self.name = name
        self.reconnects = 0
        self._servers = ServerList(settings.servers)
        self._link: Link | None = None
        self._server = ServerIdentity()
        self._subscriptions: list[Subscription | Tap] = []
        self._listeners: list[StateListener] = []
        self._comeback: asyncio.Task[None] | None = None
        self._up = asyncio.Event()
        self._closed = False
        self._met = False

    @classmethod
    async def open(cls, settings: ConnectionSettings, name: str = "reconciler") -> Self:
        """Connects, or raises Unreachable (AccessDenied if this user may not receive answers)."""
        connection = cls(settings, name)
        await connection._establish()
        return connection

    @classmethod
    async def start(cls, settings: ConnectionSettings, name: str = "reconciler") -> Self:
        """Like `open`, for who can wait: when no server is there, it goes on trying, and listeners are told when one is.

        What waiting cannot mend is still raised: unreadable keys and certificates, a refused login, AccessDenied.
        """
        connection = cls(settings, name)
        tls_context(settings)
        for url in connection._servers.in_turn():
            login(settings, url)
        try:
            await connection._establish()
        except LoginRefused:
            raise
        except Unreachable as error:
            log.warning("nats.not_reachable", error=str(error))
            connection._comeback = asyncio.get_running_loop().create_task(connection._come_back(), name="nats-comeback")
        return connection

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def connected(self) -> bool:
        """Whether a request made now would be sent."""
        return self._link is not None

    @property
    def server(self) -> ServerIdentity:
        """The server of the current connection, or of the last one."""
        return self._server

    @property
    def url(self) -> str:
        """Where we are connected, without login; empty when we are not."""
        return redact(self._link.url) if self._link is not None else ""

    def on_state_change(self, listener: StateListener) -> None:
        """`listener(connected)` is called after every loss and every comeback."""
        self._listeners.append(listener)

    async def wait_connected(self) -> None:
        """Returns as soon as the connection is up."""
        await self._up.wait()

    async def request(  # noqa: PLR0913 - all that a request is made of
        self,
        subject: str,
        payload: bytes = b"",
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - one timer per request keeps pipelining cheap
        headers: Mapping[str, str] | None = None,
        write: bool = False,
        at_once: bool = False,
    ) -> Reply:
        """Sends a request now or not at all, and returns its reply.

        With `at_once`, it is sent before anything else can happen. So it is with `write`, where a timeout also makes sure that
        nothing of it can still arrive later.
        Raises NotSent, NoAnswer, NoResponders or AccessDenied.
        """
        link = self._link
        if link is None:
            msg = f"{subject}: not connected"
            raise NotSent(msg)
        try:
            return await link.request(subject, payload, timeout or self.settings.timeout, headers, at_once=at_once or write)
        except NoAnswer:
            if write and not link.lost:
                await link.settle()
            raise

    def publish(self, subject: str, payload: bytes) -> bool:
        """Sends a message now or not at all; False when it was not sent, for want of a connection or of the permission.

        A refusal comes later than the message it is for: from then on nothing with the same first two tokens is sent on
        this connection.
        """
        return self._link is not None and self._link.publish(subject, payload)

    async def subscribe(self, subject: str, handler: Handler, *, pending_bytes: int = 64 << 20) -> Subscription:
        """Subscribes on this and every later connection."""
        subscription = Subscription(subject, handler, pending_bytes)
        await self._add(subscription)
        return subscription

    async def tap(self, subject: str, taker: Taker, *, calm: bool = False) -> Tap:
        """Subscribes without a queue, on this and every later connection (see Tap)."""
        tap = Tap(subject, taker, calm)
        await self._add(tap)
        return tap

    async def unsubscribe(self, subscription: Subscription | Tap) -> None:
        """Ends a subscription."""
        self._subscriptions.remove(subscription)
        if self._link is not None:
            await self._link.unsubscribe(subscription)

    async def flush(self) -> None:
        """Returns when the server has taken in everything sent so far, subscriptions included."""
        if self._link is None:
            msg = "not connected"
            raise NotSent(msg)
        await self._link.flush()

    def cut(self) -> None:
        """Takes back what was sent and has not arrived, as far as that is possible: a new connection follows at once."""
        if self._link is not None:
            self._link.cut()

    async def close(self) -> None:
        """Closes for good; what is in flight fails with NoAnswer."""
        self._closed = True
        self._up.clear()
        if self._comeback is not None:
            self._comeback.cancel()
            await asyncio.gather(self._comeback, return_exceptions=True)
            self._up.clear()
        link, self._link = self._link, None
        if link is not None:
            await link.close()

    async def _add(self, subscription: Subscription | Tap) -> None:
        self._subscriptions.append(subscription)
        if self._link is not None:
            await self._link.subscribe(subscription)

    async def another(self, on_lost: Callable[[Link], None]) -> Link:
        """A link of its own to one of the same servers, which does not come back; raises Unreachable."""
        return await self._dialed(on_lost, ())

    async def _establish(self) -> None:
        """One round over the servers; the first that lets us in is taken."""
        link = await self._dialed(self._on_lost, self._subscriptions)
        self._servers.learn(link.url, link.info)
        self._server = link.server
        self._link = link
        self._met = True
        self._up.set()

    async def _dialed(self, on_lost: Callable[[Link], None], subscriptions: Iterable[Subscription | Tap]) -> Link:
        reasons: list[str] = []
        kind = Unreachable
        urls = self._servers.in_turn()
        share = replace(self.settings, timeout=max(_LEAST_TIMEOUT, self.settings.timeout / len(urls)))
        for url in urls:
            try:
                link = await Link.open(share, url, self.name, on_lost)
                for subscription in subscriptions:
                    await link.subscribe(subscription)
            except Unreachable as error:
                reasons.append(str(error))
                kind = LoginRefused if isinstance(error, LoginRefused) else kind
                continue
            if link.lost:
                reasons.append(f"{redact(url)} closed the connection right after the login")
                continue
            return link
        raise kind("; ".join(dict.fromkeys(reasons)))

    def _on_lost(self, link: Link) -> None:
        if link is not self._link:
            return  # one that never became ours
        self._link = None
        self._up.clear()
        self._servers.learn(link.url, link.info)  # the cluster may have grown meanwhile
        if self._closed:
            return
        log.debug("nats.connection_lost", server=redact(link.url))
        self._comeback = asyncio.get_running_loop().create_task(self._come_back(), name="nats-comeback")
        self._tell(connected=False)

    async def _come_back(self) -> None:
        """Tries until it works, each pause random so that many clients do not return at the same moment."""
        most, again, said = _RETRY_FIRST, self._met, ""
        while not self._closed:  # a cancellation that comes while the client dials may be lost in there
            await asyncio.sleep(random.uniform(_RETRY_FIRST / 2, most))  # noqa: S311 - jitter
            try:
                await self._establish()
            except NatsError as error:
                (log.debug if str(error) == said else log.info)("nats.reconnect_failed", connection=self.name, error=str(error))
                said = str(error)
                most = min(most * 2, _RETRY_MOST)
                continue
            self.reconnects += again
            log.debug("nats.reconnected" if again else "nats.connected", server=self.url)
            self._tell(connected=True)
            return

    def _tell(self, *, connected: bool) -> None:
        for listener in self._listeners:
            listener(connected)
