"""Kinds KeyValue and ObjectStore: buckets, which JetStream keeps in streams of a fixed shape.

Invariant: `compile_*` gives the stream that the official clients create for the same options, and `*_from_stream`
gives the bucket back, or None when the stream carries something a bucket cannot say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, Field

from reconciler.model.identity import Key
from reconciler.model.kinds.common import Metadata, ResourceSpec
from reconciler.model.kinds.fields import Duration, Size, to_wire
from reconciler.model.kinds.stream import Placement, Republish, Source
from reconciler.model.units import SECOND

_KV = Key("KeyValue", "").stream_name
"""A source may be named by its bucket or by its stream."""
_TWO_MINUTES = 120 * SECOND
BUCKET_WORDS: Mapping[str, str] = {
    "max_msgs_per_subject": "history",
    "max_age": "ttl",
    "max_msg_size": "maxValueSize",
    "subject_delete_marker_ttl": "limitMarkerTtl",
}
"""What a manifest of a bucket calls fields of its stream."""
BUCKET_SHAPE: Mapping[str, Any] = {"discard": "new", "allow_rollup_hdrs": True, "deny_delete": True, "allow_direct": True}
"""What makes a stream a bucket, and no manifest says."""


class _BucketSpec(ResourceSpec):
    description: Annotated[str | None, Field(max_length=4096)] = None
    ttl: Annotated[Duration | None, Field(ge=0)] = None
    max_bytes: Size | None = None
    storage: Literal["file", "memory"] | None = None
    num_replicas: Annotated[
        int | None, Field(ge=0, le=5, alias="replicas", validation_alias=AliasChoices("replicas", "numReplicas"))
    ] = None
    placement: Placement | None = None
    compression: bool = False
    metadata: Metadata | None = None


class KeyValueSpec(_BucketSpec):
    """What can be declared of a key-value bucket."""

    history: Annotated[int, Field(ge=1, le=64)] = 1
    max_value_size: Annotated[Size | None, Field(le=2**31 - 1)] = None
    republish: Republish | None = None
    mirror: Source | None = None
    sources: list[Source] | None = None
    limit_marker_ttl: Annotated[Duration | None, Field(ge=0)] = None
    allow_direct: bool = True
    allow_msg_ttl: bool = False
    """Some clients turn it on for every bucket; others only with `limitMarkerTtl`."""


class ObjectStoreSpec(_BucketSpec):
    """What can be declared of an object bucket."""


def _common(bucket: Key, spec: _BucketSpec) -> dict[str, Any]:
    values = {
        "name": bucket.stream_name,
        "description": spec.description,
        "max_age": spec.ttl,
        "max_bytes": spec.max_bytes,
        "storage": spec.storage,
        "num_replicas": spec.num_replicas,
        "placement": to_wire(spec.placement),
        "compression": "s2" if spec.compression else None,
        "metadata": spec.metadata,
    }
    fixed = {"discard": "new", "allow_rollup_hdrs": True}
    return {name: value for name, value in values.items() if value is not None} | fixed


def _kv_source(source: Source, bucket: str) -> dict[str, Any]:
    """A source as clients write it: the other bucket's stream, its keys moved under ours."""
    wire: dict[str, Any] = to_wire(source)
    origin = source.name.removeprefix(_KV)
    wire["name"] = _KV + origin
    if origin != bucket and "subject_transforms" not in wire:
        wire["subject_transforms"] = [{"src": f"$KV.{origin}.>", "dest": f"$KV.{bucket}.>"}]
    return wire


def compile_key_value(bucket: str, spec: KeyValueSpec) -> dict[str, Any]:
    """The stream behind a key-value bucket."""
    config = _common(Key("KeyValue", bucket), spec) | {
        "max_msgs_per_subject": spec.history,
        "deny_delete": True,
        "allow_direct": spec.allow_direct,
        "duplicate_window": min(spec.ttl or _TWO_MINUTES, _TWO_MINUTES),
    }
    if spec.max_value_size is not None:
        config["max_msg_size"] = spec.max_value_size
    if spec.republish is not None:
        config["republish"] = to_wire(spec.republish)
    if spec.limit_marker_ttl:
        config["subject_delete_marker_ttl"] = spec.limit_marker_ttl
    if spec.allow_msg_ttl or spec.limit_marker_ttl:
        config["allow_msg_ttl"] = True
    if spec.mirror is not None:
        mirror = to_wire(spec.mirror) | {"name": _KV + spec.mirror.name.removeprefix(_KV)}
        return config | {"mirror": mirror, "mirror_direct": True}
    if spec.sources is not None:
        config["sources"] = [_kv_source(source, bucket) for source in spec.sources]
    return config | {"subjects": [f"$KV.{bucket}.>"]}


def compile_object_store(bucket: str, spec: ObjectStoreSpec) -> dict[str, Any]:
    """The stream behind an object bucket."""
    subjects = [f"$O.{bucket}.C.>", f"$O.{bucket}.M.>"]
    return _common(Key("ObjectStore", bucket), spec) | {"subjects": subjects, "allow_direct": True}


def _common_back(normal: Mapping[str, Any]) -> dict[str, Any]:
    names = {"description": "description", "max_age": "ttl", "max_bytes": "maxBytes", "storage": "storage"}
    names |= {"num_replicas": "replicas", "metadata": "metadata"}
    spec = {yaml: normal[wire] for wire, yaml in names.items() if wire in normal}
    if normal.get("compression") == "s2":
        spec["compression"] = True
    return spec


def key_value_options(normal: Mapping[str, Any]) -> dict[str, Any]:
    """The options (plain YAML names and numbers) a KV stream of this normal form was most likely made with."""
    spec = _common_back(normal)
    spec["history"] = normal.get("max_msgs_per_subject", 1)
    if "max_msg_size" in normal:
        spec["maxValueSize"] = normal["max_msg_size"]
    if "subject_delete_marker_ttl" in normal:
        spec["limitMarkerTtl"] = normal["subject_delete_marker_ttl"]
    elif normal.get("allow_msg_ttl"):
        spec["allowMsgTtl"] = True
    if not normal.get("allow_direct"):
        spec["allowDirect"] = False
    return spec


def object_store_options(normal: Mapping[str, Any]) -> dict[str, Any]:
    """The options an object bucket's stream of this normal form was most likely made with."""
    return _common_back(normal)
