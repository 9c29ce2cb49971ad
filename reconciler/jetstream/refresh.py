"""A Live brought up to date for a few keys, without listing everything again.

Invariant: keys that were not asked for stay as they were; a key disappears only when the server says that it is not there.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import replace

from reconciler.errors import STREAM_NOT_FOUND, ApiError, NatsError
from reconciler.jetstream.domains import ApiOf
from reconciler.jetstream.snapshot import list_consumers
from reconciler.model.identity import Key
from reconciler.model.live import Live, LiveConsumer, LiveStream

_LIST_FROM = 21
"""This many consumers of one stream at once are cheaper to list."""


async def refresh(api_of: ApiOf, live: Live, keys: Collection[Key], now: Callable[[], int]) -> Live:
    """The same Live with exactly these keys read again by INFO."""
    by_stream: dict[Key, set[str]] = defaultdict(set)
    for key in keys:
        names = by_stream[key.stream_key]
        if key.kind == "Consumer":
            names.add(key.name)
    update = _Update(api_of, live)
    asked = {key.stream_key for key in keys if key.is_stream}
    await asyncio.gather(
        *(update.stream(key) for key in asked), *(update.consumers(key, names) for key, names in by_stream.items() if names)
    )
    return replace(live, observed_at=now(), streams=update.streams, consumers=update.by_stream, unknown=update.unknown)


class _Update:
    """The new maps, copied where they change."""

    def __init__(self, api_of: ApiOf, live: Live) -> None:
        self._api_of = api_of
        self.streams = dict(live.streams)
        self.by_stream = dict(live.consumers)
        self.unknown = dict(live.unknown)

    async def stream(self, key: Key) -> None:
        """INFO of a stream."""
        try:
            self.streams[key] = LiveStream.seen(await self._api_of(key.domain).stream_info(key.name))
        except ApiError as error:
            self._note(key, error)
        except NatsError as error:
            self.unknown[key] = str(error)

    async def consumers(self, key: Key, names: set[str]) -> None:
        """INFO of each, or one list when there are many."""
        if len(names) >= _LIST_FROM:
            await self._list(key)
            return
        found = dict(self.by_stream.get(key, {}))
        for name, seen in zip(names, await asyncio.gather(*(self._info(key, name) for name in names)), strict=True):
            if seen is None:
                found.pop(name, None)
            elif isinstance(seen, LiveConsumer):
                found[name] = seen
        if key in self.streams:
            self.by_stream[key] = found

    async def _info(self, key: Key, name: str) -> LiveConsumer | NatsError | None:
        """None only when the server says that it is not there."""
        try:
            return LiveConsumer.seen(await self._api_of(key.domain).consumer_info(key.name, name))
        except ApiError as error:
            self._note(key, error)
            return None if error.absent else error
        except NatsError as error:
            self.unknown[key] = str(error)
            return error

    async def _list(self, key: Key) -> None:
        try:
            self.by_stream[key] = await list_consumers(self._api_of(key.domain), key.name)
            self.unknown.pop(key, None)
        except ApiError as error:
            self._note(key, error)
        except NatsError as error:
            self.unknown[key] = str(error)

    def _note(self, key: Key, error: ApiError) -> None:
        """The stream is gone with its consumers, or the server would not say; a missing consumer is the caller's affair."""
        if error.err_code == STREAM_NOT_FOUND:
            self.streams.pop(key, None)
            self.by_stream.pop(key, None)
            self.unknown.pop(key, None)
        elif not error.absent:
            self.unknown[key] = str(error)
