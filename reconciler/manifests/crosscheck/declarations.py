"""All declared resources, arranged for the checks: streams by key, consumers and pools by their stream, source entries.

Invariant: tombstones are known as such and take part in nothing else; what is unmanaged counts like what is managed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from reconciler.manifests.findings import Path
from reconciler.model.desired import Declared
from reconciler.model.identity import Key, Location
from reconciler.model.kinds.common import State
from reconciler.model.kinds.pool import Pool
from reconciler.model.sourcing import origin_of


@dataclass(frozen=True, slots=True)
class Stream:
    """A declared stream, its configuration parsed."""

    declared: Declared
    config: Mapping[str, Any]

    @property
    def known(self) -> bool:
        """Whether the manifest says how the stream is; of an unmanaged one it may say nothing."""
        return self.declared.intent.state is State.PRESENT or len(self.config) > 1


@dataclass(frozen=True, slots=True)
class DeclaredEntry:
    """A source or mirror entry of a declared stream."""

    stream: Stream
    path: Path
    config: Mapping[str, Any]
    origin: Key | None
    """The stream that is copied; None when it lives behind an account import, where names mean nothing here."""
    unmanaged: bool
    """Somebody else looks after the durable."""

    @property
    def location(self) -> Location:
        """The document the entry stands in."""
        return self.stream.declared.location

    @property
    def durable(self) -> str:
        """The durable consumer it reads through; empty for an ephemeral one."""
        name: str = self.config.get("consumer", {}).get("name", "")
        return name

    @property
    def deliver_subject(self) -> str:
        """The subject of a user-managed durable; empty for the other modes."""
        subject: str = self.config.get("consumer", {}).get("deliver_subject", "")
        return subject

    @property
    def managed(self) -> bool:
        """We keep its durable."""
        return bool(self.durable) and not self.deliver_subject

    @property
    def durable_key(self) -> Key | None:
        """The key of that durable."""
        return Key("Consumer", self.durable, self.origin.name, self.origin.domain) if self.durable and self.origin else None

    @property
    def filters(self) -> list[str]:
        """The subjects it copies; none means all."""
        transforms = [transform.get("src", ">") for transform in self.config.get("subject_transforms", ())]
        return [self.config["filter_subject"]] if self.config.get("filter_subject") else transforms


@dataclass(slots=True)
class Declarations:
    """Everything that is declared, by what the checks look for."""

    streams: dict[Key, Stream] = field(default_factory=dict)
    removed: set[Key] = field(default_factory=set)
    """Tombstoned streams and consumers."""
    consumers: dict[Key, list[Declared]] = field(default_factory=dict)
    """By stream, in the order of their names."""
    pools: dict[Key, list[Pool]] = field(default_factory=dict)
    """By stream, in the order of their names."""
    entries: list[DeclaredEntry] = field(default_factory=list)
    entries_from: dict[Key, list[DeclaredEntry]] = field(default_factory=dict)
    """The same, by the stream they copy."""
    by_key: dict[Key, Declared] = field(default_factory=dict)
    """Consumers by their own key."""

    @classmethod
    def of(cls, resources: Iterable[Declared], pools: Iterable[Pool], unmanaged: Mapping[Key, tuple[str, ...]]) -> Declarations:
        """Arranged; `unmanaged` are the durables that a stream's entries leave to somebody else."""
        found = cls()
        for declared in sorted(resources, key=lambda declared: declared.key.sort_key):
            found._add(declared, unmanaged.get(declared.key, ()))
        for pool in sorted(pools, key=lambda pool: pool.key):
            if pool.intent.state is not State.ABSENT:
                found.pools.setdefault(pool.stream, []).append(pool)
        return found

    def _add(self, declared: Declared, unmanaged: tuple[str, ...]) -> None:
        if declared.intent.state is State.ABSENT:
            self.removed.add(declared.key.live_key)
        elif declared.key.is_stream:
            stream = Stream(declared, declared.config)
            self.streams[declared.key.stream_key] = stream
            for entry in _entries(stream, unmanaged):
                self.entries.append(entry)
                if entry.origin is not None:
                    self.entries_from.setdefault(entry.origin, []).append(entry)
        else:
            self.consumers.setdefault(declared.key.stream_key, []).append(declared)
            self.by_key[declared.key] = declared


def _entries(stream: Stream, unmanaged: tuple[str, ...]) -> list[DeclaredEntry]:
    found: list[tuple[Path, Mapping[str, Any]]] = [
        (("spec", "sources", number), entry) for number, entry in enumerate(stream.config.get("sources", ()))
    ]
    if "mirror" in stream.config:
        found.append((("spec", "mirror"), stream.config["mirror"]))
    domain = stream.declared.key.domain
    entries = []
    for path, config in found:
        entries.append(
            DeclaredEntry(stream, path, config, origin_of(config, domain), config.get("consumer", {}).get("name") in unmanaged)
        )
    return entries
