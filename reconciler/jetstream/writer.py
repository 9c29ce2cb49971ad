"""How the engine changes JetStream: each Write is exactly one changing request.

Invariant: a configuration is sent byte by byte as it was planned.
"""

from __future__ import annotations

from typing import Any

from reconciler.jetstream.api import JetStreamApi
from reconciler.jetstream.domains import ApiOf
from reconciler.procedures.consumer import RESET_LEVEL
from reconciler.procedures.requests import (
    CreateConsumer,
    CreateStream,
    DeleteConsumer,
    DeleteStream,
    PauseConsumer,
    PurgeStream,
    ResetConsumer,
    UpdateConsumer,
    UpdateStream,
    Write,
)


class JetStreamWriter:
    """Writes through the APIs of all domains."""

    def __init__(self, api_of: ApiOf) -> None:
        self._api_of = api_of

    async def write(self, write: Write, level: int = 0) -> dict[str, Any]:
        """The server's answer; with a `level`, the server is asked to refuse when its own is lower."""
        if isinstance(write, CreateStream | UpdateStream | DeleteStream | PurgeStream):
            return await _write_stream(self._api_of(write.stream.domain), write, level)
        return await _write_consumer(self._api_of(write.consumer.domain), write, level)


async def _write_stream(
    api: JetStreamApi, write: CreateStream | UpdateStream | DeleteStream | PurgeStream, level: int
) -> dict[str, Any]:
    match write:
        case CreateStream(key, config):
            return await api.create_stream(key.stream_name, config, level=level)
        case UpdateStream(key, config):
            return await api.update_stream(key.stream_name, config, level=level)
        case DeleteStream(key):
            return await api.delete_stream(key.stream_name, level=level)
        case PurgeStream(key, before, subject):
            narrowed = {} if subject in ("", ">") else {"filter": subject}
            return await api.purge_stream(key.stream_name, {"seq": before, **narrowed})


async def _write_consumer(
    api: JetStreamApi, write: CreateConsumer | UpdateConsumer | DeleteConsumer | PauseConsumer | ResetConsumer, level: int
) -> dict[str, Any]:
    match write:
        case CreateConsumer(key, config):
            return await api.create_consumer(key.stream, key.name, config, level=level)
        case UpdateConsumer(key, config):
            return await api.update_consumer(key.stream, key.name, config, level=level)
        case DeleteConsumer(key):
            return await api.delete_consumer(key.stream, key.name, level=level)
        case PauseConsumer(key, until):
            return await api.pause_consumer(key.stream, key.name, until or None)
        case ResetConsumer(key, seq):
            return await api.reset_consumer(key.stream, key.name, seq, level=max(level, RESET_LEVEL))
