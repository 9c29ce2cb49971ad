"""Requests in flight: which reply belongs to which, and which failure hits which.

One inbox subscription serves all requests of a connection. A permission violation names only a subject, so it is matched
to the requests by subject; nats-py lower-cases it, hence the comparison does too.

Invariant: every request taken in ends exactly once: answered, failed or timed out.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from reconciler.errors import AccessDenied, NatsError, NoAnswer, NoResponders

_VIOLATION = re.compile(r'permissions violation for (publish|subscription)[^"]*"([^"]+)"')
_NO_RESPONDERS = "503"
_LAG = 0.05
_GRACE = 1.0
"""Seconds more for a request whose time ran out while this process was too busy to read its answer."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back for a request."""

    data: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Violation:
    """A permission violation as the server words it; the subject is lower-cased."""

    operation: str
    subject: str

    @classmethod
    def parse(cls, text: str) -> Violation | None:
        """The violation in an error text of the server, if it is one."""
        match = _VIOLATION.search(text.lower())
        if match is None:
            return None
        return cls("publish" if match[1] == "publish" else "subscribe", match[2])


@dataclass(slots=True)
class _Waiting:
    subject: str
    future: asyncio.Future[Reply]
    timer: asyncio.TimerHandle


class Inbox:
    """The requests in flight on one connection, by reply token."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self._waiting: dict[str, _Waiting] = {}
        self._next = 0
        self._denied: AccessDenied | None = None

    @property
    def pattern(self) -> str:
        """What to subscribe to."""
        return f"{self.prefix}.*"

    def expect(self, subject: str, timeout: float) -> tuple[str, asyncio.Future[Reply]]:
        """Registers a request; returns the reply subject to send it with and the future of its reply."""
        self.check()
        self._next += 1
        token = format(self._next, "x")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Reply] = loop.create_future()
        timer = loop.call_later(timeout, self._expire, token, loop.time() + timeout, timeout)
        self._waiting[token] = _Waiting(subject, future, timer)
        return f"{self.prefix}.{token}", future

    def check(self) -> None:
        """Raises AccessDenied when the server did not let us subscribe to the inbox: no answer would ever come."""
        if self._denied is not None:
            raise AccessDenied(self._denied.operation, self._denied.subject)

    def forget(self, reply_subject: str) -> None:
        """Stops waiting, because the caller has gone away or the request could not be written."""
        waiting = self._waiting.pop(reply_subject.rpartition(".")[2], None)
        if waiting is not None:
            waiting.timer.cancel()

    def deliver(self, subject: str, reply: Reply) -> None:
        """Hands a message from the inbox to the request it answers; late ones find nobody."""
        waiting = self._waiting.pop(subject.rpartition(".")[2], None)
        if waiting is None:
            return
        waiting.timer.cancel()
        if waiting.future.done():
            return
        if not reply.data and reply.headers.get("Status") == _NO_RESPONDERS:
            waiting.future.set_exception(NoResponders(f"nobody answers {waiting.subject}: is JetStream enabled there?"))
        else:
            waiting.future.set_result(reply)

    def deny(self, violation: Violation) -> bool:
        """Fails the requests that the violation is about; False when it is about none of them."""
        if violation.operation == "subscribe":
            if violation.subject != self.pattern.lower():
                return False
            self._denied = AccessDenied("subscribe", self.pattern)
            self._fail(list(self._waiting), self._denied)
            return True
        tokens = [token for token, waiting in self._waiting.items() if waiting.subject.lower() == violation.subject]
        subjects = {self._waiting[token].subject for token in tokens}
        if len(subjects) != 1:
            return False  # none, or names that differ in case only: then silence (a timeout) is the honest answer
        self._fail(tokens, AccessDenied("publish", subjects.pop()))
        return True

    def lose_all(self, reason: str) -> None:
        """The connection is gone: what was sent may or may not have been executed."""
        for token in list(self._waiting):
            subject = self._waiting[token].subject
            self._fail([token], NoAnswer(f"{subject}: {reason}"))

    def _expire(self, token: str, due: float, timeout: float) -> None:
        waiting = self._waiting.get(token)
        if waiting is None:
            return
        loop = asyncio.get_running_loop()
        if loop.time() > due + _LAG:  # the event loop was blocked: the answer may lie unread in the socket
            waiting.timer = loop.call_later(_GRACE, self._expire, token, float("inf"), timeout)
            return
        self._fail([token], NoAnswer(f"{waiting.subject}: no answer within {timeout:g}s"))

    def _fail(self, tokens: list[str], error: NatsError) -> None:
        for token in tokens:
            waiting = self._waiting.pop(token)
            waiting.timer.cancel()
            if not waiting.future.done():
                waiting.future.set_exception(error)
