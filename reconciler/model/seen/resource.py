"""One stream or consumer as a server showed it.

Invariant: raw bytes and digests, not parsed trees, so that 100,000 consumers fit into memory; and what two looks at a consumer
show alike is there once, so that a second look, while the first is still known, costs a fraction.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from sys import intern
from typing import Any

import orjson

from reconciler.model.identity import consumer_mark, stream_mark
from reconciler.model.marker import (
    NO_MARKER,
    PAUSE_UNTIL,
    PROCEDURE,
    RESIDUE,
    SOURCE,
    SPEC,
    Marker,
    named_otherwise,
    owner_in,
    read_marker,
)
from reconciler.model.normal import digest, normal_consumer, normal_stream, packed

_SPECIAL = frozenset({RESIDUE, PROCEDURE, SOURCE, PAUSE_UNTIL})
_STATE = b',"delivered":{"consumer_seq":'
"""Where the state begins, after configuration (preceded by names and creation); nothing within a configuration looks like it."""
_END = b"}" + _STATE
_TYPE = b'{"type":"io.nats.jetstream.api.v1.'
_TIME = b',"ts":"'
_NOTED = re.compile(rb'"_nats\.(?:level|req\.level|ver)":"[^"\\]*",?')
"""What a server notes about itself in metadata, and does not show in a list; within a text its quotes would be escaped."""


@dataclass(slots=True)
class _Seen:
    """Never changed, but not frozen: there may be a hundred thousand, and that would cost a microsecond for each."""

    head: bytes
    """The INFO answer (config, state and all we do not know) up to its state; all of it where the two are not told apart."""
    state: bytes
    """The rest of the answer."""
    digest: str
    owner: str
    """By the marker; empty also where the marker was written for another resource."""
    spec: str
    """The digest in the marker: what was last applied."""
    special: bool
    """Carries residue, a journal or a declared pause, or is kept for a source: must be looked at closely."""
    name: str

    @property
    def raw(self) -> bytes:
        """The whole answer."""
        return self.head + self.state

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
        if not self.owner:
            return NO_MARKER
        info = self.info
        return read_marker(info["config"].get("metadata"), mark_of(info))

    @property
    def named(self) -> bool:
        """Whether its mark says that it was written for it; one from before does not."""
        return bool(self.marker.key)

    @property
    def named_otherwise(self) -> str:
        """What its mark was written for, where that is another resource; else empty."""
        info = self.info
        return named_otherwise(info["config"].get("metadata"), mark_of(info))


@dataclass(slots=True)
class LiveStream(_Seen):
    """A stream as the server shows it."""

    limits: Mapping[str, Any] | None = None
    """The stream's consumer limits, which are its consumers' defaults; None when it has none."""

    @classmethod
    def seen(cls, info: dict[str, Any]) -> LiveStream:
        """From an INFO (or an entry of a LIST) answer."""
        config = info["config"]
        metadata = config.get("metadata") or {}
        owner = owner_in(metadata, mark_of(info))
        return cls(
            head=packed(info),
            state=b"",
            digest=digest(normal_stream(config, config["name"])),
            owner=owner,
            spec=metadata.get(SPEC, "") if owner else "",
            special=bool(owner) and not _SPECIAL.isdisjoint(metadata),
            name=config["name"],
            limits=config.get("consumer_limits") or None,
        )


@dataclass(slots=True)
class LiveConsumer(_Seen):
    """A consumer as the server shows it."""

    server_made: bool

    @classmethod
    def seen(cls, info: dict[str, Any]) -> LiveConsumer:
        """From an INFO (or an entry of a LIST) answer."""
        raw = packed(info)
        return cls._made(info, raw, _end_of_head(raw))

    @classmethod
    def read(cls, raw: bytes) -> LiveConsumer:
        """From such an answer as it came; its state is parsed by whoever needs it."""
        ends = _end_of_head(raw)
        return cls._made(orjson.loads(raw[:ends] + b"}" if ends < len(raw) else raw), raw, ends)

    @classmethod
    def _made(cls, info: dict[str, Any], raw: bytes, ends: int) -> LiveConsumer:
        config = info["config"]
        metadata = config.get("metadata") or {}
        owner = owner_in(metadata, mark_of(info))
        found, spec = digest(normal_consumer(config)), metadata.get(SPEC, "") if owner else ""
        return cls(
            head=raw[:ends],
            state=raw[ends:],
            digest=found,
            owner=intern(owner),
            spec=found if spec == found else spec,  # one text for both: they are the same nearly everywhere
            special=bool(owner) and not _SPECIAL.isdisjoint(metadata),
            name=info["name"],
            server_made=_made_by_server(info["name"], config, metadata),
        )

    def seen_again(self, raw: bytes) -> LiveConsumer | None:
        """This consumer in a later answer, without parsing it; None unless all that it was made from is the same to the byte."""
        ends = len(self.head)
        if not self.state or not raw.startswith(self.head) or not raw.startswith(_STATE, ends):
            return None
        again = (self.digest, self.owner, self.spec, self.special, self.name, self.server_made)
        return LiveConsumer(self.head, raw[ends:], *again)

    def shown_by(self, raw: bytes) -> bool:
        """Whether an answer says the very same, to the byte, but when, as an answer to what, and what servers note beside it."""
        said = _said(raw)
        return said is not None and said == _said(self.raw)


def mark_of(info: Mapping[str, Any]) -> str:
    """What a mark on a stream or consumer with this INFO has to name."""
    stream = info.get("stream_name")
    return consumer_mark(stream, info["name"]) if stream else stream_mark(info["config"]["name"])


def _end_of_head(raw: bytes) -> int:
    """Where the state begins; the length of the whole where it is written in another order than the servers'."""
    return raw.find(_END) + 1 or len(raw)


def _said(raw: bytes) -> bytes | None:
    """All that an answer says of a consumer; None where it does not end with its time, as those of servers do."""
    starts = raw.find(b",") if raw.startswith(_TYPE) else 0
    ends = raw.rfind(_TIME)
    if ends < 0 or raw.find(b'"', ends + len(_TIME)) != len(raw) - len(b'"}'):
        return None
    return _NOTED.sub(b"", raw[starts + 1 : ends])


def _made_by_server(name: str, config: Mapping[str, Any], metadata: Mapping[str, str]) -> bool:
    """Whether the server itself keeps this consumer for a source or a mirror: never ours to touch."""
    if config.get("sourcing") or config.get("direct"):
        return True
    prefixed = name.startswith(("JS_SRC_", "JS_MIRROR_"))
    return prefixed and any(key.startswith(("_nats.src.", "_nats.mirror.")) for key in metadata)
