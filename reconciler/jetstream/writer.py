"""How the engine changes JetStream: each Write is exactly one changing request.

Invariant: a configuration is sent byte by byte as it was planned.
"""

from __future__ import annotations

from typing import Any

from reconciler.jetstream.api import JetStreamApi
from reconciler.jetstream.domains import ApiOf
from reconciler.model.identity import Key
from reconciler.procedures.consumer import RESET_LEVEL
from reconciler.procedures.requests import (
    CreateConsumer,
    CreateStream,
    DeleteConsumer,
    DeleteStream,
    PauseConsumer,
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
        match write:
            case CreateStream(key, config):
                return await self._at(key).create_stream(key.stream_name, config, level=level)
            case UpdateStream(key, config):
                return await self._at(key).update_stream(key.stream_name, config, level=level)
            case DeleteStream(key):
                return await self._at(key).delete_stream(key.stream_name, level=level)
            case CreateConsumer(key, config):
                return await self._at(key).create_consumer(key.stream, key.name, config, level=level)
            case UpdateConsumer(key, config):
                return await self._at(key).update_consumer(key.stream, key.name, config, level=level)
            case DeleteConsumer(key):
                return await self._at(key).delete_consumer(key.stream, key.name, level=level)
            case PauseConsumer(key, until):
                return await self._at(key).pause_consumer(key.stream, key.name, until or None)
            case ResetConsumer(key, seq):
                return await self._at(key).reset_consumer(key.stream, key.name, seq, level=max(level, RESET_LEVEL))

    def _at(self, key: Key) -> JetStreamApi:
        return self._api_of(key.domain)
