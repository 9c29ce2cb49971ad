"""Checks of the durables that sources read through: whose they are, and that nobody else gets what they deliver.

Invariant: a durable has one stream that reads through it, and a subject it delivers to has one durable and no stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from reconciler.manifests.crosscheck.declarations import Declarations, DeclaredEntry
from reconciler.manifests.crosscheck.streams import listened_subjects
from reconciler.manifests.findings import Fault, Finding, Path
from reconciler.manifests.suggest import quoted
from reconciler.model.desired import Declared
from reconciler.model.identity import Key, Location
from reconciler.model.sourcing import DELIVERED
from reconciler.model.subjects import SubjectIndex
from reconciler.model.units import format_duration


class Taker(NamedTuple):
    """Who takes what is delivered to a subject: an entry, or a consumer whose entry is declared elsewhere."""

    name: str
    location: Location
    path: Path


def check_durables(declarations: Declarations) -> Iterator[Fault]:
    """Durables of entries, and consumers that are made to be read by an entry that is declared elsewhere."""
    read: dict[Key, DeclaredEntry] = {}
    stored = _stored(declarations)
    for entry in declarations.entries:
        key = entry.durable_key
        other = read.setdefault(key, entry) if key else entry
        if other is not entry:
            reader = other.stream.declared.key
            message = f"{key} is already read by {reader} ({other.location}): one would move the other's position"
            yield _fault(entry, "shared-durable", message, "name")
        if key is not None and entry.managed:
            yield from _check_managed(declarations, stored, entry, key)
    yield from _check_delivery(declarations, stored, read)
    yield from _check_inactivity(declarations, read)


def _fault(entry: DeclaredEntry, code: str, message: str, field: str) -> Fault:
    return Fault(entry.location, Finding((*entry.path, "consumer", field), code, message))


def _stored(declarations: Declarations) -> SubjectIndex[Declared]:
    index: SubjectIndex[Declared] = SubjectIndex()
    for stream in declarations.streams.values():
        for subject in listened_subjects(stream):
            index.add(subject, stream.declared)
    return index


def _check_managed(declarations: Declarations, stored: SubjectIndex[Declared], entry: DeclaredEntry, key: Key) -> Iterator[Fault]:
    declared = declarations.by_key.get(key)
    if declared is not None:
        message = (
            f"{key} is also declared at {declared.location}, but a serverManaged consumer is made for you: remove one of both"
        )
        yield _fault(entry, "duplicate-identity", message, "name")
    if key in declarations.removed:
        message = f"{key} is declared absent, but a serverManaged consumer is made for you: remove that document"
        yield _fault(entry, "removed-consumer", message, "name")
    hit = next(stored.overlapping(f"{DELIVERED}>"), None)
    if hit:
        message = (
            f"it delivers to a subject under {DELIVERED}>, which {hit[1].key} ({hit[1].location}) stores: "
            f"it listens on {quoted(hit[0])}, so name its subjects there"
        )
        yield _fault(entry, "deliver-subject-stored", message, "serverManaged")


def _check_delivery(
    declarations: Declarations, stored: SubjectIndex[Declared], read: dict[Key, DeclaredEntry]
) -> Iterator[Fault]:
    delivered: dict[str, Taker] = {}
    for subject, taker in _takers(declarations, read):
        other = delivered.setdefault(subject, taker)
        if other is not taker:
            message = f"{quoted(subject)} is already delivered to {other.name} ({other.location}): half would be lost"
            yield Fault(taker.location, Finding(taker.path, "shared-deliver-subject", message))
        hit = next(stored.overlapping(subject), None)
        if hit:
            message = f"{quoted(subject)} is stored by {hit[1].key} ({hit[1].location}), which listens on {quoted(hit[0])}"
            yield Fault(taker.location, Finding(taker.path, "deliver-subject-stored", message))


def _takers(declarations: Declarations, read: dict[Key, DeclaredEntry]) -> Iterator[tuple[str, Taker]]:
    for entry in declarations.entries:
        key = entry.durable_key
        if entry.deliver_subject and (key is None or read[key] is entry):
            path = (*entry.path, "consumer", "deliverSubject")
            yield entry.deliver_subject, Taker(str(entry.stream.declared.key), entry.location, path)
    for declared in _for_sources(declarations):
        subject = declared.config.get("deliver_subject")
        if subject and declared.key not in read:
            yield subject, Taker(f"whoever reads {declared.key}", declared.location, ("spec", "deliverSubject"))


def _for_sources(declarations: Declarations) -> Iterator[Declared]:
    """The declared consumers that only a source can read."""
    return (declared for declared in declarations.by_key.values() if b'"flow_control"' in declared.wire and _flows(declared))


def _flows(declared: Declared) -> bool:
    return bool(declared.config["ack_policy"] == "flow_control")


def _check_inactivity(declarations: Declarations, read: dict[Key, DeclaredEntry]) -> Iterator[Fault]:
    """A stream's limit of inactivity holds for every consumer, and while nobody reads through it a durable is inactive."""
    ours = {key for key, entry in read.items() if entry.managed} | {declared.key for declared in _for_sources(declarations)}
    for key in sorted({key.stream_key for key in ours}):
        origin = declarations.streams.get(key)
        longest = (origin.config.get("consumer_limits") or {}).get("inactive_threshold", 0) if origin else 0
        if origin and longest > 0:
            durable = min(one for one in ours if one.stream_key == key)
            message = (
                f"the server would delete {durable}, which a source reads through, {format_duration(longest)} after that source "
                "went away, and its position with it: remove inactiveThreshold here, and give it to the consumers that need it"
            )
            path = ("spec", "consumerLimits", "inactiveThreshold")
            yield Fault(origin.declared.location, Finding(path, "self-deleting-source", message))
