"""The safe order: streams without sources → durables of sources → streams that source or mirror → consumers → pools.

Deletes come last, in reverse. Names break ties, so the order of the input never matters.
Exceptions, each with its reason:
- lowering a stream's consumer limits comes after its consumers (the server refuses limits below an existing consumer);
- deleting a consumer of a workqueue stream comes before the creates (two may never overlap there);
- what a change needs (see `plan.subjects.handovers`) comes before it.
"""

from __future__ import annotations

import graphlib
from collections.abc import Iterable, Mapping
from functools import cached_property

import orjson

from reconciler.model.flow import copied_entries, copies, domain_of, origins
from reconciler.model.identity import Key
from reconciler.plan.change import Action, Change
from reconciler.plan.scene import Scene

_WORKQUEUE_DELETES = 900
_CONSUMERS = 1000
_LIMITS_FALL = 1500
_POOLS = 2000
_CONSUMER_DELETES = 3000
_STREAM_DELETES = 4000


class Ranks:
    """Ranks changes; knows how deep each stream sits in the graph of sources."""

    def __init__(self, scene: Scene, changes: Iterable[Change]) -> None:
        self._scene = scene
        self._depths: dict[Key, int] = {}
        self._late = self._pushed_back({change.key: change for change in changes})

    def _origins(self, stream: Key) -> list[Key]:
        declared, live = self._scene.streams.get(stream), self._scene.live.streams.get(stream)
        if declared is not None:
            return origins(declared.config, stream.domain) if copies(declared.wire) else []
        return origins(live.config, stream.domain) if live is not None and copies(live.raw) else []

    @cached_property
    def _durables(self) -> frozenset[Key]:
        """Consumers that the sources of declared streams read through."""
        return frozenset(self._source_durables())

    def _source_durables(self) -> Iterable[Key]:
        for stream, declared in self._scene.streams.items():
            if b'"consumer"' in declared.wire:
                for entry in copied_entries(declared.config):
                    if "consumer" in entry:
                        yield Key("Consumer", entry["consumer"]["name"], entry["name"], domain_of(entry, stream.domain))

    def depth(self, stream: Key, path: tuple[Key, ...] = ()) -> int:
        """0 for a stream that copies from nobody, else one more than its deepest origin (cycles end the walk)."""
        if stream not in self._depths:
            if stream in path:
                return 0
            below = (self.depth(origin, (*path, stream)) for origin in self._origins(stream))
            self._depths[stream] = max((depth + 1 for depth in below), default=0)
        return self._depths[stream]

    def rank(self, change: Change) -> int:
        """The wave a change belongs to: the one of its kind, or a later one when it needs others of that wave."""
        return self._late.get(change.key) or self._wave(change)

    def _pushed_back(self, changes: Mapping[Key, Change]) -> dict[Key, int]:
        """The ranks of those that need others; a chain of them may be as long as there are consumers."""
        needs = {key: [other for other in change.needs if other in changes] for key, change in changes.items() if change.needs}
        ranks: dict[Key, int] = {}
        for key in graphlib.TopologicalSorter(needs).static_order():
            before = (ranks[other] + 1 for other in needs.get(key, ()))
            ranks[key] = max(self._wave(changes[key]), *before, 0)
        return {key: ranks[key] for key in needs}

    def _wave(self, change: Change) -> int:
        key = change.key
        deletes = change.action is Action.DELETE or change.wanted is Action.DELETE
        if key.kind == "WorkerPool":
            return _POOLS
        if key.kind == "Consumer":
            if deletes:
                return _WORKQUEUE_DELETES if self._on_workqueue(key) else _CONSUMER_DELETES
            return 2 * self.depth(key.stream_key) + 1 if key in self._durables else _CONSUMERS
        depth = self.depth(key.stream_key)
        if deletes:
            return _STREAM_DELETES - depth
        return _LIMITS_FALL if limits_fall(change) and change.action is Action.UPDATE else 2 * depth

    def _on_workqueue(self, key: Key) -> bool:
        stream = self._scene.live.stream(key)
        return stream is not None and b'"retention":"workqueue"' in stream.raw


def limits_fall(change: Change) -> bool:
    """Whether a consumer limit of a stream falls: then it comes after the consumers, else before them."""
    if not any(field.path.startswith("consumerLimits") for field in change.fields):
        return False
    before = orjson.loads(change.live_config or b"{}").get("consumer_limits", {})
    after = orjson.loads(change.config or b"{}").get("consumer_limits") or {}
    return not all(not after.get(name) or (before.get(name) and after[name] >= before[name]) for name in {*before, *after})


def ordered(changes: Iterable[Change], scene: Scene) -> tuple[Change, ...]:
    """All changes in the order in which they are shown and done."""
    everything = list(changes)
    ranks = Ranks(scene, everything)
    return tuple(sorted(everything, key=lambda change: (ranks.rank(change), change.key.sort_key)))


def waves(changes: Iterable[Change], scene: Scene) -> tuple[tuple[Change, ...], ...]:
    """Changes of a plan, in its order, in groups that may run side by side."""
    everything = list(changes)
    ranks = Ranks(scene, everything)
    groups: dict[int, list[Change]] = {}
    for change in everything:
        groups.setdefault(ranks.rank(change), []).append(change)
    return tuple(tuple(groups[rank]) for rank in sorted(groups))
