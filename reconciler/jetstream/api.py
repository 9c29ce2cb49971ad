"""The JetStream API as it is: raw JSON in, raw JSON out, errors as exceptions.

Invariant: nothing is dropped on the way. Unknown fields of a reply reach the caller, and what a caller sends is sent.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Protocol

import orjson

from reconciler.errors import MESSAGE_NOT_FOUND, ApiError, NatsError
from reconciler.jetstream.read.paging import UNKNOWN_PAGE, ByteBudget, pages
from reconciler.jetstream.transport.connection import Connection
from reconciler.jetstream.transport.inbox import Reply
from reconciler.model.api import JETSTREAM_API, api_prefix

LEVEL_HEADER = "Nats-Required-Api-Level"
_ERROR_WITHIN = 512
_GROUPS = frozenset({"MSG", "DURABLE", "LEADER", "PEER"})
_BYTES_PER_CONSUMER = 20 << 10
"""A consumer with 500 filters takes 18 KB in a list; most take well below 1 KB."""

_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")

Document = Mapping[str, Any]
AnswerListener = Callable[[str, str, float], None]
"""Told of each request: its operation without names, `ok` or the error's code or class (`no_answer`), and the seconds it took."""


class Sender(Protocol):
    """Whatever sends requests as a connection does (see `Connection.request`)."""

    async def request(  # noqa: PLR0913 - as a connection does it
        self,
        subject: str,
        payload: bytes = b"",
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - as a connection does it
        headers: Mapping[str, str] | None = None,
        write: bool = False,
        at_once: bool = False,
    ) -> Reply:
        """The reply; raises NatsError."""
        ...


