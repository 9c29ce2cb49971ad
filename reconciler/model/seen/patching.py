"""A few reads, or the answer to a write, brought into what was seen before.

Invariant: an answer is passed over when a later question about the same thing is answered already, so patches may be made
side by side and come in any order; what stayed the same is shared, not copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from reconciler.model.identity import Key
from reconciler.model.seen.resource import LiveConsumer, LiveStream

_ITSELF, _ALL = "", "*"
"""What no consumer is called: the stream itself, and a list of all its consumers."""
T = TypeVar("T")
Consumers = Mapping[str, LiveConsumer]
Asked = Mapping[Key, Mapping[str, int]]
"""When it was asked for what is known: by stream key, then by consumer name, `_ITSELF` or `_ALL`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """What a few reads have shown, or the answer to a write: nothing but that, so that patches never undo each other."""

    at: int
    """When it was asked (of a write: when it was answered), in nanoseconds since the epoch."""
    streams: Mapping[Key, LiveStream | None] = field(default_factory=dict)
    """By stream key; None is gone, with all its consumers."""
    lists: Mapping[Key, Consumers] = field(default_factory=dict)
    """All consumers of a stream, by stream key."""
    consumers: Mapping[Key, LiveConsumer | None] = field(default_factory=dict)
    """By consumer key; None is gone."""
    unknown: Mapping[Key, str] = field(default_factory=dict)
    """What did not answer, with the reason; of a stream, also when only its consumers could not be listed."""


class Patching:
    """What becomes of a Live: only what differs from it; None for what goes."""

    def __init__(
        self, streams: Mapping[Key, LiveStream], consumers: Mapping[Key, Consumers], unknown: Mapping[Key, str], asked: Asked
    ) -> None:
        self._before = (streams, consumers, unknown)
        self._asked_before = asked
        self._streams: dict[Key, LiveStream | None] = {}
        self._consumers: dict[Key, dict[str, LiveConsumer] | None] = {}
        self._unknown: dict[Key, str | None] = {}
        self._asked: dict[Key, dict[str, int]] = {}

    def result(self) -> tuple[Mapping[Key, LiveStream], Mapping[Key, Consumers], Mapping[Key, str]]:
        """Streams, consumers, and what is unknown."""
        streams, consumers, unknown = self._before
        return _merged(streams, self._streams), _merged(consumers, self._consumers), _merged(unknown, self._unknown)

    def asked(self) -> Asked:
        """When it was asked for what is known now."""
        return _merged(self._asked_before, self._asked)

    def apply(self, patch: Patch) -> None:
        """Takes in what is not older than what is known."""
        for key, stream in patch.streams.items():
            if self._due(key, _ITSELF, patch.at):
                self._stream(key, stream, patch.at)
        for key, listed in patch.lists.items():
            if self._known(key) is not None and self._due(key, _ALL, patch.at):
                self._list(key, listed, patch.at)
        for key, consumer in patch.consumers.items():
            if self._known(key.stream_key) is not None and self._due(key.stream_key, key.name, patch.at):
                self._consumer(key, consumer, patch.at)
        for key, reason in patch.unknown.items():
            name = key.name if key.kind == "Consumer" else _ITSELF
            if self._due(key.stream_key, name, patch.at):
                self._unknown[key] = reason

    def _due(self, key: Key, name: str, at: int) -> bool:
        """Whether nobody asked later for what this answers."""
        times = self._asked.get(key) or self._asked_before.get(key)
        return times is None or (at >= times.get(name, 0) and (name == _ITSELF or at >= times.get(_ALL, 0)))

    def _known(self, key: Key) -> LiveStream | None:
        return self._streams[key] if key in self._streams else self._before[0].get(key)

    def _names(self, key: Key) -> dict[str, LiveConsumer]:
        """The consumers of a stream, to be changed."""
        names = self._consumers.get(key)
        if names is None:
            names = self._consumers[key] = {} if key in self._consumers else dict(self._before[1].get(key, {}))
        return names

    def _times(self, key: Key) -> dict[str, int]:
        if key not in self._asked:
            self._asked[key] = dict(self._asked_before.get(key, {}))
        return self._asked[key]

    def _stream(self, key: Key, stream: LiveStream | None, at: int) -> None:
        before = self._known(key)
        if stream is None or (before is not None and _made(before) != _made(stream)):
            self._consumers[key] = None  # they go with their stream, and another one of its name never had them
            self._asked[key] = {_ALL: at}
            self._all_known(key)
        self._streams[key] = stream
        self._times(key)[_ITSELF] = at
        if self._silent(key) and stream is not None and not stream.info["state"]["consumer_count"]:
            self._unknown[key] = None

    def _list(self, key: Key, listed: Consumers, at: int) -> None:
        later = {name: asked for name, asked in self._times(key).items() if asked > at}
        kept = {name: consumer for name, consumer in self._names(key).items() if name in later}
        self._consumers[key] = {name: consumer for name, consumer in listed.items() if name not in later} | kept
        itself = {name: asked for name, asked in self._asked[key].items() if name == _ITSELF}
        self._asked[key] = {**itself, **later, _ALL: at}
        self._all_known(key)

    def _consumer(self, key: Key, consumer: LiveConsumer | None, at: int) -> None:
        names = self._names(key.stream_key)
        if consumer is None:
            names.pop(key.name, None)
        else:
            names[key.name] = consumer
        self._times(key.stream_key)[key.name] = at
        if self._silent(key):
            self._unknown[key] = None

    def _silent(self, key: Key) -> bool:
        return key in self._unknown or key in self._before[2]

    def _all_known(self, key: Key) -> None:
        """The stream has answered, and for all its consumers as well."""
        self._unknown |= {silent: None for silent in (*self._before[2], *self._unknown) if silent.stream_key == key}


def _made(stream: LiveStream) -> str:
    created: str = stream.info["created"]
    return created


def _merged(before: Mapping[Key, T], changed: Mapping[Key, T | None]) -> Mapping[Key, T]:
    """The same mapping when nothing changed in it."""
    if not changed:
        return before
    merged = dict(before)
    for key, value in changed.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = value
    return merged
