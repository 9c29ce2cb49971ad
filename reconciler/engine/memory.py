"""What a process remembers of the snapshots it has seen: who was ours, and how far consumers had come.

Invariant: pure. Floors outlive their consumers, because they are needed exactly when a consumer has gone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from reconciler.model.identity import Key
from reconciler.model.live import Live
from reconciler.plan.change import Memory

_CREATED = re.compile(rb'"created":"([^"]+)"')
_ACK_FLOOR = re.compile(rb'"ack_floor":\{"consumer_seq":\d+,"stream_seq":(\d+)')


def remember(memory: Memory, live: Live, owner: str) -> Memory:
    """The memory after this snapshot; of what did not answer, the old memory stays."""
    owned = {key: spec for key, spec in memory.owned.items() if live.why_unknown(key)}
    created = {**memory.created, **{key: stream.info["created"] for key, stream in live.streams.items()}}
    floors = {key: at for key, at in memory.floors.items() if created.get(key.stream_key) == memory.created.get(key.stream_key)}
    for stream_key, stream in live.streams.items():
        if stream.owner == owner:
            owned[stream_key] = stream.spec
    for stream_key, consumers in live.consumers.items():
        for name, consumer in consumers.items():
            if consumer.owner != owner:
                continue
            key = Key("Consumer", name, stream_key.name, stream_key.domain)
            owned[key] = consumer.spec
            if made := _CREATED.search(consumer.raw):
                created[key] = made[1].decode()
            if floor := _ACK_FLOOR.search(consumer.raw):
                floors[key] = int(floor[1])
    return Memory(owned, floors, created)


def forget(memory: Memory, keys: Iterable[Key]) -> Memory:
    """The memory without what we have removed on purpose."""
    gone = frozenset(keys)
    owned = {key: spec for key, spec in memory.owned.items() if key not in gone}
    return replace(memory, owned=owned, floors={key: floor for key, floor in memory.floors.items() if key not in gone})
