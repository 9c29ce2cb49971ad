"""The marker: what the reconciler remembers of a resource, in that resource's own JetStream metadata.

Invariant: there is no database. Everything that must survive a crash is in a marker or can be derived again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from reconciler.model.common import RESERVED_METADATA

OWNER = "reconciler.owner"
SPEC = "reconciler.spec"
RESIDUE = "reconciler.residue"
PROCEDURE = "reconciler.procedure"
DEAD_LETTER = "reconciler.deadLetter"
PAUSE_UNTIL = "reconciler.pauseUntil"
SOURCE = "reconciler.source"


_NOBODYS = frozenset({OWNER, SPEC, DEAD_LETTER, "_nats.req.level", "_nats.level", "_nats.ver"})
"""What most resources carry, and nobody declared."""


@dataclass(frozen=True, slots=True)
class Residue:
    """A difference that a procedure had to leave for good: `live` stands for `declared` until the manifest changes."""

    field: str
    live: Any
    declared: Any


@dataclass(frozen=True, slots=True)
class Journal:
    """A procedure under way: its name, the step it is about to take, and the digest of the config it works towards."""

    name: str
    step: str
    target: str
    data: str = ""
    """What the procedure cannot read again after its point of no return (JSON, its own business)."""


@dataclass(frozen=True, slots=True)
class Marker:
    """Everything we keep in the metadata of one resource."""

    owner: str = ""
    spec: str = ""
    residue: tuple[Residue, ...] = ()
    journal: Journal | None = None
    pause_until: str = ""
    source: str = ""
    """Of a durable that we keep for a source or mirror entry: the key of the stream that reads through it."""

    def to_metadata(self) -> dict[str, str]:
        """As metadata entries; absent parts leave no entry."""
        entries = {OWNER: self.owner, SPEC: self.spec, PAUSE_UNTIL: self.pause_until, SOURCE: self.source}
        if self.residue:
            rows = [{"field": r.field, "live": r.live, "declared": r.declared} for r in self.residue]
            entries[RESIDUE] = orjson.dumps(rows).decode()
        if self.journal:
            parts = {"name": self.journal.name, "step": self.journal.step, "target": self.journal.target}
            entries[PROCEDURE] = orjson.dumps(parts | {"data": self.journal.data}).decode()
        return {key: value for key, value in entries.items() if value}


NO_MARKER = Marker()


def _json(text: str | None) -> Any:  # noqa: ANN401 - whatever somebody wrote there
    try:
        return orjson.loads(text) if text else None
    except orjson.JSONDecodeError:
        return None


def read_marker(metadata: Mapping[str, str] | None) -> Marker:
    """The marker in a resource's metadata; parts that somebody damaged read as absent."""
    if not metadata or OWNER not in metadata:
        return NO_MARKER
    rows, journal = _json(metadata.get(RESIDUE)), _json(metadata.get(PROCEDURE))
    residue = tuple(
        Residue(row["field"], row.get("live"), row.get("declared"))
        for row in (rows if isinstance(rows, list) else ())
        if isinstance(row, dict) and isinstance(row.get("field"), str)
    )
    parts = {name: str(journal.get(name, "")) for name in ("name", "step", "target", "data")} if isinstance(journal, dict) else {}
    return Marker(
        owner=metadata[OWNER],
        spec=metadata.get(SPEC, ""),
        residue=residue,
        journal=Journal(**parts) if parts else None,
        pause_until=metadata.get(PAUSE_UNTIL, ""),
        source=metadata.get(SOURCE, ""),
    )


def declared_metadata(metadata: Mapping[str, str] | None) -> dict[str, str]:
    """The metadata without what the server and the marker put there."""
    if metadata and metadata.keys() <= _NOBODYS:
        return {}  # nearly always
    return {key: value for key, value in (metadata or {}).items() if not key.startswith(RESERVED_METADATA)}
