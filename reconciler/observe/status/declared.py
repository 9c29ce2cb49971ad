"""What is declared, as the status needs it: in order, counted by kind, and what is not simply to be kept as it is.

Invariant: made once for each Desired; nothing that happens in every pass goes through all of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cached_property

from reconciler.model.desired import Desired
from reconciler.model.identity import Key
from reconciler.model.kinds.common import State
from reconciler.model.seen.live import EVERY_STREAM, Live

NOTHING = Desired({})


class Catalogue:
    """The keys of one Desired; worker pools are one key each."""

    def __init__(self, desired: Desired) -> None:
        self.desired = desired
        self._pools = frozenset(pool.key for pool in desired.pools.values()) | desired.held_back.keys()
        self.per_kind: Counter[str] = Counter(key.kind for key in self)
        self.special = frozenset(
            key for key, one in desired.resources.items() if one.intent.suspend or one.intent.state is State.UNMANAGED
        ).union(desired.held_back)
        """What is not Synced although there is nothing to be done about it."""

    def __contains__(self, key: Key) -> bool:
        return key in self.desired.resources or key in self._pools

    def __iter__(self) -> Iterator[Key]:
        yield from self.desired.resources
        yield from self._pools

    def __len__(self) -> int:
        return sum(self.per_kind.values())

    @cached_property
    def in_order(self) -> list[Key]:
        """All keys, sorted."""
        return sorted(self, key=lambda key: key.sort_key)

    def known_as(self, key: Key) -> Key:
        """The key under which a thing is declared: others may know a bucket as its stream."""
        return key if key in self else key.resource_key

    def unknown(self, live: Live) -> Iterator[Key]:
        """The declared keys about which nothing may be concluded."""
        if any(key.name == EVERY_STREAM for key in live.unknown):
            yield from (key for key in self.desired.resources if live.why_unknown(key))
            return
        for stream in live.unknown:
            yield from (key for key in (stream, stream.resource_key) if key in self)
            for consumer in self.desired.consumers.get(stream, {}).values():
                yield consumer.key
