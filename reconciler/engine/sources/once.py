"""The sources as one command sees them, without a daemon that has watched them before.

Invariant: one look where all is well; where something is odd a second one a little later, since a start is no stall.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from types import MappingProxyType

from reconciler.engine.ports import LiveReader
from reconciler.engine.sources.looks import Looks, WatchedSource
from reconciler.model.desired import Declared, Desired, Durable
from reconciler.model.identity import Key, Location
from reconciler.model.normal import packed
from reconciler.model.seen.live import Live, LiveConsumer
from reconciler.model.units import SECOND
from reconciler.sources.health import SourceState

_BETWEEN = 3.0
_PATIENCE = 2 * SECOND
_WELL = frozenset({SourceState.FLOWING, SourceState.PAUSED})
_NOWHERE = Location("", 0)


async def sources_now(reader: LiveReader, desired: Desired, live: Live) -> list[WatchedSource]:
    """Every entry of the declared streams, and how it fares."""
    looks = Looks(reader, time.time_ns, patience=_PATIENCE)
    seen = await looks.everything(desired, {}, live.server.level)
    if any(map(_is_odd, seen.values())):
        await asyncio.sleep(_BETWEEN)
        seen = await looks.everything(desired, seen, live.server.level)
    return list(seen.values())


def owned(live: Live, owner: str) -> Desired:
    """What carries our marker, as if it were declared as it is."""
    resources: dict[Key, Declared] = {}
    durables: dict[Key, Durable] = {}
    for key, stream in live.streams.items():
        if stream.owner == owner:
            resources[key.resource_key] = Declared(key.resource_key, packed(stream.config), stream.digest, _NOWHERE)
    for key, consumer in _consumers(live):
        if consumer.owner == owner:
            declared = Declared(key, packed(consumer.config), consumer.digest, _NOWHERE)
            if consumer.marker.source:
                durables[key] = Durable(declared, _reader_of(consumer, key))
            else:
                resources[key] = declared
    return Desired(resources=MappingProxyType(resources), durables=MappingProxyType(durables))


def _reader_of(consumer: LiveConsumer, key: Key) -> Key:
    """The stream that reads through a durable of ours, as its marker says; somebody may have damaged that."""
    try:
        return Key.parse(consumer.marker.source)
    except ValueError:
        return key.stream_key


def _consumers(live: Live) -> Iterator[tuple[Key, LiveConsumer]]:
    for stream, named in live.consumers.items():
        for name, consumer in named.items():
            yield Key("Consumer", name, stream.name, stream.domain), consumer


def _is_odd(source: WatchedSource) -> bool:
    health = source.history.health
    return health is None or health.state not in _WELL or bool(source.history.stuck_since)
