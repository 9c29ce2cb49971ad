"""How the engine sees JetStream: bulk snapshots, single refreshes, and the reads of procedures one to one.

Invariant: `Absent` is said only where the server said it.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection
from typing import Any

import orjson

from reconciler.errors import ApiError
from reconciler.jetstream.api import JetStreamApi
from reconciler.jetstream.domains import ApiOf
from reconciler.jetstream.read.copied import Copies, last_below, newest
from reconciler.jetstream.read.refresh import refresh
from reconciler.jetstream.read.snapshot import snapshot
from reconciler.model.identity import Key
from reconciler.model.seen.live import Live, LiveConsumer, Patch
from reconciler.model.seen.wanted import Wanted
from reconciler.procedures.requests import Absent, ConsumerInfo, Fact, LastCopied, Message, NextMessage, Read, StreamInfo


class JetStreamReader:
    """Reads through the APIs of all domains."""

    def __init__(self, api_of: ApiOf, now: Callable[[], int] = time.time_ns) -> None:
        self._api_of = api_of
        self._now = now
        self._last: Live | None = None
        self._copies = Copies()

    async def snapshot(self, wanted: Wanted) -> Live:
        """The live state of all that is wanted; raises NatsError when nothing at all could be seen."""
        self._last = await snapshot(self._api_of, wanted, self._now, self._last)
        return self._last

    async def refresh(self, live: Live, keys: Collection[Key]) -> Patch:
        """What these keys look like now, for `live.patched`."""
        return await refresh(self._api_of, live, keys, self._now)

    async def read(self, read: Read) -> Fact:
        """One answer; `Absent` only when the server said so. What is asked of one resource is waited for, and sent at once."""
        try:
            return await self._answer(read)
        except ApiError as error:
            if error.absent:
                return Absent()
            raise

    async def changed(self, consumer: Key, before: LiveConsumer) -> Fact | None:
        """What is said of a consumer; None: the very same as before."""
        try:
            raw = await self._consumer_info(consumer)
        except ApiError as error:
            if error.absent:
                return Absent()
            raise
        return None if before.shown_by(raw) else orjson.loads(raw)

    def _consumer_info(self, consumer: Key) -> Awaitable[bytes]:
        return self._api_of(consumer.domain).call_raw(f"CONSUMER.INFO.{consumer.stream}.{consumer.name}", at_once=True)

    async def _answer(self, read: Read) -> Fact:
        match read:
            case StreamInfo(stream, subjects):
                return await _stream_info(self._api_of(stream.domain), stream.stream_name, subjects)
            case ConsumerInfo(consumer):
                info: dict[str, Any] = orjson.loads(await self._consumer_info(consumer))
                return info
            case NextMessage(stream, subject, seq):
                found = await self._api_of(stream.domain).next_message(stream.stream_name, subject, seq)
                return Message(*found) if found else Absent()
            case LastCopied(stream, identity, below, subject):
                api = self._api_of(stream.domain)
                if subject:
                    return await newest(api, stream, identity, subject)
                return await (last_below(api, stream, identity, below) if below else self._copies.last(api, stream, identity))


async def _stream_info(api: JetStreamApi, name: str, subjects: str) -> dict[str, Any]:
    """INFO; the counts per subject come in pages, which are put together."""
    if not subjects:
        info: dict[str, Any] = orjson.loads(await api.call_raw(f"STREAM.INFO.{name}", at_once=True))
        return info
    info = await api.stream_info(name, subjects)
    counts: dict[str, int] = info["state"].get("subjects") or {}
    while counts and len(counts) < info.get("total", 0):
        request = {"subjects_filter": subjects, "offset": len(counts)}
        page = (await api.call(f"STREAM.INFO.{name}", request))["state"].get("subjects")
        if not page:
            break
        counts |= page
    return info
