"""A document of ours → the one NACK would have made the same resource from.

Invariant: where NACK's CRDs would fill in something else than the server, the value is written out; what NACK cannot say
is noted.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from reconciler.manifests.nack.fields import DELIVER_POLICIES, KINDS, NACK_VERSION
from reconciler.model import units

Manifest = dict[str, Any]

_OBJECT_NAME = 253
_DAYS_AND_HOURS = re.compile(r"(\d+)d(?:(\d+)h)?")
_SIZES = ("maxBytes", "maxMsgSize", "maxValueSize")
_DURATIONS = (
    "maxAge duplicateWindow subjectDeleteMarkerTtl ackWait backoff maxExpires inactiveThreshold idleHeartbeat priorityTimeout ttl"
).split()
_NOT_IN_OBJECT_NAME = re.compile(r"[^a-z0-9.-]+")


def to_nack(document: Mapping[str, Any], notes: list[str], taken: set[str]) -> Manifest:
    """NACK's document; `taken` are the names of objects that already have one, to which this one's is added."""
    kind, name, spec = document["kind"], document["metadata"]["name"], document["spec"]
    stream = spec.get("stream", "")
    where = "/".join(filter(None, (kind, stream, name)))
    table = KINDS[kind]
    theirs = {ours: nack for nack, ours in table.names.items()} | {"domain": "jsDomain"}
    body: Manifest = {table.identity: name}
    for field, value in _filled_in(kind, spec).items():
        if field in theirs:
            body[theirs[field]] = _value(field, value)
        else:
            notes.append(f"{where}: NACK cannot say {field}")
    if kind == "Stream" and "maxAge" not in body:
        notes.append(f"{where}: has no maxAge; NACK's control loop would make a new one with a year")
    metadata = {"name": _object_name(kind, "-".join(filter(None, (stream, name))), taken)}
    return {"apiVersion": NACK_VERSION, "kind": kind, "metadata": metadata, "spec": body}


def _object_name(kind: str, name: str, taken: set[str]) -> str:
    """A name that Kubernetes accepts, told apart by a short hash where two become one."""
    plain = _NOT_IN_OBJECT_NAME.sub("-", name.lower()).strip("-.")[:_OBJECT_NAME] or "x"
    if f"{kind}/{plain}" in taken:
        short = hashlib.blake2b(name.encode(), digest_size=4).hexdigest()
        plain = f"{plain[: _OBJECT_NAME - len(short) - 1].rstrip('-.')}-{short}"
    taken.add(f"{kind}/{plain}")
    return plain


def _filled_in(kind: str, spec: Mapping[str, Any]) -> Manifest:
    """The spec with what NACK would otherwise fill in differently."""
    said = dict(spec)
    if kind == "Stream":
        return {"storage": "file"} | said
    if kind != "Consumer":
        return said
    said.setdefault("ackPolicy", "explicit")
    if said.get("priorityPolicy") == "pinned_client":
        said.setdefault("priorityTimeout", "2m")
    if "ackWait" not in said and "backoff" not in said and said["ackPolicy"] != "flow_control":
        said["ackWait"] = "0s" if said["ackPolicy"] == "none" else "30s"
    return said


def _value(field: str, value: Any) -> Any:  # noqa: ANN401 - plain YAML in, plain YAML out
    if field == "deliverPolicy":
        return next(theirs for theirs, ours in DELIVER_POLICIES.items() if ours == value)
    if field == "republish":
        moved = {"source": value.get("src"), "destination": value["dest"], "headers_only": value.get("headersOnly")}
        return {name: item for name, item in moved.items() if item}
    if field == "subjectTransform":
        return _transform(value)
    if field == "mirror":
        return _source(value)
    if field == "sources":
        return [_source(entry) for entry in value]
    return _plain(field, value)


def _plain(field: str, value: Any) -> Any:  # noqa: ANN401 - as above
    """NACK takes sizes as numbers and knows no unit above the hour."""
    if field in _SIZES and isinstance(value, str):
        return units.parse_size(value)
    if field == "limitMarkerTtl":
        return units.parse_duration(value)
    if field in _DURATIONS:
        return [_go(item) for item in value] if isinstance(value, list) else _go(value)
    if field == "consumerLimits" and "inactiveThreshold" in value:
        return value | {"inactiveThreshold": _go(value["inactiveThreshold"])}
    return value


def _go(duration: str) -> str:
    return _DAYS_AND_HOURS.sub(lambda found: f"{int(found[1]) * 24 + int(found[2] or 0)}h", duration)


def _transform(value: Mapping[str, Any]) -> Manifest:
    return {"source": value.get("src", ""), "dest": value["dest"]}


def _source(entry: Mapping[str, Any]) -> Manifest:
    external = entry.get("external") or {}
    moved = {name: item for name, item in entry.items() if name not in ("external", "subjectTransforms")}
    if "subjectTransforms" in entry:
        moved["subjectTransforms"] = [_transform(transform) for transform in entry["subjectTransforms"]]
    prefixes = {"externalApiPrefix": external.get("api"), "externalDeliverPrefix": external.get("deliver")}
    return moved | {name: prefix for name, prefix in prefixes.items() if prefix}
