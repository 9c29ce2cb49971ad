"""Live state → manifest documents, so that planning them against the same state finds nothing to do but adopt.

Invariant: only what a default does not say is written, in one canonical form and order; whatever a manifest cannot say is
noted, never left out in silence. What is kept for the reconciler's or the server's own use never appears.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import ValidationError

from reconciler.manifests.compile import Context, compile_document
from reconciler.manifests.envelope import name_problem
from reconciler.manifests.export.sources import ExportedSources, kept_for, reads
from reconciler.manifests.nack.export import to_nack
from reconciler.manifests.reference.fields import KINDS, fields_of
from reconciler.manifests.syntax.document import Document
from reconciler.model.flow import with_domains
from reconciler.model.identity import API_VERSION, Key, Location
from reconciler.model.kinds.buckets import (
    KeyValueSpec,
    ObjectStoreSpec,
    compile_key_value,
    compile_object_store,
    key_value_options,
    object_store_options,
)
from reconciler.model.kinds.common import RESERVED_METADATA
from reconciler.model.marker import Marker
from reconciler.model.normal import Config, digest, normal_consumer, normal_form, normal_stream
from reconciler.model.residue import SOURCES
from reconciler.model.seen.live import EVERY_STREAM, Live, LiveConsumer, LiveStream
from reconciler.model.sourcing import is_managed
from reconciler.plan.comparing.diff import known_fields
from reconciler.plan.comparing.display import yaml_spec, yaml_value

Format = Literal["yaml", "nack"]
Manifest = dict[str, Any]

HEADER = (
    "# Written by `reconciler export`. Editors check it against what `reconciler schema > reconciler.schema.json` wrote.\n"
    "# yaml-language-server: $schema=reconciler.schema.json\n"
)
_INTERNAL_STREAM = re.compile(r"_reconciler.*|KV_reconciler-.*|(?P<claims>KV_.+-claims-.+)")
_SERVER_METADATA = ("_nats.level", "_nats.req.level", "_nats.ver")


@dataclass(frozen=True, slots=True)
class Exported:
    """The documents in order, and what a reader has to know about what they do not say."""

    documents: tuple[Manifest, ...]
    notes: tuple[str, ...]


@dataclass(slots=True)
class _Writer:
    live: Live
    documents: list[Manifest] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def note(self, key: Key, text: str) -> None:
        self.notes.append(f"{key}: {text}")


def export(live: Live, stream: str | None = None, fmt: Format = "yaml") -> Exported:
    """Every stream (or the one of that name) with its consumers."""
    writer = _Writer(live)
    for key in sorted(key for key in live.streams if stream in (None, key.name)):
        internal = _INTERNAL_STREAM.fullmatch(key.name)
        if internal:
            if internal["claims"]:
                writer.note(key, "left out: by its name it holds the claims of a worker pool, which the reconciler keeps itself")
            continue
        _write_stream(writer, key, live.streams[key])
        for name in sorted(live.consumers_of(key)):
            _write_consumer(writer, Key("Consumer", name, key.name, key.domain), live.consumers_of(key)[name])
    for key, reason in sorted(live.unknown.items()):
        if stream in (None, key.name) or key.name == EVERY_STREAM:
            writer.note(key, f"not exported, or not completely: {reason}")
    if fmt == "yaml":
        return Exported(tuple(map(with_domains, writer.documents)), tuple(writer.notes))
    taken: set[str] = set()
    return Exported(tuple(to_nack(document, writer.notes, taken) for document in writer.documents), tuple(writer.notes))


def _write_stream(writer: _Writer, key: Key, seen: LiveStream) -> None:
    config = seen.config
    sources = ExportedSources(writer.live, key, seen.marker.residue)
    normal = sources.declared(_declared_view(normal_stream(config, key.name, writer.live.server.level), seen.marker))
    for note in sources.notes:
        writer.note(key, note)
    _note_unsayable(writer, key, normal, config)
    bucket = _as_bucket(key, normal, writer.live.server.level)
    document = _document(*bucket) if bucket else _document(key, yaml_spec("Stream", _as_written(normal)))
    if normal.get("sealed"):
        writer.note(key, "is sealed, and a stream cannot be created sealed: this document describes it, but cannot restore it")
    _add(writer, key, document, normal)


def _write_consumer(writer: _Writer, key: Key, seen: LiveConsumer) -> None:
    config = seen.config
    if seen.server_made:
        return
    if aggregate := kept_for(seen):
        if not reads(writer.live, aggregate, key):
            writer.note(key, f"left out: it is kept for {aggregate.resource_key}, which does not read through it")
        return
    if not config.get("durable_name") and not seen.owner:
        writer.note(key, "left out: it is not durable, so whoever uses it makes it")
        return
    stream = writer.live.streams[key.stream_key]
    normal = _declared_view(normal_consumer(config, stream.limits or {}), seen.marker)
    _note_unsayable(writer, key, normal, config)
    spec = yaml_spec("Consumer", normal)
    policy = spec.pop("ackPolicy", "none")
    if policy != "explicit":
        spec["ackPolicy"] = policy
    if config.get("pause_until"):
        if seen.marker.pause_until == config["pause_until"]:
            spec["pauseUntil"] = config["pause_until"]
        else:
            writer.note(
                key, f"is paused until {config['pause_until']}, by hand: not exported, and left alone as long as undeclared"
            )
    _add(writer, key, _document(key, spec), normal)


def _declared_view(normal: Config, marker: Marker) -> Config:
    """What the manifest said before a procedure had to leave something different for good."""
    view = dict(normal)
    for row in marker.residue:
        if row.field == SOURCES:
            continue  # one row for each entry, see `export_sources`
        if row.declared is None:
            view.pop(row.field, None)
        else:
            view[row.field] = row.declared
    return view


def _note_unsayable(writer: _Writer, key: Key, normal: Config, config: Mapping[str, Any]) -> None:
    """Takes out what no manifest can declare; a plan carries such things over."""
    unknown = sorted(set(normal) - known_fields(key))
    for name in unknown:
        del normal[name]
        writer.note(key, f"{name} is a field of a newer server: left out, and left as it is")
    for name in sorted(config.get("metadata") or {}):
        if name.startswith(RESERVED_METADATA[0]) and name not in _SERVER_METADATA:
            writer.note(key, f"metadata {name} is in the server's own name space: left out")


def _as_written(normal: Config) -> Config:
    """With what a manifest has to say of entries, and the server does not."""
    entries = {name: normal[name] for name in ("mirror", "sources") if name in normal}
    return normal | {
        name: [_written_entry(entry) for entry in value] if isinstance(value, list) else _written_entry(value)
        for name, value in entries.items()
    }


def _written_entry(entry: Mapping[str, Any]) -> Config:
    """A transform that only filters has an empty destination; a durable that we keep is managed."""
    said = dict(entry)
    if "subject_transforms" in entry:
        said["subject_transforms"] = [{"dest": "", **transform} for transform in entry["subject_transforms"]]
    if is_managed(entry):
        said["consumer"] = {**entry["consumer"], "server_managed": True}
    return said


def _as_bucket(key: Key, normal: Config, level: int) -> tuple[Key, Manifest] | None:
    """The bucket that compiles to exactly this stream, if there is one."""
    bucket = key.resource_key
    if bucket == key or name_problem(bucket.kind, bucket.name):
        return None
    is_kv = bucket.kind == "KeyValue"
    options = _key_value(bucket.name, normal) if is_kv else _with_placement(object_store_options(normal), normal)
    try:
        compiled = (
            compile_key_value(bucket.name, KeyValueSpec.model_validate(options))
            if is_kv
            else compile_object_store(bucket.name, ObjectStoreSpec.model_validate(options))
        )
    except ValidationError:
        return None
    same = digest(normal_stream(compiled, key.name, level)) == digest(normal)
    return (bucket, _canonical_options(bucket.kind, options)) if same else None


def _with_placement(options: Manifest, normal: Config) -> Manifest:
    model = KINDS["Stream"]
    found = {name: yaml_value(model, name, normal[name]) for name in ("placement", "republish") if name in normal}
    return options | found


def _key_value(bucket: str, normal: Config) -> Manifest:
    options = _with_placement(key_value_options(normal), normal)
    model = KINDS["Stream"]
    if "mirror" in normal:
        options["mirror"] = yaml_value(model, "mirror", _bare_source(normal["mirror"], bucket))
    if "sources" in normal:
        options["sources"] = [yaml_value(model, "mirror", _bare_source(entry, bucket)) for entry in normal["sources"]]
    return options


def _bare_source(entry: Mapping[str, Any], bucket: str) -> Config:
    """A source without what every client adds to it."""
    origin = entry["name"].removeprefix("KV_")
    bare = {**entry, "name": origin}
    if entry.get("subject_transforms") == [{"src": f"$KV.{origin}.>", "dest": f"$KV.{bucket}.>"}]:
        del bare["subject_transforms"]
    return _written_entry(bare)


def _canonical_options(kind: str, options: Manifest) -> Manifest:
    """Without what a bucket has anyway, in the units of a manifest."""
    fields = fields_of(KINDS[kind])
    units_of = {"ttl": "max_age", "limitMarkerTtl": "max_age", "maxBytes": "max_bytes", "maxValueSize": "max_bytes"}
    written = {
        name: yaml_value(KINDS["Stream"], units_of[name], value) if name in units_of else value for name, value in options.items()
    }
    return {name: value for name, value in written.items() if value != fields[name].default}


def _document(key: Key, spec: Mapping[str, Any]) -> Manifest:
    where = {"stream": key.stream, "domain": key.domain}
    ranks = {name: rank for rank, name in enumerate(fields_of(KINDS[key.kind]))}
    ordered = {name: spec[name] for name in sorted(spec, key=lambda name: ranks[name])}
    body = {name: value for name, value in where.items() if value} | ordered
    return {"apiVersion": API_VERSION, "kind": key.kind, "metadata": {"name": key.name}, "spec": body}


def _add(writer: _Writer, key: Key, document: Manifest, normal: Config) -> None:
    """Adds a document after reading it back: what does not come out as it is on the server is said here, not found later."""
    writer.documents.append(document)
    compiled = compile_document(Document(document, Location("export")), Context())
    for problem in compiled.problems:
        if problem.severity == "error":
            writer.note(key, f"the server has what a manifest may not say: {problem.field or problem.code}: {problem.message}")
    declared = compiled.declares
    if declared is not None and _meaning(writer, key, declared) != normal:
        writer.note(key, "is not exactly what its document says: see `reconciler plan --adopt`")


def _meaning(writer: _Writer, key: Key, declared: Any) -> Config:  # noqa: ANN401 - a Declared, as every resource compiles to one
    return normal_form(key, declared.config, writer.live.streams[key.stream_key].limits or {}, writer.live.server.level)
