"""What a process remembers of what it has seen: who was ours, and how far consumers had come.

A `Recollection` lives as long as its process, and learns from whole snapshots and from a few patched streams alike, without
going through all that stayed the same.
Invariant: no I/O. Floors outlive their consumers, because they are needed exactly when a consumer has gone.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from reconciler.model.desired import Desired
from reconciler.model.identity import Key
from reconciler.model.seen.live import Live, LiveConsumer, LiveStream
from reconciler.plan.again import takers
from reconciler.plan.change import Action, Cause, Change, Mass, Plan, Remembered

_CREATED = re.compile(rb'"created":"([^"]+)"')
_ACK_FLOOR = re.compile(rb'"ack_floor":\{"consumer_seq":\d+,"stream_seq":(\d+)')
WANTED_SECONDS = 3600.0
"""For how long it counts that something was wanted."""
T = TypeVar("T")
Consumers = Mapping[str, LiveConsumer]


class Recollection:
    """What was last seen, held as the very objects of Live: a floor is read off them only when somebody asks for it."""

    def __init__(self, owner: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._owner = owner
        self._monotonic = monotonic
        self._streams: dict[Key, LiveStream] = {}
        """As last seen, also those that have gone: their creation tells whether a floor still holds."""
        self._disowned: dict[Key, LiveStream] = {}
        """Streams whose marker somebody wiped, as they were when they still were ours."""
        self._consumers: dict[Key, Consumers] = {}
        """By stream key, as last seen."""
        self._lost: dict[Key, dict[str, LiveConsumer]] = {}
        """By stream key: consumers that are not ours any more, or not there, as they were when they still were."""
        self._handed_over: dict[Key, tuple[str, tuple[Key, ...]]] = {}
        self._wanted: dict[Mass, dict[Key, float]] = {mass: {} for mass in Mass}
        """By live key: when a plan wanted it last."""
        self.memory = Remembered(
            owned=_View(self, lambda seen: seen.spec),
            floors=_View(self, lambda seen: _floor(seen) if isinstance(seen, LiveConsumer) else None),
            created=_View(self, _created, anybodys=True),
            handed_over=self._handed_over,
            wanted=self._wanted,
        )
        """For plans, which only read it; always what was learned last."""

    def learn(self, live: Live) -> None:
        """Takes in all that is live; what did not answer is remembered as it was."""
        for key in {**self._streams, **live.streams}:
            self._learn(key, live)

    def learn_keys(self, live: Live, keys: Iterable[Key]) -> None:
        """Takes in the streams behind these keys, with their consumers."""
        for key in {key.stream_key for key in keys}:
            self._learn(key, live)

    def planned(self, changes: Iterable[Change], desired: Desired) -> None:
        """Remembers who takes over from whom: once those have, nothing else tells that what is pending is not lost."""
        for change in changes:
            if change.needs and change.action is not Action.BLOCKED and (found := takers(change)):
                declared = desired.resources.get(change.key)
                self._handed_over[change.key.live_key] = declared.digest if declared else "", found

    def wants(self, plan: Plan, *, without_prunes: bool = False) -> None:
        """Remembers for an hour what a plan of everything wants; what is approved counts no more.

        `without_prunes`: the manifests have not come to rest, so nobody wants anything removed for not being there.
        """
        now = self._monotonic()
        for mass, keys in self._wanted.items():
            for key in [key for key, at in keys.items() if now - at >= WANTED_SECONDS]:
                del keys[key]
            for key, wish in plan.wanted.items():
                if wish.mass is not mass or (without_prunes and wish.cause is Cause.PRUNE):
                    continue
                if plan.approved:
                    keys.pop(key, None)
                else:
                    keys[key] = now

    def in_place(self, keys: Iterable[Key]) -> None:
        """Nothing is handed over by these any more."""
        for key in keys:
            self._handed_over.pop(key, None)

    def forget(self, keys: Iterable[Key]) -> None:
        """What we have removed on purpose is not missed."""
        names: dict[Key, set[str]] = {}
        for key in keys:
            if key.kind == "Consumer":
                names.setdefault(key.stream_key, set()).add(key.name)
            else:
                for seen in (self._streams, self._disowned, self._consumers, self._lost):
                    seen.pop(key.stream_key, None)
        for stream, removed in names.items():
            kept = self._consumers.get(stream, {})
            self._consumers[stream] = {name: consumer for name, consumer in kept.items() if name not in removed}
            for name in removed:
                self._lost.get(stream, {}).pop(name, None)

    def _learn(self, key: Key, live: Live) -> None:
        stream, before = live.streams.get(key), self._streams.get(key)
        if stream is None:
            if before is None or live.why_unknown(key):
                return
        elif before is not stream:
            self._learn_stream(key, before, stream)
        self._learn_consumers(key, live)

    def _learn_stream(self, key: Key, before: LiveStream | None, stream: LiveStream) -> None:
        if before is not None and _created(before) != _created(stream):
            self._consumers.pop(key, None)
            self._lost.pop(key, None)
            self._disowned.pop(key, None)
        elif before is not None and self.owns(before) and not stream.owner:
            self._disowned[key] = before
        if stream.owner:
            self._disowned.pop(key, None)
        self._streams[key] = stream

    def _learn_consumers(self, key: Key, live: Live) -> None:
        before, after = self._consumers.get(key, {}), live.consumers_of(key)
        if after is before:
            return
        kept: dict[str, LiveConsumer] = {}
        for name, consumer in before.items():
            now = after.get(name)
            if now is consumer or consumer.owner != self._owner or (now is not None and now.owner == self._owner):
                continue
            if live.unknown and live.why_unknown(Key("Consumer", name, key.name, key.domain)):
                kept[name] = consumer
            else:
                self._lost.setdefault(key, {})[name] = consumer
        lost = self._lost.get(key, {})
        for name in [name for name in lost if name in after and after[name].owner == self._owner]:
            del lost[name]
        self._consumers[key] = {**after, **kept} if kept else after

    def find(self, key: Key) -> LiveStream | LiveConsumer | None:
        """What is remembered under this key: as it is, or as it was when it still was ours."""
        if key.kind != "Consumer":
            return self._disowned.get(key) or self._streams.get(key)
        seen = self._consumers.get(key.stream_key, {}).get(key.name)
        if seen is not None and seen.owner == self._owner:
            return seen
        return self._lost.get(key.stream_key, {}).get(key.name)

    def known(self) -> Iterator[Key]:
        """Everything that is remembered."""
        yield from self._streams
        for stream in {**self._consumers, **self._lost}:
            for name in {**self._consumers.get(stream, {}), **self._lost.get(stream, {})}:
                yield Key("Consumer", name, stream.name, stream.domain)

    def owns(self, seen: LiveStream | LiveConsumer) -> bool:
        """Whether it carries our marker."""
        return seen.owner == self._owner


class _View(Mapping[Key, T]):
    """One of the maps of a Memory, read off what was seen."""

    def __init__(
        self,
        recollection: Recollection,
        read: Callable[[LiveStream | LiveConsumer], T | None],
        *,
        anybodys: bool = False,
    ) -> None:
        self._recollection = recollection
        self._read = read
        self._anybodys = anybodys

    def __getitem__(self, key: Key) -> T:
        value = self._find(key)
        if value is None:
            raise KeyError(key)
        return value

    def __contains__(self, key: object) -> bool:
        return isinstance(key, Key) and self._find(key) is not None

    def _find(self, key: Key) -> T | None:
        seen = self._recollection.find(key)
        return self._read(seen) if seen is not None and (self._anybodys or self._recollection.owns(seen)) else None

    def __iter__(self) -> Iterator[Key]:
        return (key for key in self._recollection.known() if key in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _created(seen: LiveStream | LiveConsumer) -> str | None:
    if isinstance(seen, LiveStream):
        made: str = seen.info["created"]
        return made
    found = _CREATED.search(seen.head)  # a consumer's names and creation precede its configuration
    return found[1].decode() if found else None


def _floor(consumer: LiveConsumer) -> int | None:
    found = _ACK_FLOOR.search(consumer.state or consumer.head)
    return int(found[1]) if found else None
