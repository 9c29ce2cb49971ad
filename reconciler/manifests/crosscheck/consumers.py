"""Checks of consumers against their stream and against each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from reconciler.manifests.crosscheck.collisions import collisions
from reconciler.manifests.crosscheck.declarations import Declarations, Stream
from reconciler.manifests.findings import Fault, Finding, Path, warning
from reconciler.manifests.rules.stream import stored_subjects
from reconciler.manifests.suggest import quoted
from reconciler.model.desired import Declared
from reconciler.model.flow import filters_of
from reconciler.model.identity import Key, Location
from reconciler.model.subjects import SubjectIndex
from reconciler.model.units import format_duration

SERVER_CONSUMER_LIMIT = 1000
"""What 2.15 allows a stream that does not say more."""


class _Reader(NamedTuple):
    """Whoever reads a stream: a consumer, a worker, a source entry."""

    name: str
    location: Location
    path: Path


def check_consumers(declarations: Declarations) -> Iterator[Fault]:
    """Every declared consumer, stream by stream."""
    for key, consumers in declarations.consumers.items():
        stream = declarations.streams.get(key)
        if stream is not None:
            yield from _check_against_stream(stream, consumers)
            continue
        first = consumers[0]
        others = f" (and {len(consumers) - 1} more consumers)" if len(consumers) > 1 else ""
        path = ("spec", "stream")
        if key in declarations.removed:
            yield Fault(first.location, Finding(path, "removed-stream", f"{key} is declared absent{others}"))
        else:
            yield Fault(first.location, warning(path, "undeclared-stream", f"{key} is not declared here{others}"))
    for key, stream in declarations.streams.items():
        yield from _check_count(declarations, key, stream)
        if stream.config.get("retention") == "workqueue":
            yield from _check_work_queue(declarations, key)


class FilterCheck:
    """Whether filters can match anything that a stream holds."""

    def __init__(self, key: Key, stream: Stream) -> None:
        self._key = key
        self._stored = stored_subjects(key.stream_name, stream.config) if stream.known else None
        self._index: SubjectIndex[None] = SubjectIndex()
        for subject in self._stored or ():
            self._index.add(subject, None)

    def outside(self, filters: Sequence[str]) -> Iterator[tuple[int, str]]:
        """The places of filters that never match, with the reason."""
        if self._stored is None:
            return
        for place, subject in enumerate(filters):
            if next(self._index.overlapping(subject), None) is None:
                listens = ", ".join(self._stored[:3]) + (", …" if len(self._stored) > 3 else "")  # noqa: PLR2004
                yield place, f"{quoted(subject)} never matches: {self._key} holds {listens}"


def _check_against_stream(stream: Stream, consumers: Sequence[Declared]) -> Iterator[Fault]:
    filter_check = FilterCheck(stream.declared.key.stream_key, stream)
    listened = SubjectIndex[None]()
    for subject in stream.config.get("subjects") or ():
        listened.add(subject, None)
    for declared in consumers:
        config = declared.config
        for place, reason in filter_check.outside(filters_of(config)):
            path: Path = ("spec", "filterSubject") if config.get("filter_subject") else ("spec", "filterSubjects", place)
            yield Fault(declared.location, Finding(path, "filter-outside-stream", reason))
        deliver = config.get("deliver_subject")
        if deliver and next(listened.overlapping(deliver), None):
            message = f"{quoted(deliver)} is stored by {stream.declared.key} itself: every delivery would be delivered again"
            yield Fault(declared.location, Finding(("spec", "deliverSubject"), "deliver-subject-cycle", message))
        for finding in _check_limits(stream, config):
            yield Fault(declared.location, finding)


def _check_limits(stream: Stream, config: Mapping[str, Any]) -> Iterator[Finding]:
    limits = stream.config.get("consumer_limits", {})
    most = limits.get("max_ack_pending", 0)
    if most > 0 and config.get("max_ack_pending", 0) > most:
        message = f"{stream.declared.key} allows its consumers a maxAckPending of {most}"
        yield Finding(("spec", "maxAckPending"), "consumer-limits", message)
    longest = limits.get("inactive_threshold", 0)
    if longest > 0 and config.get("inactive_threshold", 0) > longest:
        message = f"{stream.declared.key} allows its consumers an inactiveThreshold of {format_duration(longest)}"
        yield Finding(("spec", "inactiveThreshold"), "consumer-limits", message)
    replicas = stream.config.get("num_replicas") or 1
    if stream.known and config.get("num_replicas", 0) > replicas:
        message = f"{stream.declared.key} has {replicas} replicas; a consumer cannot have more"
        yield Finding(("spec", "replicas"), "too-many-replicas", message)
    if stream.config.get("retention") == "workqueue":
        if config["ack_policy"] not in ("explicit", "flow_control"):
            message = f"{stream.declared.key} is a work queue: its consumers acknowledge explicitly"
            yield Finding(("spec", "ackPolicy"), "workqueue-ack", message)
        if config.get("deliver_policy", "all") != "all":
            message = f"{stream.declared.key} is a work queue: its consumers start at the beginning"
            yield Finding(("spec", "deliverPolicy"), "workqueue-start", message)


def _check_count(declarations: Declarations, key: Key, stream: Stream) -> Iterator[Fault]:
    count = len(declarations.consumers.get(key, ()))
    count += sum(len(pool.consumer_names(worker)) for pool in declarations.pools.get(key, ()) for worker in pool.workers.values())
    count += sum(1 for entry in declarations.entries_from.get(key, ()) if entry.managed)
    most = stream.config.get("max_consumers", -1)
    path = ("spec", "maxConsumers")
    if 0 < most < count:
        message = f"{count} consumers are declared, but maxConsumers is {most}"
        yield Fault(stream.declared.location, Finding(path, "too-many-consumers", message))
    if most <= 0 and count > SERVER_CONSUMER_LIMIT:
        message = (
            f"{count} consumers are declared: from 2.15 on the server takes {SERVER_CONSUMER_LIMIT} unless maxConsumers says more"
        )
        yield Fault(stream.declared.location, warning(path, "max-consumers-unset", message))


def _check_work_queue(declarations: Declarations, key: Key) -> Iterator[Fault]:
    """In a work queue every message has one reader."""
    reported: set[_Reader] = set()
    for found in collisions(_readers(declarations, key)):
        if found.owner in reported:
            continue
        reported.add(found.owner)
        message = (
            f"{key} is a work queue, where a message has one consumer: {quoted(found.subject)} overlaps "
            f"{quoted(found.other_subject)} of {found.other.name} ({found.other.location})"
        )
        yield Fault(found.owner.location, Finding(found.owner.path, "workqueue-overlap", message))


def _readers(declarations: Declarations, key: Key) -> Iterator[tuple[_Reader, Sequence[str]]]:
    for declared in declarations.consumers.get(key, ()):
        config = declared.config
        path = ("spec", "filterSubject" if config.get("filter_subject") else "filterSubjects")
        yield _Reader(str(declared.key), declared.location, path), filters_of(config) or (">",)
    for pool in declarations.pools.get(key, ()):
        # One reader for the whole pool: what its own workers share is reported by the pool.
        yield _Reader(str(pool.key), pool.location, ("spec",)), pool.subjects
    for entry in declarations.entries_from.get(key, ()):
        if entry.managed:
            reader = _Reader(f"the source of {entry.stream.declared.key}", entry.location, entry.path)
            yield reader, entry.filters or (">",)
