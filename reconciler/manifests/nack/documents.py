"""NACK manifests as they are: a `jetstream.nats.io/v1beta2` document → the document of ours that means the same.

What NACK's CRDs fill in is written out, and where the controller adds something of its own to what it sends, so is that:
a resource that NACK made shows no difference.
Invariant: nothing in a NACK document is dropped in silence; what cannot be honoured is a warning, what is unknown an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from reconciler.manifests.findings import Finding, Path, warning
from reconciler.manifests.nack.fields import (
    CONNECTION,
    DELIVER_POLICIES,
    KINDS,
    NACK_VERSION,
    OBJECT_METADATA,
    PREVENT,
    NackKind,
)
from reconciler.manifests.suggest import quoted, suggest
from reconciler.model.identity import API_VERSION

Spec = dict[str, Any]

_TOP = ("apiVersion", "kind", "metadata", "spec", "status")
_SOURCE = ("name", "optStartSeq", "optStartTime", "filterSubject", "externalApiPrefix", "externalDeliverPrefix")
_SOURCE_FIELDS = (*_SOURCE, "subjectTransforms", "consumer")
_CONTROLLER_ACK_WAIT = "30s"
_CONTROLLER_PINNED_TTL = "5m"
# Where the two languages say the same thing at different places; for positions of what is found wrong later.
_WRITTEN: Mapping[str, str] = {
    "src": "source",
    "dest": "destination",
    "api": "externalApiPrefix",
    "deliver": "externalDeliverPrefix",
}


def is_nack(value: Mapping[str, object]) -> bool:
    """Whether this is a document of NACK's."""
    return value.get("apiVersion") == NACK_VERSION


def translate(value: Mapping[str, Any], findings: list[Finding]) -> dict[str, Any] | None:
    """The document in our own language, or None after saying what is wrong with it."""
    before = len(findings)
    kind, metadata, spec = value.get("kind"), value.get("metadata"), value.get("spec")
    findings += _unknown(value, _TOP, ())
    table = KINDS.get(kind) if isinstance(kind, str) else None
    if table is None:
        findings.append(Finding(("kind",), "unknown-kind", f"NACK's {quoted(kind)} is not known here{suggest(str(kind), KINDS)}"))
        return None
    for name, part in (("metadata", metadata), ("spec", spec)):
        if not isinstance(part, dict):
            findings.append(Finding((name,), "missing-field", f"{name} is required and must be a mapping"))
    if not isinstance(metadata, dict) or not isinstance(spec, dict):
        return None
    findings += _unknown(metadata, OBJECT_METADATA, ("metadata",))
    findings += _unknown(spec, (*table.known, *(("name",) if kind == "Consumer" else ())), ("spec",))
    native = {
        "apiVersion": API_VERSION,
        "kind": kind,
        "metadata": _metadata(spec, metadata, table, findings),
        "spec": _spec(str(kind), spec, table, findings),
    }
    wrong = any(finding.severity == "error" for finding in findings[before:])
    return None if wrong else native


def written_path(kind: str, path: Path) -> Path:
    """Where a field of the translated document stands in the one that was written, as well as that can be said."""
    if path[:2] == ("metadata", "name"):
        return ("spec", KINDS[kind].identity)
    if len(path) < 2 or path[0] != "spec":  # noqa: PLR2004 - the spec itself is at the same place
        return path
    back = {ours: theirs for theirs, ours in KINDS[kind].names.items()} | {"domain": "jsDomain"}
    steps = [back.get(step, step) if isinstance(step, str) else step for step in path[1:2]]
    for step in path[2:]:
        if step == "external":
            continue
        inner_dest = step == "dest" and path[1] != "republish"
        steps.append(step if inner_dest or not isinstance(step, str) else _WRITTEN.get(step, step))
    return ("spec", *steps)


def _unknown(there: Mapping[str, Any], known: tuple[str, ...], path: Path) -> Iterator[Finding]:
    for name in there:
        if name not in known:
            yield Finding((*path, name), "unknown-field", f"NACK has no field {quoted(name)} here{suggest(str(name), known)}")


def _metadata(spec: Spec, metadata: Mapping[str, Any], table: NackKind, findings: list[Finding]) -> dict[str, Any]:
    name = spec.get(table.identity)
    if not name:
        findings.append(Finding(("spec", table.identity), "missing-field", f"{table.identity} is required"))
    annotations = {key: value for key, value in (metadata.get("annotations") or {}).items() if str(key).startswith("reconciler/")}
    prevented = [what for field, what in PREVENT.items() if spec.get(field)]
    if prevented:
        annotations["reconciler/prevent"] = ",".join(prevented)
    named = {"name": name, "labels": metadata.get("labels"), "annotations": annotations}
    return {key: value for key, value in named.items() if value}


