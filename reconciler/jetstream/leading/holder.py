"""Who holds the write lease, as its entry says; whoever may write that entry may have written anything into it."""

from __future__ import annotations

import os
import socket
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Self

import orjson

from reconciler.jetstream.leading.fence import parse_links
from reconciler.jetstream.leading.term import LinkName

_UNKNOWN = {"holder": "", "host": "somebody unknown", "pid": 0, "source": "", "revision": "", "at": "an unknown time"}
"""What stands for what an entry does not say."""


def now() -> str:
    """As holders write it, RFC 3339."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who holds the lease, as written in it."""

    holder: str = field(default_factory=lambda: uuid.uuid4().hex)
    host: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)
    source: str = ""
    """Where its manifests come from."""
    revision: str = ""
    """The revision of those manifests."""
    at: str = field(default_factory=now)
    """Since when, by its own clock."""
    ttl: float = 0.0
    """For how many seconds nobody else may begin after it has renewed; 0: a version before, which went by the bucket."""
    links: tuple[LinkName, ...] = ()
    """Over which connections its changes may be on their way."""

    def encode(self) -> bytes:
        """The value of the key."""
        return orjson.dumps(self)

    @classmethod
    def decode(cls, value: bytes) -> Self:
        """The holder in a value; fields of later versions are ignored, and a foreign value is somebody unknown."""
        try:
            document = orjson.loads(value)
        except orjson.JSONDecodeError:
            document = None
        said = document if isinstance(document, dict) else {}
        known = {name: said[name] for name, default in _UNKNOWN.items() if type(said.get(name)) is type(default)}
        links, ttl = parse_links(said.get("links") or []) or (), said.get("ttl")
        ttl = float(ttl) if isinstance(ttl, int | float) and ttl > 0 else 0.0
        return cls(**{**_UNKNOWN, **known, "links": links, "ttl": ttl})

    def __str__(self) -> str:
        source = f", manifests {self.source}" if self.source else ""
        return f"{self.host} (pid {self.pid}{source}) since {self.at}"


@dataclass(frozen=True, slots=True)
class LeaseState:
    """What `lease show` prints."""

    holder: Holder
    lease_revision: int
    renewed: str
    """When the server stored the last renewal, RFC 3339."""
