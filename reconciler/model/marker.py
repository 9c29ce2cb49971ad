"""The marker: what the reconciler remembers of a resource, in that resource's own JetStream metadata.

| the mark names | it counts as |
|---|---|
| the resource that it is on | a mark |
| another resource | none: it came along with a copied configuration |
| nothing (from before marks had names) | the owner's, but never as a reason to remove something |

Invariants: there is no database: everything that must survive a crash is in a marker or can be derived again. Whoever may write
the resource may write its mark: reading one never raises, and whatever makes no sense is said to be `damaged`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from reconciler.model import units
from reconciler.model.identity import Key
from reconciler.model.journals import misfit
from reconciler.model.kinds.common import RESERVED_METADATA
from reconciler.model.residue import Residue

OWNER = "reconciler.owner"
KEY = "reconciler.key"
SPEC = "reconciler.spec"
RESIDUE = "reconciler.residue"
PROCEDURE = "reconciler.procedure"
DEAD_LETTER = "reconciler.deadLetter"
PAUSE_UNTIL = "reconciler.pauseUntil"
SOURCE = "reconciler.source"
BEFORE = "reconciler.before"

PARTS = frozenset({OWNER, KEY, SPEC, RESIDUE, PROCEDURE, PAUSE_UNTIL, SOURCE, BEFORE})
"""The entries of a mark; the subject for dead letters is declared by somebody, and stays."""
_NOBODYS = frozenset({OWNER, KEY, SPEC, BEFORE, DEAD_LETTER, "_nats.req.level", "_nats.level", "_nats.ver"})
"""What most resources carry, and nobody declared."""


@dataclass(frozen=True, slots=True)
class Journal:
    """A procedure under way: its name, the step it is about to take, and the digest of the config it works towards."""

    name: str
    step: str
    target: str
    data: str = ""
    """What the procedure cannot read again after its point of no return (JSON, its own business)."""


@dataclass(frozen=True, slots=True)
class CopiedBefore:
    """How a stream copied before it read through a durable: where that one begins, should it be made again."""

    durable: str
    identity: str
    """What was copied under which (see `sourcing.identity_of`);"""
    at: int
    """at least up to this sequence of the origin"""
    made: str = ""
    """that was made then: one that was made anew has other messages under the same sequences."""


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
    before: tuple[CopiedBefore, ...] = field(default=(), compare=False)
    """Of a stream that copies; nothing has to be done where only this differs."""
    key: str = field(default="", compare=False)
    """What it was written for (see `Key.mark`); empty in a mark from before, which means the same otherwise."""
    damaged: Mapping[str, str] = field(default_factory=dict, hash=False)
    """What makes no sense in which of its entries; those are left out."""

    def to_metadata(self) -> dict[str, str]:
        """As metadata entries; absent parts leave no entry."""
        entries = {OWNER: self.owner, KEY: self.key, SPEC: self.spec, PAUSE_UNTIL: self.pause_until, SOURCE: self.source}
        if self.residue:
            rows = [{"field": r.field, "live": r.live, "declared": r.declared} for r in self.residue]
            entries[RESIDUE] = orjson.dumps(rows).decode()
        if self.before:
            entries[BEFORE] = orjson.dumps({one.durable: [one.identity, one.at, one.made] for one in self.before}).decode()
        if self.journal:
            parts = {"name": self.journal.name, "step": self.journal.step, "target": self.journal.target}
            entries[PROCEDURE] = orjson.dumps(parts | {"data": self.journal.data}).decode()
        return {key: value for key, value in entries.items() if value}


NO_MARKER = Marker()
_JOURNAL = ("name", "step", "target", "data")


def owner_in(metadata: Mapping[str, Any], key: str) -> str:
    """Whose the resource of this name is; empty where it carries no mark, or one that was written for another resource."""
    owner = metadata.get(OWNER)
    return owner if isinstance(owner, str) and metadata.get(KEY, key) == key else ""


def named_otherwise(metadata: Mapping[str, Any] | None, key: str) -> str:
    """What a mark on the resource of this name was written for, where that is something else; else empty."""
    named = (metadata or {}).get(KEY, key)
    return "" if named == key else str(named)


def read_marker(metadata: Mapping[str, Any] | None, key: str) -> Marker:
    """The marker of the resource of this name; NO_MARKER where there is none, or one that was written for another."""
    if not metadata or not (owner := owner_in(metadata, key)):
        return NO_MARKER
    damage: dict[str, str] = {}
    return Marker(
        owner=owner,
        spec=_text(metadata, SPEC),
        residue=_residue(metadata, damage),
        journal=_journal(metadata, damage),
        pause_until=_moment(metadata, damage),
        source=_source(metadata, damage),
        before=_before(metadata, damage),
        key=_text(metadata, KEY),
        damaged=damage,
    )


def with_mark(metadata: Mapping[str, Any] | None, marker: Marker, key: str) -> dict[str, str]:
    """Metadata in which this is the mark, by the name of the resource, whatever mark was there."""
    kept = {name: text for name, text in (metadata or {}).items() if name not in PARTS}
    return kept | (replace(marker, key=key).to_metadata() if marker.owner else {})


def _text(metadata: Mapping[str, Any], name: str) -> str:
    text = metadata.get(name, "")
    return text if isinstance(text, str) else ""


def _json(text: object) -> Any:  # noqa: ANN401 - whatever somebody wrote there
    try:
        return orjson.loads(text) if isinstance(text, str) else None
    except (orjson.JSONDecodeError, UnicodeError):
        return None


def _residue(metadata: Mapping[str, Any], damage: dict[str, str]) -> tuple[Residue, ...]:
    """Its rows, if there are none but such as procedures write."""
    if RESIDUE not in metadata:
        return ()
    rows = tuple(_rows(_json(metadata[RESIDUE])))
    if rows and all(row is not None and row.in_shape for row in rows):
        return tuple(row for row in rows if row is not None)
    damage[RESIDUE] = "it says what no procedure leaves behind"
    return ()


def _rows(found: object) -> Iterator[Residue | None]:
    """Each row; None for what is none."""
    for row in found if isinstance(found, list) else ():
        named = isinstance(row, dict) and isinstance(row.get("field"), str)
        yield Residue(row["field"], row.get("live"), row.get("declared")) if named else None


def _journal(metadata: Mapping[str, Any], damage: dict[str, str]) -> Journal | None:
    if PROCEDURE not in metadata:
        return None
    found = _json(metadata[PROCEDURE])
    parts = [found.get(name, "") for name in _JOURNAL] if isinstance(found, dict) else []
    texts = [part for part in parts if isinstance(part, str)]
    data = _json(texts[-1] or "{}") if len(texts) == len(_JOURNAL) else None
    wrong = misfit(texts[0], texts[1], data) if isinstance(data, dict) else "it is no journal"
    if wrong:
        damage[PROCEDURE] = wrong
        return None
    return Journal(*texts)


def _moment(metadata: Mapping[str, Any], damage: dict[str, str]) -> str:
    text = _text(metadata, PAUSE_UNTIL)
    try:
        if text or PAUSE_UNTIL in metadata:
            units.parse_time(text)
    except (ValueError, OverflowError):
        damage[PAUSE_UNTIL] = "it is no time"
        return ""
    return text


def _source(metadata: Mapping[str, Any], damage: dict[str, str]) -> str:
    text = _text(metadata, SOURCE)
    try:
        if text or SOURCE in metadata:
            Key.parse(text)
    except ValueError:
        damage[SOURCE] = "it is no stream"
        return ""
    return text


def _before(metadata: Mapping[str, Any], damage: dict[str, str]) -> tuple[CopiedBefore, ...]:
    if BEFORE not in metadata:
        return ()
    match _json(metadata[BEFORE]):
        case dict(found) if all(_is_before(one) for one in found.values()):
            return tuple(CopiedBefore(durable, *said) for durable, said in found.items())
    damage[BEFORE] = "it does not say where durables begin"
    return ()


def _is_before(found: object) -> bool:
    match found:
        case [str(), int(at)] | [str(), int(at), str()]:
            return not isinstance(at, bool) and at >= 0
    return False


def declared_metadata(metadata: Mapping[str, str] | None) -> dict[str, str]:
    """The metadata without what the server and the marker put there."""
    if metadata and metadata.keys() <= _NOBODYS:
        return {}  # nearly always
    return {key: value for key, value in (metadata or {}).items() if not key.startswith(RESERVED_METADATA)}
