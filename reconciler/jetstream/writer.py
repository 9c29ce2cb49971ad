"""How the engine changes JetStream: each Write is exactly one changing request.

Invariant: a configuration is sent byte by byte as it was planned.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from reconciler.errors import TooLarge
from reconciler.jetstream.api import JetStreamApi, consumer_request, size_of
from reconciler.jetstream.domains import ApiOf
from reconciler.procedures.consumer import RESET_LEVEL
from reconciler.procedures.requests import (
    CreateConsumer,
    CreateStream,
    DeleteConsumer,
    DeleteStream,
    PauseConsumer,
    PurgeStream,
    Put,
    ResetConsumer,
    UpdateConsumer,
    UpdateStream,
    Write,
    changed_by,
    changes_what_exists,
)

_OfStream = CreateStream | UpdateStream | DeleteStream | PurgeStream
_OfConsumer = CreateConsumer | UpdateConsumer | DeleteConsumer | PauseConsumer | ResetConsumer
_AROUND = 4096
"""More bytes than a request takes beside its configuration: a name has at most 255 characters."""


class JetStreamWriter:
    """Writes through the APIs of all domains; what changes what exists may go another way (see `jetstream.leading.term`)."""

    def __init__(self, api_of: ApiOf, changes_of: ApiOf | None = None) -> None:
        self._api_of = api_of
        self._changes_of = changes_of or api_of

    def fits(self, write: Write, level: int = 0) -> None:
        """Raises TooLarge for what the server would cut the connection for."""
        if not isinstance(write, Put):
            return
        key = changed_by(write)
        most = self._api_of(key.domain).connection.server.max_payload
        if not most or len(write.config) + _AROUND <= most:
            return  # nearly always
        size = size_of(_body(write), level)
        if size > most:
            raise TooLarge(key, size, most)

    def write(self, write: Write, level: int = 0) -> Awaitable[dict[str, Any]]:
        """The server's answer; with a `level`, the server is asked to refuse when its own is lower."""
        api_of = self._changes_of if changes_what_exists(write) else self._api_of
        if isinstance(write, _OfStream):
            return _write_stream(api_of(write.stream.domain), write, level)
        return _write_consumer(api_of(write.consumer.domain), write, level)


def _body(write: Put) -> bytes:
    """What is sent."""
    match write:
        case CreateStream(_, config) | UpdateStream(_, config):
            return config
        case CreateConsumer(key, config):
            return consumer_request(key.stream, "create", config)
        case UpdateConsumer(key, config):
            return consumer_request(key.stream, "update", config)


def _write_stream(api: JetStreamApi, write: _OfStream, level: int) -> Awaitable[dict[str, Any]]:
    match write:
        case CreateStream(key, config):
            return api.create_stream(key.stream_name, config, level=level)
        case UpdateStream(key, config):
            return api.update_stream(key.stream_name, config, level=level)
        case DeleteStream(key):
            return api.delete_stream(key.stream_name, level=level)
        case PurgeStream(key, before, subject):
            narrowed = {} if subject in ("", ">") else {"filter": subject}
            return api.purge_stream(key.stream_name, {"seq": before, **narrowed})


def _write_consumer(api: JetStreamApi, write: _OfConsumer, level: int) -> Awaitable[dict[str, Any]]:
    match write:
        case CreateConsumer(key, config):
            return api.create_consumer(key.stream, key.name, config, level=level)
        case UpdateConsumer(key, config):
            return api.update_consumer(key.stream, key.name, config, level=level)
        case DeleteConsumer(key):
            return api.delete_consumer(key.stream, key.name, level=level)
        case PauseConsumer(key, until):
            return api.pause_consumer(key.stream, key.name, until or None)
        case ResetConsumer(key, seq):
            return api.reset_consumer(key.stream, key.name, seq, level=max(level, RESET_LEVEL))
