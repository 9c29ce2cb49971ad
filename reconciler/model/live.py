"""Live: what a server showed at one moment.

Invariant: raw bytes and digests, not parsed trees, so that 100,000 consumers fit into memory;
what did not answer is in `unknown`, and nothing may be concluded about it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import orjson

from reconciler.model.identity import Key
from reconciler.model.marker import NO_MARKER, OWNER, PROCEDURE, RESIDUE, SPEC, Marker, read_marker
from reconciler.model.normal import digest, normal_consumer, normal_stream

_STATE = b'},"delivered":{"consumer_seq":'
"""Where configuration (preceded by names and creation) ends and state begins; nothing within a configuration looks like it."""
EVERY_STREAM = "*"
"""The name under which a whole domain is unknown."""
_NO_CONSUMERS: Mapping[str, LiveConsumer] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Server:
    """The server (or cluster) as far as a plan depends on it."""

    version: str = ""
    level: int = 0
    cluster: str = ""
    domain: str = ""
    clustered: bool = False


@dataclass(frozen=True, slots=True)
class _Seen:
    raw: bytes
    """The INFO answer: config, state and all we do not know."""
    digest: str
    owner: str
    spec: str
    """The digest in the marker: what was last applied."""
    special: bool
    """Carries residue or a journal: must be looked at closely."""

    @property
    def info(self) -> dict[str, Any]:
        parsed: dict[str, Any] = orjson.loads(self.raw)
        return parsed

    @property
    def config(self) -> dict[str, Any]:
        config: dict[str, Any] = self.info["config"]
        return config

    @property
    def marker(self) -> Marker:
        return read_marker(self.config.get("metadata")) if self.owner else NO_MARKER


@dataclass(frozen=True, slots=True)
class LiveStream(_Seen):
    """A stream as the server shows it."""

    name: str
    limits: Mapping[str, Any] | None = None
    """The stream's consumer limits, which are its consumers' defaults; None when it has none."""

    @classmethod
    def seen(cls, info: dict[str, Any]) -> LiveStream:
        """From an INFO (or an entry of a LIST) answer."""
        config = info["config"]
        metadata = config.get("metadata") or {}
        return cls(
            raw=orjson.dumps(info),
            digest=digest(normal_stream(config, config["name"])),
            owner=metadata.get(OWNER, ""),
            spec=metadata.get(SPEC, ""),
            special=RESIDUE in metadata or PROCEDURE in metadata,
            name=config["name"],
            limits=config.get("consumer_limits") or None,
        )


@dataclass(frozen=True, slots=True)
class LiveConsumer(_Seen):
    """A consumer as the server shows it."""

    name: str
    server_made: bool
    head: int = 0
    """How many bytes of `raw` precede the state; 0 when it is written in another order than the servers'."""

    @classmethod
    def seen(cls, info: dict[str, Any], raw: bytes = b"") -> LiveConsumer:
        """From an INFO (or an entry of a LIST) answer; `raw` is that answer as it came, where it is at hand."""
        config = info["config"]
        metadata = config.get("metadata") or {}
        raw = raw or orjson.dumps(info)
        return cls(
            raw=raw,
            digest=digest(normal_consumer(config)),
            owner=metadata.get(OWNER, ""),
            spec=metadata.get(SPEC, ""),
            special=RESIDUE in metadata or PROCEDURE in metadata,
            name=info["name"],
            server_made=_made_by_server(info["name"], config, metadata),
            head=raw.find(_STATE) + 1,
        )

    def seen_again(self, raw: bytes) -> LiveConsumer | None:
        """This consumer in a later answer, without parsing it; None unless all that it was made from is the same to the byte."""
        if not self.head or not raw.startswith(self.raw[: self.head]) or not raw.startswith(_STATE, self.head - 1):
            return None
        again = (self.digest, self.owner, self.spec, self.special, self.name, self.server_made, self.head)
        return LiveConsumer(raw, *again)


def _made_by_server(name: str, config: Mapping[str, Any], metadata: Mapping[str, str]) -> bool:
    """Whether the server itself keeps this consumer for a source or a mirror: never ours to touch."""
    if config.get("sourcing") or config.get("direct"):
        return True
    prefixed = name.startswith(("JS_SRC_", "JS_MIRROR_"))
    return prefixed and any(key.startswith(("_nats.src.", "_nats.mirror.")) for key in metadata)


@dataclass(frozen=True, slots=True)
class Live:
    """The live state of all domains that were looked at."""

    server: Server
    observed_at: int
    """Nanoseconds since the epoch, the clock of the reader."""
    streams: Mapping[Key, LiveStream]
    consumers: Mapping[Key, Mapping[str, LiveConsumer]]
    """By stream key, then by consumer name."""
    unknown: Mapping[Key, str] = field(default_factory=lambda: MappingProxyType({}))
    """Streams (kind Stream) that did not answer; a domain as its `EVERY_STREAM`."""
    facts: Mapping[Any, Any] = field(default_factory=lambda: MappingProxyType({}))
    """Answers to a plan's questions: Read → Fact (see procedures.requests)."""

    def stream(self, key: Key) -> LiveStream | None:
        """The stream behind a key of any kind."""
        return self.streams.get(key.stream_key)

    def consumers_of(self, key: Key) -> Mapping[str, LiveConsumer]:
        """The consumers of the stream behind a key."""
        return self.consumers.get(key.stream_key, _NO_CONSUMERS)

    def consumer(self, key: Key) -> LiveConsumer | None:
        """The consumer with this key."""
        return self.consumers_of(key).get(key.name)

    def seen(self, key: Key) -> LiveStream | LiveConsumer | None:
        """What the server shows under this key."""
        return self.consumer(key) if key.kind == "Consumer" else self.stream(key)

    def why_unknown(self, key: Key) -> str | None:
        """Why nothing may be concluded about this key, or None when it was really looked at."""
        return self.unknown.get(key.stream_key) or self.unknown.get(Key("Stream", EVERY_STREAM, "", key.domain))
