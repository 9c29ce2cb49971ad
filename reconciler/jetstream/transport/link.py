"""One connection's life: a client, its inbox and its subscriptions, from login to loss.

Invariant: once lost, a link is never used again, and everything that waited on it has failed.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Self

import nats.errors
import structlog
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as WireSubscription

from reconciler.errors import NoAnswer, NotSent, Unreachable
from reconciler.jetstream.transport.dial import dial
from reconciler.jetstream.transport.inbox import Inbox, Reply, Violation
from reconciler.jetstream.transport.servers import ServerIdentity
from reconciler.jetstream.transport.settings import ConnectionSettings, redact
from reconciler.jetstream.transport.subscription import ReceivedMessage, Subscription, Tap
from reconciler.jetstream.transport.wire import WireClient

_PROBE_TIMEOUT = 1
_INBOX_MESSAGES = 1 << 20

log = structlog.get_logger(__name__)


class Link:
    """A connection to one server. Make one with `await Link.open(…)`."""

    def __init__(self, settings: ConnectionSettings, url: str, on_lost: Callable[[Link], None]) -> None:
        self.url = url
        self.lost = False
        self._settings = settings
        self._on_lost = on_lost
        self._inbox = Inbox(f"{settings.inbox_prefix}.{secrets.token_hex(11)}")
        self._subscriptions: dict[Subscription | Tap, WireSubscription] = {}
        self._told: dict[str, str] = {}
        """Of each family the subject that was used last."""
        self._refused: set[str] = set()
        self._client: WireClient

    @classmethod
    async def open(cls, settings: ConnectionSettings, url: str, name: str, on_lost: Callable[[Link], None]) -> Self:
        """Logs in and sets up the inbox; raises Unreachable, or AccessDenied if this user may not receive answers."""
        link = cls(settings, url, on_lost)
        link._client = await dial(settings, url, name, on_error=link._handle_error, on_lost=link._lose)
        try:
            await link._open_inbox()
        except BaseException:
            await link.close()
            raise
        return link

    @property
    def server(self) -> ServerIdentity:
        """Who is at the other end."""
        return ServerIdentity.of(self._client.info)

    @property
    def info(self) -> Mapping[str, object]:
        """The server's INFO as it came."""
        return self._client.info

    async def request(
        self,
        subject: str,
        payload: bytes,
        timeout: float,  # noqa: ASYNC109 - one timer per request keeps pipelining cheap
        headers: Mapping[str, str] | None,
        *,
        at_once: bool = False,
    ) -> Reply:
        """Sends a request and waits for its reply; `at_once`: not even its own client keeps it for a moment."""
        reply_subject, future = self._inbox.expect(subject, timeout)
        try:
            publish = self._client.publish_at_once if at_once else self._client.publish
            await publish(subject, payload, reply_subject, dict(headers) if headers else None)
            return await future
        except nats.errors.Error as error:
            msg = f"{subject}: {str(error).removeprefix('nats: ')}"
            raise NotSent(msg) from error
        finally:
            self._inbox.forget(reply_subject)

    def publish(self, subject: str, payload: bytes) -> bool:
        """Sends a message that nobody answers; False when it was not sent, or when its like was refused before."""
        family = _family(subject)
        if family in self._refused:
            return False
        self._told[family] = subject
        return self._client.send(subject, payload)

    async def settle(self) -> None:
        """After a write without an answer: either the server has taken in all we sent, or the connection is cut.

        So no byte of that write can arrive later, when it is no longer wanted.
        """
        try:
            await self._client.flush(timeout=_PROBE_TIMEOUT)
        except (nats.errors.Error, OSError):
            self._client.abort()

    def cut(self) -> None:
        """Ends the connection at once; what the kernel has not delivered yet never arrives."""
        if not self.lost:
            self._client.abort()

    async def flush(self) -> None:
        """Returns when the server has taken in everything sent so far."""
        try:
            await self._client.flush(timeout=self._settings.timeout)  # type: ignore[arg-type]  # seconds, annotated as int
        except (nats.errors.Error, OSError) as error:
            msg = f"{redact(self.url)} fell silent: {str(error).removeprefix('nats: ')}"
            raise NoAnswer(msg) from error

    async def subscribe(self, subscription: Subscription | Tap) -> None:
        """Starts feeding a subscription."""
        subscription.denied = False
        try:
            self._subscriptions[subscription] = await self._feed(subscription)
        except nats.errors.ConnectionClosedError:
            log.debug("nats.subscribed_on_lost_link", subject=subscription.subject)  # the next link subscribes anew

    async def _feed(self, subscription: Subscription | Tap) -> WireSubscription:
        if isinstance(subscription, Tap):
            return await self._client.tap(subscription)

        async def deliver(message: Msg) -> None:
            await subscription.handler(ReceivedMessage(message.subject, message.data, message.headers or {}, message.reply))

        return await self._client.subscribe(subscription.subject, cb=deliver, pending_bytes_limit=subscription.pending_bytes)

    async def unsubscribe(self, subscription: Subscription | Tap) -> None:
        """Stops feeding a subscription."""
        made = self._subscriptions.pop(subscription, None)
        if made is not None and not self.lost:
            await made.unsubscribe()

    async def close(self) -> None:
        """Ends the connection; what is in flight fails with NoAnswer."""
        await self._client.close()

    async def _open_inbox(self) -> None:
        async def deliver(message: Msg) -> None:
            self._inbox.deliver(message.subject, Reply(message.data, message.headers or {}))

        try:
            # No byte limit: every message answers a request of ours, so what was asked for bounds them (see ByteBudget).
            await self._client.subscribe(
                self._inbox.pattern, cb=deliver, pending_msgs_limit=_INBOX_MESSAGES, pending_bytes_limit=0
            )
            await self.flush()  # a refusal of the subscription arrives before the answer to this
        except (NoAnswer, nats.errors.Error) as error:
            msg = f"{redact(self.url)} ended the connection right after the login: {error}"
            raise Unreachable(msg) from error
        self._inbox.check()

    def _lose(self) -> None:
        self.lost = True
        self._inbox.lose_all("the connection was lost before an answer came")
        self._on_lost(self)

    async def _handle_error(self, error: Exception) -> None:
        """Everything nats-py reports beside a call: refusals, slow consumers, failing handlers, broken sockets."""
        if isinstance(error, nats.errors.SlowConsumerError):
            self._count_drop(error)
            return
        violation = Violation.parse(str(error))
        if violation is not None:
            self._deny(violation)
        elif isinstance(error, OSError | nats.errors.Error):
            log.debug("nats.connection_error", server=redact(self.url), error=str(error))
        else:
            log.error("nats.handler_failed", exc_info=error)

    def _count_drop(self, error: nats.errors.SlowConsumerError) -> None:
        for subscription, made in self._subscriptions.items():
            if made is error.sub and isinstance(subscription, Subscription):
                subscription.dropped += 1

    def _deny(self, violation: Violation) -> None:
        if self._inbox.deny(violation):
            return
        denied = violation.subject  # lower-cased by nats-py: to be granted is what was said
        if violation.operation == "publish":
            family = _family(violation.subject)
            if family in self._refused:
                return  # sent before the first refusal was known
            if family in self._told:
                self._refused.add(family)
                denied = self._told[family]
        for subscription in self._subscriptions:
            if violation.operation == "subscribe" and subscription.subject.lower() == violation.subject:
                subscription.denied, denied = True, subscription.subject
        log.warning("nats.permission_denied", operation=violation.operation, subject=denied)


def _family(subject: str) -> str:
    """What a permission is given for, as far as messages that nobody answers go: the first two tokens."""
    return ".".join(subject.lower().split(".")[:2])