class JetStreamApi:
    """Requests to the JetStream API of one domain over one connection."""

    def __init__(  # noqa: PLR0913 - all that tells one API from another
        self,
        connection: Connection,
        *,
        domain: str = "",
        prefix: str = JETSTREAM_API,
        budget: ByteBudget | None = None,
        on_answer: AnswerListener | None = None,
        sender: Sender | None = None,
    ) -> None:
        self.connection = connection
        self._sender = sender or connection
        self.on_answer = on_answer
        self.domain = domain
        self.prefix = api_prefix(domain, prefix)
        self.budget = budget or ByteBudget()
        self.requests: Counter[str] = Counter()
        """How many requests were made, by operation without names (`STREAM.INFO`)."""

    @classmethod
    def from_settings(
        cls, connection: Connection, on_answer: AnswerListener | None = None, *, sender: Sender | None = None
    ) -> JetStreamApi:
        """The API that the connection's own settings name (`--js-domain`, `--js-api-prefix`)."""
        settings = connection.settings
        prefix = settings.js_api_prefix or JETSTREAM_API
        return cls(connection, domain=settings.js_domain, prefix=prefix, on_answer=on_answer, sender=sender)

    async def call(
        self,
        operation: str,
        payload: Document | bytes | None = None,
        *,
        write: bool = False,
        level: int = 0,
        timeout: float | None = None,  # noqa: ASYNC109 - passed on
    ) -> dict[str, Any]:
        """Sends `operation` (e.g. `STREAM.INFO.ORDERS`) and returns the reply; raises ApiError when it is an error.

        `level` makes the server refuse when its API level is lower (2.11 ignores that: check the level as well).
        """
        data = await self.call_raw(operation, payload, write=write, level=level, timeout=timeout)
        reply: dict[str, Any] = orjson.loads(data)
        return reply

    async def call_raw(  # noqa: PLR0913 - all that a request is made of
        self,
        operation: str,
        payload: Document | bytes | None = None,
        *,
        write: bool = False,
        at_once: bool = False,
        level: int = 0,
        timeout: float | None = None,  # noqa: ASYNC109 - passed on
    ) -> bytes:
        """Like `call`, without parsing the reply (unless it is an error); `at_once`: see `Connection.request`."""
        kind, subject = _kind(operation), f"{self.prefix}.{operation}"
        self.requests[kind] += 1
        body = payload if isinstance(payload, bytes) else b"" if payload is None else orjson.dumps(payload)
        headers = {LEVEL_HEADER: str(level)} if level else None
        started = time.monotonic()
        try:
            reply = await self._sender.request(subject, body, timeout=timeout, headers=headers, write=write, at_once=at_once)
            raise_for_error(reply.data, operation)
        except NatsError as error:
            if self.on_answer is not None:
                self.on_answer(kind, _code(error), time.monotonic() - started)
            raise
        if self.on_answer is not None:
            self.on_answer(kind, "ok", time.monotonic() - started)
        return reply.data

    async def account_info(self) -> dict[str, Any]:
        """Limits, usage and API level of the account in this domain."""
        return await self.call("INFO")

    async def stream_info(self, name: str, subjects_filter: str | None = None) -> dict[str, Any]:
        """A stream's config and state, with the counts of the subjects that match the filter if one is given."""
        return await self.call(f"STREAM.INFO.{name}", {"subjects_filter": subjects_filter} if subjects_filter else None)

    async def create_stream(self, name: str, config: Document | bytes, *, level: int = 0) -> dict[str, Any]:
        """Creates a stream; one that exists with the same config is fine, with another it is an error (10058)."""
        return await self.call(f"STREAM.CREATE.{name}", config, write=True, level=level)

    async def update_stream(self, name: str, config: Document | bytes, *, level: int = 0) -> dict[str, Any]:
        """Replaces a stream's whole config."""
        return await self.call(f"STREAM.UPDATE.{name}", config, write=True, level=level)

    async def delete_stream(self, name: str, *, level: int = 0) -> dict[str, Any]:
        """Deletes a stream with its messages and consumers."""
        return await self.call(f"STREAM.DELETE.{name}", write=True, level=level)

    async def purge_stream(self, name: str, request: Document | None = None) -> dict[str, Any]:
        """Removes messages: all, or those that `request` (`filter`, `seq`, `keep`) names."""
        return await self.call(f"STREAM.PURGE.{name}", request, write=True)

    async def consumer_info(self, stream: str, name: str) -> dict[str, Any]:
        """A consumer's config and state."""
        return await self.call(f"CONSUMER.INFO.{stream}.{name}")

    def create_consumer(self, stream: str, name: str, config: Document | bytes, *, level: int = 0) -> Awaitable[dict[str, Any]]:
        """Creates a consumer; one that exists with another config is an error (10148)."""
        body = consumer_request(stream, "create", config)
        return self.call(f"CONSUMER.CREATE.{stream}.{name}", body, write=True, level=level)

    def update_consumer(self, stream: str, name: str, config: Document | bytes, *, level: int = 0) -> Awaitable[dict[str, Any]]:
        """Replaces a consumer's whole config; a missing one is an error (10149)."""
        body = consumer_request(stream, "update", config)
        return self.call(f"CONSUMER.CREATE.{stream}.{name}", body, write=True, level=level)

    async def delete_consumer(self, stream: str, name: str, *, level: int = 0) -> dict[str, Any]:
        """Deletes a consumer with its position."""
        return await self.call(f"CONSUMER.DELETE.{stream}.{name}", write=True, level=level)

    async def pause_consumer(self, stream: str, name: str, until: str | None) -> dict[str, Any]:
        """Pauses until the RFC 3339 time (of the server's clock), or resumes with None."""
        return await self.call(f"CONSUMER.PAUSE.{stream}.{name}", {"pause_until": until} if until else {}, write=True)

    async def reset_consumer(self, stream: str, name: str, seq: int | None, *, level: int = 4) -> dict[str, Any]:
        """Moves a consumer so that it goes on with `seq`, or back to its ack floor with None.

        The server never answers a RESET of a consumer that is not there: look first.
        """
        payload = {"seq": seq} if seq is not None else {}
        return await self.call(f"CONSUMER.RESET.{stream}.{name}", payload, write=True, level=level)

    async def next_message(self, stream: str, subject: str, seq: int) -> tuple[int, str] | None:
        """Sequence and time of the first message at or after `seq` on a subject (may have wildcards), or None."""
        try:
            reply = await self.call(f"STREAM.MSG.GET.{stream}", {"seq": seq, "next_by_subj": subject})
        except ApiError as error:
            if error.err_code == MESSAGE_NOT_FOUND:
                return None
            raise
        return reply["message"]["seq"], reply["message"]["time"]

    async def delete_message(self, stream: str, seq: int) -> None:
        """Removes one message for all consumers, without overwriting it on disk."""
        await self.call(f"STREAM.MSG.DELETE.{stream}", {"seq": seq, "no_erase": True}, write=True)

    def stream_pages(self) -> AsyncIterator[bytes]:
        """The raw replies that list all streams with config and state."""
        return self._list("STREAM.LIST", UNKNOWN_PAGE)

    def consumer_pages(self, stream: str, count: int | None = None) -> AsyncIterator[bytes]:
        """The raw replies that list all consumers of a stream; knowing their `count` lets small lists go out together."""
        expected = UNKNOWN_PAGE if count is None else min(UNKNOWN_PAGE, (count + 1) * _BYTES_PER_CONSUMER)
        return self._list(f"CONSUMER.LIST.{stream}", expected)

    def _list(self, operation: str, expected: int) -> AsyncIterator[bytes]:
        async def fetch(offset: int) -> bytes:
            return await self.call_raw(operation, {"offset": offset})

        return pages(fetch, self.budget, expected)


def consumer_request(stream: str, action: str, config: Document | bytes) -> bytes:
    """The body of CONSUMER.CREATE; JSON bytes stay those bytes."""
    as_it_is = orjson.Fragment(config) if isinstance(config, bytes) else config
    return orjson.dumps({"stream_name": stream, "action": action, "config": as_it_is})


def size_of(body: bytes, level: int) -> int:
    """How much of a server's `max_payload` a request takes: its headers count."""
    return len(body) + (len(f"NATS/1.0\r\n{LEVEL_HEADER}: {level}\r\n\r\n") if level else 0)


def raise_for_error(data: bytes, operation: str) -> None:
    """Raises ApiError when a reply carries an error; big replies are not parsed, since an error precedes everything else."""
    if b'"error"' not in data[:_ERROR_WITHIN]:
        return
    error = orjson.loads(data).get("error")
    if error:
        raise ApiError(error.get("code", 0), error.get("err_code", 0), error.get("description", ""), operation)


def _code(error: NatsError) -> str:
    if isinstance(error, ApiError):
        return str(error.err_code or error.code)
    return _HUMP.sub("_", type(error).__name__).lower()


def _kind(operation: str) -> str:
    """The operation without the names in it."""
    tokens = operation.split(".")
    return ".".join(tokens[: 3 if len(tokens) > 2 and tokens[1] in _GROUPS else 2])  # noqa: PLR2004
