"""What every document has in common: apiVersion, kind, metadata and annotations.

Invariant: an Envelope comes out of a document that says unmistakably what it is about; its spec is not looked at here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from reconciler.manifests.findings import Finding, Path
from reconciler.manifests.nack.fields import NACK_VERSION
from reconciler.manifests.suggest import quoted, suggest
from reconciler.model.identity import API_VERSION, KINDS, MAX_NAME, valid_name

OTHER_KINDS = ("WorkerAssignment", "AssignmentIndex", "Environment", "Policy", "PartitionPlan")
_TOP = ("apiVersion", "kind", "metadata", "spec")
_METADATA = ("name", "labels", "annotations")
_BUCKET = re.compile(r"[A-Za-z0-9_-]+")
_OBJECT_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


class Envelope(NamedTuple):
    """A document, opened."""

    kind: str
    name: str
    annotations: dict[str, str]
    spec: dict[str, Any]


def open_envelope(value: dict[str, Any], findings: list[Finding]) -> Envelope | None:
    """The envelope, or None after saying what is wrong with it."""
    if (value.get("apiVersion"), value.get("kind")) == (API_VERSION, "Plan"):
        findings.append(_a_plan(value))
        return None
    before = len(findings)
    kind, metadata, spec = value.get("kind"), value.get("metadata"), value.get("spec")
    findings += _unknown(value, _TOP, ())
    if value.get("apiVersion") != API_VERSION:
        findings.append(_wrong_version(value))
    if not isinstance(kind, str) or (kind not in KINDS and kind not in OTHER_KINDS):
        findings.append(_wrong_kind(value))
        return None
    if not isinstance(metadata, dict):
        findings.append(_not_a_mapping("metadata", value))
        return None
    if spec is None and kind not in ("Consumer", "WorkerPool"):
        spec = {}
    if not isinstance(spec, dict):
        findings.append(_not_a_mapping("spec", value))
        return None
    annotations = _metadata(kind, metadata, findings)
    if any(finding.severity == "error" for finding in findings[before:]):
        return None
    return Envelope(kind, metadata["name"], annotations, spec)


def _unknown(there: dict[str, Any], known: tuple[str, ...], path: Path) -> Iterator[Finding]:
    for name in there:
        if name not in known:
            yield Finding((*path, name), "unknown-field", f"unknown field {quoted(name)}{suggest(name, known)}")


def _a_plan(value: dict[str, Any]) -> Finding:
    """Whoever reviewed it wants to apply it, and gives it like manifests."""
    if "inputs" in value:
        message = "this is a saved plan, and no manifest: it is applied with `reconciler apply FILE`, without -f"
    else:
        message = (
            "this is a plan that was printed, and no manifest: `plan --out FILE` writes one that `reconciler apply FILE` takes"
        )
    return Finding(("kind",), "plan-file", message)


def _wrong_version(value: dict[str, Any]) -> Finding:
    if value.get("apiVersion") is None:
        return Finding(("apiVersion",), "missing-field", f"apiVersion is required: {API_VERSION}")
    version = str(value["apiVersion"])
    expected = NACK_VERSION if version.startswith(NACK_VERSION.partition("/")[0]) else API_VERSION
    return Finding(("apiVersion",), "unknown-api-version", f"{quoted(version)} is not known here; expected {expected}")


def _wrong_kind(value: dict[str, Any]) -> Finding:
    if value.get("kind") is None:
        return Finding(("kind",), "missing-field", f"kind is required: one of {', '.join((*KINDS, *OTHER_KINDS))}")
    kind = value["kind"]
    known = (*KINDS, *OTHER_KINDS)
    hint = (suggest(kind, known) if isinstance(kind, str) else "") or f"; known are {', '.join(known)}"
    return Finding(("kind",), "unknown-kind", f"unknown kind {quoted(kind)}{hint}")


def _not_a_mapping(name: str, value: dict[str, Any]) -> Finding:
    if value.get(name) is None:
        return Finding((name,), "missing-field", f"{name} is required")
    return Finding((name,), "wrong-type", f"{name} must be a mapping")


def _metadata(kind: str, metadata: dict[str, Any], findings: list[Finding]) -> dict[str, str]:
    findings += _unknown(metadata, _METADATA, ("metadata",))
    findings += _name_faults(kind, metadata.get("name"))
    if "labels" in metadata:
        findings += _text_map(("metadata", "labels"), metadata["labels"])
    annotations = metadata.get("annotations")
    if annotations is None:
        return {}
    faults = [*_text_map(("metadata", "annotations"), annotations)]
    findings += faults
    return {} if faults else annotations


def _name_faults(kind: str, name: object) -> Iterator[Finding]:
    path = ("metadata", "name")
    if name is None:
        yield Finding(path, "missing-field", "metadata.name is required")
    elif not isinstance(name, str):
        yield Finding(path, "wrong-type", "the name must be text; write a number in quotes")
    elif reason := name_problem(kind, name):
        yield Finding(path, "bad-name", f"{quoted(name)} {reason}")


def name_problem(kind: str, name: str) -> str:
    """Why a resource of this kind cannot have this name; empty when it can."""
    if kind in ("KeyValue", "ObjectStore"):
        good = _BUCKET.fullmatch(name) is not None and len(name) <= MAX_NAME - len("OBJ_")
        return "" if good else "is no name of a bucket: letters, digits, - and _ only"
    if kind in OTHER_KINDS:
        return "" if _OBJECT_NAME.fullmatch(name) and len(name) <= MAX_NAME else "is no name: letters, digits, - _ and . only"
    if valid_name(name) and name.isprintable():
        return ""
    return "is refused by JetStream as a name: at most 255 characters, no white space, none of . * > / \\"


def _text_map(path: Path, value: object) -> Iterator[Finding]:
    if not isinstance(value, dict):
        yield Finding(path, "wrong-type", f"{path[-1]} must be a mapping")
        return
    for name, item in value.items():
        if not isinstance(item, str):
            yield Finding((*path, name), "wrong-type", "must be text; write true or a number in quotes")
