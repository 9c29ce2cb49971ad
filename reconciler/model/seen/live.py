"""Live: what a server showed at one moment.

Invariant: what did not answer is in `unknown`, and nothing may be concluded about it. A Live never changes: what a few
reads show later makes another one of it (`patched`), which shares all that stayed the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from reconciler.model.identity import Key
from reconciler.model.seen.patching import Patch, Patching
from reconciler.model.seen.resource import LiveConsumer, LiveStream

__all__ = ["EVERY_STREAM", "Live", "LiveConsumer", "LiveStream", "Patch", "Server"]

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
    max_payload: int = 0
    """The largest request that it takes, headers included; 0: nobody knows."""


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
    """Streams (kind Stream) and consumers that did not answer; a domain as its `EVERY_STREAM`."""
    facts: Mapping[Any, Any] = field(default_factory=lambda: MappingProxyType({}))
    """Answers to a plan's questions: Read → Fact (see procedures.requests)."""
    asked: Mapping[Key, Mapping[str, int]] = field(default_factory=lambda: MappingProxyType({}))
    """When patches asked for what they brought, by stream key (see `model.seen.patching`)."""

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
        if not self.unknown:
            return None
        one, stream = self.unknown.get(key.live_key), self.unknown.get(key.stream_key)
        return one or stream or self.unknown.get(Key("Stream", EVERY_STREAM, "", key.domain))

    def patched(self, *patches: Patch) -> Live:
        """This, and what was learned since; facts are left out, because they are answers about what it was before.

        An answer is passed over when a later question about the same thing is answered already. Silence about a stream ends
        when all its consumers are known as well: with a list of them, with the word that there are none, or with its end.
        """
        change = Patching(self.streams, self.consumers, self.unknown, self.asked)
        for patch in patches:
            change.apply(patch)
        observed_at = max((self.observed_at, *(patch.at for patch in patches)))
        return Live(self.server, observed_at, *change.result(), asked=change.asked())
