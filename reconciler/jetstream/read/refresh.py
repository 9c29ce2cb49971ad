"""What a few keys look like now, without listing everything again.

A consumer is read by INFO, many of one stream by one LIST. Whatever makes the known consumers of a stream doubtful (it is new,
was made anew, counts another number of them, or did not answer before) has them listed as well.
Invariant: only what was read is in the Patch; something is gone only when the server says so, and when answers that crossed
each other cannot all be true, the stream is read once more, one question after the other.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping

from reconciler.errors import STREAM_NOT_FOUND, ApiError, NatsError
from reconciler.jetstream.api import JetStreamApi
from reconciler.jetstream.domains import ApiOf
from reconciler.jetstream.read.snapshot import list_consumers
from reconciler.model.identity import Key
from reconciler.model.seen.live import Live, LiveConsumer, LiveStream, Patch

_LIST_FROM = 21
"""This many consumers of one stream at once are cheaper to list."""

Said = LiveConsumer | NatsError | None
"""What came of the INFO of a consumer; None when it is not there, though its stream is."""


async def refresh(api_of: ApiOf, live: Live, keys: Collection[Key], now: Callable[[], int]) -> Patch:
    """What the server says about exactly these keys, and about consumers that one of these streams makes doubtful."""
    at = now()
    names: dict[Key, set[str]] = defaultdict(set)
    for key in keys:
        names[key.stream_key].update([key.name] if key.kind == "Consumer" else ())
    hinted = {key.stream_key for key in keys if key.is_stream}
    looks = [_Look(api_of(key.domain), key, live) for key in names]
    await asyncio.gather(*(look.at(names[look.key], itself=look.key in hinted) for look in looks))
    return Patch(
        at=at,
        streams={look.key: look.stream for look in looks if look.answered},
        lists={look.key: look.listed for look in looks if look.listed is not None},
        consumers={key: consumer for look in looks for key, consumer in look.consumers.items()},
        unknown={key: why for look in looks for key, why in look.unknown.items()},
    )


class _Look:
    """At one stream, or some of its consumers."""

    def __init__(self, api: JetStreamApi, key: Key, live: Live) -> None:
        self.key = key
        self.answered = False
        self.stream: LiveStream | None = None
        """Once it has `answered`; None is gone."""
        self.listed: Mapping[str, LiveConsumer] | None = None
        self.consumers: dict[Key, LiveConsumer | None] = {}
        self.unknown: dict[Key, str] = {}
        self._api = api
        self._live = live

    @property
    def _gone(self) -> bool:
        return self.answered and self.stream is None

    async def at(self, names: Collection[str], *, itself: bool) -> None:
        """Reads the stream (`itself`, or when nobody knows it yet) and these consumers of it."""
        due = itself or self.key not in self._live.streams
        many = len(names) >= _LIST_FROM
        async with asyncio.TaskGroup() as group:
            if due:
                group.create_task(self._read_stream())
            tasks = {name: group.create_task(self._info(name)) for name in names if not many}
        found = {name: task.result() for name, task in tasks.items()}
        if self._contradicted(found):
            self.answered, self.stream = False, None
            await self._read_stream()
            await self._list()
            return
        for name, said in found.items():
            self._heard(name, said)
        if many or (self.stream is not None and self._doubtful(self.stream)):
            await self._list()

    async def _info(self, name: str) -> Said:
        try:
            return LiveConsumer.seen(await self._api.consumer_info(self.key.name, name))
        except ApiError as error:
            return None if error.absent and not _no_stream(error) else error
        except NatsError as error:
            return error

    async def _read_stream(self) -> None:
        try:
            self.stream = LiveStream.seen(await self._api.stream_info(self.key.name))
            self.answered = True
        except NatsError as error:
            self._not_read(error)

    async def _list(self) -> None:
        """All consumers, unless the stream has gone; they take the place of what single ones have said before."""
        if self._gone:
            return
        try:
            if self.stream is not None and not self.stream.info["state"]["consumer_count"]:
                self.listed = {}
            else:
                known = self._live.consumers_of(self.key)
                self.listed = await list_consumers(self._api, self.key.name, before=known)
            self.consumers.clear()
            self.unknown = {key: why for key, why in self.unknown.items() if key == self.key}
        except NatsError as error:
            self._not_read(error)

    def _not_read(self, error: NatsError) -> None:
        """The stream is gone with its consumers, or nobody would say."""
        if _no_stream(error):
            self.answered, self.stream, self.listed = True, None, None
            self.consumers.clear()
            self.unknown.clear()
        else:
            self.unknown[self.key] = str(error)

    def _contradicted(self, found: Mapping[str, Said]) -> bool:
        """Whether some say that the stream is there, and others that it is not."""
        gone = any(map(_no_stream, found.values())) or self._gone
        there = any(one is None or isinstance(one, LiveConsumer) for one in found.values()) or self.stream is not None
        return gone and there

    def _heard(self, name: str, one: Said) -> None:
        key = Key("Consumer", name, self.key.name, self.key.domain)
        if one is None or isinstance(one, LiveConsumer):
            self.consumers[key] = one
        elif _no_stream(one):
            self._not_read(one)
        elif not self._gone:
            self.unknown[key] = str(one)

    def _doubtful(self, stream: LiveStream) -> bool:
        """Whether there may be other consumers than those that are known by now."""
        live, key = self._live, self.key
        before = live.streams.get(key)
        if before is None or key in live.unknown:
            return True
        then, now = before.info, stream.info
        if then["created"] != now["created"]:
            return True
        if key not in live.consumers and then["state"]["consumer_count"]:
            return False  # nobody wanted to know them
        known = set(live.consumers_of(key))
        for consumer, one in self.consumers.items():
            (known.discard if one is None else known.add)(consumer.name)
        return bool(now["state"]["consumer_count"] != len(known))


def _no_stream(said: object) -> bool:
    return isinstance(said, ApiError) and said.err_code == STREAM_NOT_FOUND
