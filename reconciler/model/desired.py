"""Desired: everything that is declared, compiled to what would be sent to the server.

Invariant: a Declared is immutable and complete; nothing after it looks at YAML again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any

import orjson

from reconciler.model.identity import Key, Location
from reconciler.model.kinds.common import DEFAULT_INTENT, Intent


@dataclass(frozen=True, slots=True)
class Declared:
    """One declared resource: the configuration as JSON bytes (wire names, no marker), and the digest of its normal form."""

    key: Key
    wire: bytes
    digest: str
    location: Location
    intent: Intent = DEFAULT_INTENT

    @property
    def config(self) -> dict[str, Any]:
        """The wire configuration, a fresh dict each time."""
        parsed: dict[str, Any] = orjson.loads(self.wire)
        return parsed


@dataclass(frozen=True, slots=True)
class Durable:
    """A durable consumer that we keep for one source or mirror entry: it has no manifest of its own."""

    declared: Declared
    """As if it were declared; its location is that of the stream."""
    aggregate: Key
    """The stream that reads through it."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """What must be true of the server before anything is written there."""

    cluster: str | None = None
    domain: str | None = None


@dataclass(frozen=True, slots=True)
class Governance:
    """The parts of a Policy document that the plan itself enforces."""

    owner: str = ""
    protect_names: bool = False
    approve: str = ""
    """A plan fingerprint whose mass change was reviewed."""
    unused_after: int = 0
    """Nanoseconds after which a consumer counts as unused; 0: nothing is said."""


@dataclass(frozen=True)
class Desired:
    """All declared resources and the rules they come with."""

    resources: Mapping[Key, Declared]
    environment: str = ""
    context: str = ""
    url: str = ""
    revision: str = ""
    expect: Expectation = field(default_factory=Expectation)
    governance: Governance = field(default_factory=Governance)
    held_back: Mapping[Key, str] = field(default_factory=lambda: MappingProxyType({}))
    """Pools whose files are incomplete, with the reason: left as they are."""
    generations: Mapping[Key, int] = field(default_factory=lambda: MappingProxyType({}))
    """Which plan wrote the files of a pool, where they are generated, and all there."""
    pools: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """Worker pools (validated documents, by name); reconciled as one key each."""
    durables: Mapping[Key, Durable] = field(default_factory=lambda: MappingProxyType({}))
    """What we keep for managed entries, by its consumer's key (see `model.sourcing`)."""

    def under(self, key: Key) -> Declared | None:
        """What is declared under this live key."""
        return self.resources.get(key) or self.resources.get(key.resource_key)

    @cached_property
    def streams(self) -> Mapping[Key, Declared]:
        """Declared streams and buckets by the key of their stream; kept, because every pass needs them."""
        return {key.stream_key: declared for key, declared in self.resources.items() if key.is_stream}

    @cached_property
    def consumers(self) -> Mapping[Key, Mapping[str, Declared]]:
        """Declared consumers by stream key, then by name, as Live has them; kept as well."""
        found: dict[Key, dict[str, Declared]] = {}
        for key, declared in self.resources.items():
            if key.kind == "Consumer":
                found.setdefault(key.stream_key, {})[key.name] = declared
        return found
