"""Rules for one stream, on its wire configuration as it was declared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from reconciler.manifests.findings import Finding, Path, warning
from reconciler.manifests.rules.reserved import check_subject
from reconciler.manifests.rules.source import check_mirror, check_sources
from reconciler.manifests.rules.transform import check_transform, pattern_of
from reconciler.manifests.suggest import quoted
from reconciler.model.api import JETSTREAM_EVENTS
from reconciler.model.subjects import SubjectIndex, covers, overlap, problem_with
from reconciler.model.units import MAX_INT64, MILLISECOND, SECOND

Config = Mapping[str, Any]

_SHORTEST = 100 * MILLISECOND
MAX_METADATA = 128 * 1024
_SYSTEM_SPACES = ("$JS.>", "$JSC.>", "$NRG.>", "$SYS.>")
_SYSTEM_EXCEPTIONS = (f"{JETSTREAM_EVENTS}.>", "$SYS.ACCOUNT.>")
# Each says that another field has this value, whatever the manifest says of it.
_FORCED: tuple[tuple[str, str, str, object], ...] = (
    ("subject_delete_marker_ttl", "allow_msg_ttl", "allowMsgTtl", False),
    ("subject_delete_marker_ttl", "allow_rollup_hdrs", "allowRollupHdrs", False),
    ("subject_delete_marker_ttl", "deny_purge", "denyPurge", True),
    ("allow_msg_schedules", "allow_rollup_hdrs", "allowRollupHdrs", False),
    ("allow_msg_schedules", "deny_purge", "denyPurge", True),
    ("sealed", "deny_delete", "denyDelete", False),
    ("sealed", "deny_purge", "denyPurge", False),
)
_YAML = {"subject_delete_marker_ttl": "subjectDeleteMarkerTtl", "allow_msg_schedules": "allowMsgSchedules", "sealed": "sealed"}


def check_stream(name: str, config: Config) -> Iterator[Finding]:
    """Everything that is wrong with a stream by itself."""
    yield from _check_times(config)
    yield from _check_subjects(name, config)
    yield from _check_discard(config)
    yield from _check_forced(config)
    yield from _check_counter(config)
    yield from _check_placing(config)
    yield from _check_transforms(config)
    yield from check_metadata(config)
    yield from check_numbers(config)
    if "mirror" in config:
        yield from check_mirror(name, config)
    if config.get("sources"):
        yield from check_sources(name, config)


def check_metadata(config: Config) -> Iterator[Finding]:
    """The server bounds the metadata of a resource as a whole."""
    size = sum(len(key.encode()) + len(value.encode()) for key, value in config.get("metadata", {}).items())
    if size > MAX_METADATA:
        message = f"metadata of {size} bytes; the server takes {MAX_METADATA}"
        yield Finding(("spec", "metadata"), "metadata-too-large", message)


def check_numbers(config: Config) -> Iterator[Finding]:
    """JSON has larger numbers than the server."""
    for field, value in config.items():
        if (
            type(value) is int
            and not -MAX_INT64 - 1 <= value <= MAX_INT64
            and field not in ("opt_start_seq", "first_seq", "rate_limit_bps")
        ):
            yield Finding(("spec",), "bad-value", f"{field} is larger than a signed 64-bit integer")


def _check_times(config: Config) -> Iterator[Finding]:
    max_age, window = config.get("max_age", 0), config.get("duplicate_window", 0)
    if 0 < max_age < _SHORTEST:
        yield Finding(("spec", "maxAge"), "max-age-too-short", "maxAge must be at least 100ms")
    if 0 < window < _SHORTEST:
        yield Finding(("spec", "duplicateWindow"), "duplicate-window-too-short", "duplicateWindow must be at least 100ms")
    if 0 < max_age < window and not config.get("sealed"):
        yield Finding(("spec", "duplicateWindow"), "duplicate-window-too-long", "duplicateWindow must not be longer than maxAge")
    if 0 < config.get("subject_delete_marker_ttl", 0) < SECOND:
        path = ("spec", "subjectDeleteMarkerTtl")
        yield Finding(path, "marker-ttl-too-short", "subjectDeleteMarkerTtl must be at least 1s")


def _check_subjects(name: str, config: Config) -> Iterator[Finding]:
    subjects: Sequence[str] = config.get("subjects", ())
    index: SubjectIndex[None] = SubjectIndex()
    for number, subject in enumerate(subjects):
        path: Path = ("spec", "subjects", number)
        other, _ = next(index.overlapping(subject), ("", None))
        index.add(subject, None)
        if other:
            yield Finding(path, "subject-overlap", f"{quoted(subject)} overlaps {quoted(other)} of the same stream")
        if not config.get("no_ack"):
            yield from _check_namespace(path, subject)
        yield from check_subject(path, subject)
    republish = config.get("republish")
    if republish:
        path = ("spec", "republish", "dest")
        yield from check_subject(path, republish["dest"])
        if not republish["dest"]:
            yield Finding(path, "bad-value", "dest must not be empty")
        elif any(overlap(pattern_of(republish["dest"]), subject) for subject in subjects or [name]):
            yield Finding(
                path, "republish-cycle", "what is republished would be stored again: dest overlaps the stream's subjects"
            )


def _check_namespace(path: tuple[str | int, ...], subject: str) -> Iterator[Finding]:
    if subject == ">":
        yield Finding(path, "system-subject", '">" captures every subject: the server wants noAck: true with it')
    elif any(overlap(subject, space) for space in _SYSTEM_SPACES) and not any(
        covers(space, subject) for space in _SYSTEM_EXCEPTIONS
    ):
        yield Finding(
            path, "system-subject", f"{quoted(subject)} overlaps the server's own subjects: it wants noAck: true with that"
        )


def _check_discard(config: Config) -> Iterator[Finding]:
    if not config.get("discard_new_per_subject"):
        return
    path = ("spec", "discardNewPerSubject")
    if config.get("discard") != "new":
        yield Finding(path, "discard-new-per-subject", "discardNewPerSubject needs discard: new")
    if config.get("max_msgs_per_subject", 0) <= 0:
        yield Finding(path, "discard-new-per-subject", "discardNewPerSubject needs maxMsgsPerSubject")


def _check_forced(config: Config) -> Iterator[Finding]:
    for cause, field, yaml, refused in _FORCED:
        if config.get(cause) and config.get(field) is refused:
            message = (
                f"{_YAML[cause]} makes the server set {yaml} to {'true' if refused is False else 'false'}, whatever is declared"
            )
            yield Finding(("spec", yaml), "forced-value", message)
    markers = config.get("subject_delete_marker_ttl") or config.get("allow_msg_schedules")
    if config.get("allow_rollup_hdrs") and config.get("deny_purge") and not markers and not config.get("sealed"):
        yield Finding(("spec", "allowRollupHdrs"), "rollup-needs-purge", "allowRollupHdrs cannot go with denyPurge: true")


def _check_counter(config: Config) -> Iterator[Finding]:
    if config.get("persist_mode") == "async":
        if config.get("storage") == "memory":
            yield Finding(("spec", "persistMode"), "async-persist", "persistMode: async needs storage: file")
        if config.get("allow_atomic"):
            yield Finding(("spec", "persistMode"), "async-persist", "persistMode: async cannot go with allowAtomic")
    if not config.get("allow_msg_counter"):
        return
    refused = {
        "discard": config.get("discard") == "new",
        "allowMsgTtl": bool(config.get("allow_msg_ttl")),
        "subjectDeleteMarkerTtl": bool(config.get("subject_delete_marker_ttl")),
        "allowMsgSchedules": bool(config.get("allow_msg_schedules")),
        "retention": config.get("retention", "limits") != "limits",
    }
    for field, there in refused.items():
        if there:
            yield Finding(("spec", field), "counter-stream", f"a counter stream cannot have this {field}")


def _check_placing(config: Config) -> Iterator[Finding]:
    if config.get("placement", {}).get("preferred"):
        path = ("spec", "placement", "preferred")
        yield Finding(
            path, "placement-preferred", "a preferred leader can be asked for once, never be declared: the server refuses it"
        )
    if config.get("mirror_direct") and "mirror" not in config:
        yield Finding(("spec", "mirrorDirect"), "mirror-direct", "mirrorDirect needs a mirror")
    if config.get("num_replicas", 0) > 1 and config.get("num_replicas", 0) % 2 == 0:
        yield warning(
            ("spec", "replicas"), "even-replicas", "an even number of replicas tolerates no more failures than one less"
        )


def _check_transforms(config: Config) -> Iterator[Finding]:
    transform = config.get("subject_transform")
    if transform:
        path = ("spec", "subjectTransform")
        if not transform["dest"]:
            yield Finding((*path, "dest"), "bad-value", "dest must not be empty")
        yield from check_transform(path, transform)


def stored_subjects(name: str, config: Config) -> list[str] | None:
    """Every subject a stream can hold; None when that depends on other streams."""
    if config.get("mirror") or config.get("sources"):
        return None
    subjects: list[str] = list(config.get("subjects") or [name])
    transform = config.get("subject_transform")
    if transform and transform["dest"] and not problem_with(pattern_of(transform["dest"])):
        subjects.append(pattern_of(transform["dest"]))
    return subjects
