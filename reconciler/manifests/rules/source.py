"""Rules for the sources and the mirror of one stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from reconciler.manifests.findings import Finding, Path
from reconciler.manifests.rules.reserved import check_durable, check_subject
from reconciler.manifests.rules.transform import check_transform
from reconciler.manifests.suggest import quoted
from reconciler.model.api import JETSTREAM_API
from reconciler.model.flow import imported
from reconciler.model.identity import valid_name
from reconciler.model.normal import canonical
from reconciler.model.sourcing import is_managed
from reconciler.model.subjects import covers, is_literal, overlap, problem_with

Config = Mapping[str, Any]

_NOT_ON_MIRROR = {
    "subjects": "subjects",
    "sources": "sources",
    "first_seq": "firstSeq",
    "allow_msg_counter": "allowMsgCounter",
    "allow_msg_schedules": "allowMsgSchedules",
    "subject_delete_marker_ttl": "subjectDeleteMarkerTtl",
    "allow_atomic": "allowAtomic",
    "allow_batched": "allowBatched",
}


def check_mirror(name: str, config: Config) -> Iterator[Finding]:
    """What a mirror may not have, and its one entry."""
    for field, yaml in _NOT_ON_MIRROR.items():
        if config.get(field):
            yield Finding(("spec", yaml), "not-on-mirror", f"a mirror cannot have {yaml}")
    path = ("spec", "mirror")
    yield from _check_entry(path, config["mirror"])
    if config["mirror"]["name"] == name and "external" not in config["mirror"]:
        yield Finding((*path, "name"), "sourcing-cycle", "a stream cannot mirror itself")


def check_sources(name: str, config: Config) -> Iterator[Finding]:
    """Each entry by itself, and what two entries may not share."""
    if config.get("allow_msg_schedules"):
        yield Finding(("spec", "allowMsgSchedules"), "not-on-sources", "a stream with sources cannot schedule messages")
    seen: set[bytes] = set()
    for number, entry in enumerate(config["sources"]):
        path = ("spec", "sources", number)
        yield from _check_entry(path, entry)
        if entry["name"] == name and "external" not in entry:
            yield Finding((*path, "name"), "sourcing-cycle", "a stream cannot source itself")
        identity = canonical(entry)
        if identity in seen:
            yield Finding(path, "duplicate-source", f"{quoted(entry['name'])} is sourced twice in the same way")
        seen.add(identity)


def _check_entry(path: Path, entry: Config) -> Iterator[Finding]:
    if not valid_name(entry["name"]):
        yield Finding((*path, "name"), "bad-name", f"{quoted(entry['name'])} is no name of a stream")
    yield from check_subject((*path, "filterSubject"), entry.get("filter_subject") or "")
    transforms = entry.get("subject_transforms", [])
    if transforms and entry.get("filter_subject"):
        yield Finding(
            (*path, "filterSubject"), "filter-and-transforms", "give either filterSubject or subjectTransforms, not both"
        )
    for number, transform in enumerate(transforms):
        yield from check_transform((*path, "subjectTransforms", number), transform)
        src = transform.get("src", ">")
        yield from check_subject((*path, "subjectTransforms", number, "src"), src)
        yield from check_subject((*path, "subjectTransforms", number, "dest"), transform["dest"])
        others = (other.get("src", ">") for other in transforms[:number])
        if any(covers(src, other) or covers(other, src) for other in others):
            yield Finding(
                (*path, "subjectTransforms", number, "src"), "transforms-overlap", f"{quoted(src)} overlaps another transform"
            )
    if "external" in entry:
        yield from _check_external(path, entry["external"])
    if "consumer" in entry:
        yield from _check_consumer(path, entry)


def _check_external(path: Path, external: Config) -> Iterator[Finding]:
    for field in ("api", "deliver"):
        value = external.get(field)
        if value and (problem_with(value) or not is_literal(value)):
            yield Finding(
                (*path, "external"), "bad-external", f"{quoted(value)} is no subject prefix: no wildcards, no empty tokens"
            )
    api = external.get("api", "")
    if api == JETSTREAM_API or (not problem_with(api) and overlap(api, f"{JETSTREAM_API}.>")):
        yield Finding(
            (*path, "external"), "bad-external", "$JS.API is this side's own API; leave external out, or name the domain"
        )


def _check_consumer(path: Path, entry: Config) -> Iterator[Finding]:
    consumer = entry["consumer"]
    if not valid_name(consumer["name"]):
        yield Finding((*path, "consumer", "name"), "bad-name", f"{quoted(consumer['name'])} is no name of a consumer")
    if is_managed(entry):
        yield from _check_managed(path, entry)
        return
    yield from check_subject((*path, "consumer", "deliverSubject"), consumer["deliver_subject"])
    for field, yaml in (
        ("filter_subject", "filterSubject"),
        ("opt_start_seq", "optStartSeq"),
        ("opt_start_time", "optStartTime"),
    ):
        if entry.get(field):
            message = f"with a consumer of your own, {yaml} belongs to that Consumer"
            yield Finding((*path, yaml), "start-or-filter-on-source", message)


def _check_managed(path: Path, entry: Config) -> Iterator[Finding]:
    yield from check_durable((*path, "consumer", "name"), entry["consumer"]["name"])
    if entry.get("opt_start_seq") and entry.get("opt_start_time"):
        message = "give either optStartSeq or optStartTime, not both: a consumer starts at one place"
        yield Finding((*path, "optStartTime"), "start-twice", message)
    if imported(entry):
        message = (
            f"{quoted(entry['external']['api'])} is an account's import, through which no consumer can be kept: "
            "name the origin's domain (external: {domain: …}), "
            "or make the consumer over there and say {name, deliverSubject, unmanaged: true}"
        )
        yield Finding((*path, "consumer", "serverManaged"), "managed-import", message)
