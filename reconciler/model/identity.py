"""Names of things: the key of a resource, its owner, where it was declared, and the version of the language it is declared in."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Literal, NamedTuple

Kind = Literal["Stream", "Consumer", "KeyValue", "ObjectStore", "WorkerPool"]
API_VERSION = "reconciler/v1"
"""Of every document that is read or printed."""
DEFAULT_OWNER = "default"
KINDS: tuple[Kind, ...] = ("Stream", "KeyValue", "ObjectStore", "Consumer", "WorkerPool")
"""In the order in which they are created."""

_BUCKET_PREFIX: dict[Kind, str] = {"KeyValue": "KV_", "ObjectStore": "OBJ_"}
_JETSTREAM_NAME = re.compile(r"[^\s.*>/\\\x00-\x1f\x7f]+")
MAX_NAME = 255


@dataclass(frozen=True, slots=True)
class Location:
    """Where a document starts: file as the user wrote it, 1-based line, and its number within the file, and within a List."""

    file: str
    line: int = 1
    index: int = 0
    item: int | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class Key(NamedTuple):
    """Identity of a resource, printed as `Stream/NAME`, `Consumer/STREAM/NAME`, …, prefixed `DOMAIN:` elsewhere.

    A tuple, because it is compared and looked up more often than anything else: that costs a third of what a dataclass takes.
    """

    kind: Kind
    name: str
    stream: str = ""
    """The stream of a Consumer; empty for every other kind."""
    domain: str = ""

    def __str__(self) -> str:
        path = f"{self.kind}/{self.stream}/{self.name}" if self.kind == "Consumer" else f"{self.kind}/{self.name}"
        return f"{self.domain}:{path}" if self.domain else path

    def __lt__(self, other: Key) -> bool:  # type: ignore[override]  # only keys are put in order
        return self.sort_key < other.sort_key

    def __gt__(self, other: Key) -> bool:  # type: ignore[override]  # the same
        return self.sort_key > other.sort_key

    @property
    def sort_key(self) -> tuple[str, int, str, str]:
        """Domain, kind in creation order, then names: the tie-breaker everywhere, so input order never matters."""
        return (self.domain, KINDS.index(self.kind), self.stream, self.name)

    @property
    def stream_name(self) -> str:
        """The JetStream stream behind this key."""
        return self.stream if self.kind == "Consumer" else _BUCKET_PREFIX.get(self.kind, "") + self.name

    @property
    def stream_key(self) -> Key:
        """The key under which Live knows that stream (always kind Stream)."""
        return _stream_key(self.stream_name, self.domain)

    @property
    def live_key(self) -> Key:
        """One key for one thing on the server: a bucket is its stream."""
        return self.stream_key if self.kind != "Consumer" and self.is_stream else self

    @property
    def mark(self) -> str:
        """What a mark on the server calls it: the same from whichever domain it is seen, and for a bucket its stream."""
        return consumer_mark(self.stream, self.name) if self.kind == "Consumer" else stream_mark(self.stream_name)

    @property
    def resource_key(self) -> Key:
        """The key users know it by: the stream behind a bucket is that bucket."""
        for kind, prefix in _BUCKET_PREFIX.items():
            if self.kind == "Stream" and self.name.startswith(prefix):
                return Key(kind, self.name.removeprefix(prefix), "", self.domain)
        return self

    @property
    def is_stream(self) -> bool:
        """Whether this key stands for one stream on the server."""
        return self.kind in ("Stream", "KeyValue", "ObjectStore")

    @classmethod
    def parse(cls, text: str) -> Key:
        """The inverse of `str(key)`; raises ValueError with the expected form."""
        before, _, rest = text.partition("/")
        domain, _, kind = before.rpartition(":")
        stream, name = "", rest
        if kind == "Consumer":
            stream, _, name = rest.partition("/")
        if kind not in KINDS or not name or (kind == "Consumer" and not stream):
            msg = f"not a resource key: {text!r} (expected e.g. Stream/ORDERS, Consumer/ORDERS/billing, KeyValue/config)"
            raise ValueError(msg)
        return cls(kind, name, stream, domain)


def stream_mark(name: str) -> str:
    """See `Key.mark`."""
    return f"Stream/{name}"


def consumer_mark(stream: str, name: str) -> str:
    """The same of a consumer."""
    return f"Consumer/{stream}/{name}"


@functools.lru_cache(maxsize=65536)
def _stream_key(name: str, domain: str) -> Key:
    return Key("Stream", name, "", domain)


def owner_name(declared: str = "", environment: str = "") -> str:
    """Whose a set of manifests is: environments never share an owner."""
    name = declared or DEFAULT_OWNER
    return f"{name}/{environment}" if environment and not name.endswith(f"/{environment}") else name


def valid_name(name: str) -> bool:
    """Whether JetStream accepts this as the name of a stream or a consumer."""
    return len(name) <= MAX_NAME and name.isprintable() and _JETSTREAM_NAME.fullmatch(name) is not None