def _spec(kind: str, spec: Spec, table: NackKind, findings: list[Finding]) -> Spec:
    for field in CONNECTION:
        if spec.get(field):
            message = f"{field} is not used: all resources go over the one connection that the reconciler is given"
            findings.append(warning(("spec", field), "nack-connection", message))
    # For the controller an empty value, 0 and false are the same as nothing.
    given = {name: value for name, value in spec.items() if value not in (None, False, "", [], {})}
    native = {ours: given[theirs] for theirs, ours in table.names.items() if theirs in given}
    native |= {table.names[field]: default for field, default in table.defaults.items() if field not in given}
    if given.get("jsDomain"):
        native["domain"] = given["jsDomain"]
    if "republish" in given:
        native["republish"] = _republish(given["republish"], findings)
    if "mirror" in given:
        native["mirror"] = _source(given["mirror"], ("spec", "mirror"), findings)
    if isinstance(given.get("sources"), list):
        native["sources"] = [_source(entry, ("spec", "sources", place), findings) for place, entry in enumerate(given["sources"])]
    if type(given.get("limitMarkerTtl")) is int:  # the one duration of NACK's that is a number, of nanoseconds
        native["limitMarkerTtl"] = f"{given['limitMarkerTtl']}ns"
    if kind == "Stream":
        _stream(given, native, findings)
    elif kind == "Consumer":
        _consumer(spec, given, native, findings)
    return native


def _stream(given: Spec, native: Spec, findings: list[Finding]) -> None:
    if "subjectTransform" in given:
        native["subjectTransform"] = _transform(given["subjectTransform"], ("spec", "subjectTransform"), findings)
    if given.get("discardPerSubject"):
        native["discard"] = "new"
    if "maxAge" not in given:
        native["ignore"] = ["maxAge"]
        message = "maxAge is not said, and NACK's controllers differ in what that means (one year, or no limit): left as it is"
        findings.append(warning(("spec",), "nack-max-age", message))


def _consumer(spec: Spec, given: Spec, native: Spec, findings: list[Finding]) -> None:
    name, durable = given.get("name"), given.get("durableName")
    if name and durable and name != durable:
        message = f"name and durableName differ ({quoted(name)}, {quoted(durable)}): the server refuses that"
        findings.append(Finding(("spec", "name"), "bad-value", message))
    policy = native["deliverPolicy"]
    if isinstance(policy, str) and policy not in DELIVER_POLICIES:
        message = f"{quoted(policy)} is not one of {', '.join(DELIVER_POLICIES)}{suggest(policy, DELIVER_POLICIES)}"
        findings.append(Finding(("spec", "deliverPolicy"), "bad-value", message))
    else:
        native["deliverPolicy"] = DELIVER_POLICIES.get(policy, policy)
    if spec.get("ackWait") == "":
        native["ackWait"] = _CONTROLLER_ACK_WAIT
    unsaid = "ackWait" not in given
    if "backoff" in given or native["ackWait"] in ("0", "0s") or (unsaid and native["ackPolicy"] == "flow_control"):
        del native["ackWait"]  # the first backoff takes its place; flow control knows none
    if str(given.get("sampleFreq", "")).rstrip("%") == "0":
        del native["sampleFreq"]
    _priority(given, native)


def _priority(given: Spec, native: Spec) -> None:
    if given.get("priorityPolicy") in ("pinned_client", "pinned"):
        native["priorityPolicy"] = "pinned_client"
        native.setdefault("priorityTimeout", _CONTROLLER_PINNED_TTL)
        return
    native.pop("priorityTimeout", None)
    if given.get("priorityPolicy") in (None, "none"):
        native.pop("priorityPolicy", None)
        native.pop("priorityGroups", None)


def _republish(value: object, findings: list[Finding]) -> object:
    if not isinstance(value, dict):
        return value
    findings += _unknown(value, ("source", "destination", "headers_only"), ("spec", "republish"))
    moved = {"src": value.get("source"), "dest": value.get("destination"), "headersOnly": value.get("headers_only")}
    return {name: item for name, item in moved.items() if item}


def _transform(value: object, path: Path, findings: list[Finding]) -> object:
    if not isinstance(value, dict):
        return value
    findings += _unknown(value, ("source", "dest"), path)
    moved = {"src": value.get("source"), "dest": value.get("dest", "")}
    return {name: item for name, item in moved.items() if item or name == "dest"}


def _source(value: object, path: Path, findings: list[Finding]) -> object:
    if not isinstance(value, dict):
        return value
    findings += _unknown(value, _SOURCE_FIELDS, path)
    given = {name: item for name, item in value.items() if item not in (None, "", 0, [], {})}
    native = {name: item for name, item in given.items() if name in _SOURCE[:4]}
    prefixes = {"api": given.get("externalApiPrefix"), "deliver": given.get("externalDeliverPrefix")}
    external = {name: prefix for name, prefix in prefixes.items() if prefix}
    if external:
        native["external"] = external
    transforms = given.get("subjectTransforms")
    if isinstance(transforms, list):
        below = (*path, "subjectTransforms")
        native["subjectTransforms"] = [_transform(entry, (*below, place), findings) for place, entry in enumerate(transforms)]
    elif transforms is not None:
        native["subjectTransforms"] = transforms
    consumer = given.get("consumer")
    if isinstance(consumer, dict) and consumer.get("name"):
        native["consumer"] = consumer
    return native
