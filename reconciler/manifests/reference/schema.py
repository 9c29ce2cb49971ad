"""JSON Schema (draft 07) of the manifest language, one per kind and one for all, for editors and other tools.

Invariant: whatever the models accept, the schema accepts; it says no only where the models would, though not everywhere they do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel

from reconciler.errors import UsageError
from reconciler.manifests.nack.fields import NACK_VERSION
from reconciler.manifests.reference.fields import KINDS, FieldDoc, Shape, fields_of, model_in
from reconciler.manifests.suggest import quoted, suggest
from reconciler.model.identity import API_VERSION

Schema = dict[str, Any]

DRAFT = "http://json-schema.org/draft-07/schema#"
SKIPPED_KINDS = ("PartitionPlan",)
"""Recognised and left to another program: their spec is not described here."""

_NUMBER = r"[0-9]+(\.[0-9]+)?"
_SUBJECT = r"^[^\s.]+(\.[^\s.]+)*$"
_LITERAL = r"^(?!(.*\.)?[*>](\.|$))[^\s.]+(\.[^\s.]+)*$"
_SIZE_UNITS = "B|KB|MB|GB|TB|PB|KiB|MiB|GiB|TiB|PiB|Ki|Mi|Gi|Ti"
_DURATION = {"type": "string", "pattern": rf"^\s*(0|({_NUMBER}(ns|us|µs|μs|ms|s|m|h|d|w))+)\s*$"}
_SIZE = {"type": "string", "pattern": rf"^\s*{_NUMBER}\s?({_SIZE_UNITS})\s*$"}
_TIME = r"^\s*[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2})\s*$"
_SCALARS: Mapping[str, Schema] = {
    "text": {"type": "string"},
    "integer": {"type": "integer"},
    "number": {"type": "number"},
    "boolean": {"type": "boolean"},
    "timestamp": {"type": "string", "pattern": _TIME},
    "subject": {"type": "string", "pattern": _SUBJECT},
    "literal": {"type": "string", "pattern": _LITERAL},
    "any": {},
}
_KEYWORDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "min_length": "minLength", "max_length": "maxLength"}
_KEYWORDS |= {"pattern": "pattern"}
_ANNOTATIONS: Schema = {
    "type": "object",
    "properties": {
        "reconciler/adopt": {"enum": ["true", "false"], "description": "Takes over a resource that carries no marker."},
        "reconciler/suspend": {"enum": ["true", "false"], "description": "Leaves the resource alone for now."},
        "reconciler/allow": {
            "type": "string",
            "description": "recreate, data-loss, position-loss, replicas; separated by commas.",
        },
        "reconciler/prevent": {"type": "string", "description": "update, delete; separated by commas."},
    },
    "additionalProperties": {"type": "string"},
}


def schema(kind: str | None = None) -> Schema:
    """The schema of one kind, or of any document; raises UsageError for a kind that does not exist."""
    if kind is None:
        return _complete(_any_document(), "A manifest of the reconciler")
    if kind not in KINDS:
        msg = f"there is no kind {quoted(kind)}{suggest(kind, KINDS)}; known: {', '.join(KINDS)}"
        raise UsageError(msg)
    return _complete(_document(kind), f"{kind} ({API_VERSION})", (KINDS[kind],))


def _complete(body: Schema, title: str, models: Iterable[type[BaseModel]] = ()) -> Schema:
    roots = tuple(models) or tuple(KINDS.values())
    definitions = {model.__name__: _object(model) for model in _reachable(roots)}
    if KINDS["Environment"] in roots:
        _describe_overlays(definitions)
    return {"$schema": DRAFT, "title": title, **body, "definitions": dict(sorted(definitions.items()))}


def _any_document() -> Schema:
    documents = [_document(kind) for kind in KINDS]
    documents += [
        {"type": "object", "properties": {"apiVersion": {"const": API_VERSION}, "kind": {"const": kind}}, "required": ["kind"]}
        for kind in SKIPPED_KINDS
    ]
    documents.append(
        {"type": "object", "properties": {"apiVersion": {"const": NACK_VERSION}}, "required": ["apiVersion", "kind"]}
    )
    return {"oneOf": documents}


def _document(kind: str) -> Schema:
    model = KINDS[kind]
    spec = _reference(model)
    needs_spec = any(field.required for field in fields_of(model).values())
    return {
        "type": "object",
        "description": _summary(model),
        "properties": {
            "apiVersion": {"const": API_VERSION},
            "kind": {"const": kind},
            "metadata": _metadata(),
            "spec": spec if needs_spec else {"anyOf": [spec, {"type": "null"}]},
        },
        "required": ["apiVersion", "kind", "metadata", *(["spec"] if needs_spec else [])],
        "additionalProperties": False,
    }


def _metadata() -> Schema:
    return {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 255},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "annotations": {"anyOf": [_ANNOTATIONS, {"type": "null"}]},
        },
        "required": ["name"],
        "additionalProperties": False,
    }


def _reachable(roots: Iterable[type[BaseModel]]) -> list[type[BaseModel]]:
    found: list[type[BaseModel]] = []
    waiting = list(roots)
    while waiting:
        model = waiting.pop()
        if model in found:
            continue
        found.append(model)
        waiting += [inner for field in fields_of(model).values() if (inner := model_in(field.shape))]
        if model is KINDS["Environment"]:
            waiting += [KINDS[kind] for kind in _overlaid()]
    return found


def _object(model: type[BaseModel]) -> Schema:
    fields = fields_of(model)
    properties: Schema = {}
    for field in fields.values():
        for name in (field.name, *field.other_names):
            properties[name] = _property(field)
    described: Schema = {
        "type": "object",
        "description": _summary(model),
        "properties": properties,
        "required": [field.name for field in fields.values() if field.required],
        "additionalProperties": False,
    }
    if model is KINDS["WorkerPool"]:  # a tombstone needs nothing but its name
        tombstone = {"properties": {"state": {"const": "absent"}}, "required": ["state"]}
        described["anyOf"] = [{"required": described.pop("required")}, tombstone]
    if model.__name__ == "External":
        described["oneOf"] = [{"required": ["api"]}, {"required": ["domain"]}]
    return described


def _property(field: FieldDoc) -> Schema:
    value = _value(field.shape, field.limits)
    if not field.required:
        value = {"anyOf": [value, {"type": "null"}]}
    notes = [field.doc]
    if field.mutability not in ("", "mutable"):
        notes.append(f"On a live resource: {field.mutability}.")
    if field.level:
        notes.append(f"Needs nats-server {field.server}.")
    described = {"description": " ".join(filter(None, notes)), **value}
    return described if field.default is None else {**described, "default": field.default}


def _value(shape: Shape, limits: Mapping[str, Any]) -> Schema:
    bounds = {_KEYWORDS[name]: limit for name, limit in limits.items()}
    match shape.name:
        case "enum":
            return {"enum": list(shape.values)}
        case "duration":
            return {"anyOf": [{"type": "integer"} | bounds, _DURATION]}
        case "size":
            return {"anyOf": [{"type": "integer"} | bounds, _SIZE]}
        case "list":
            assert shape.item is not None  # noqa: S101 - a list shape always has one
            return {"type": "array", "items": _value(shape.item, {})}
        case "mapping":
            assert shape.item is not None  # noqa: S101 - as above
            return {"type": "object", "additionalProperties": _value(shape.item, {})}
        case "object":
            assert shape.model is not None  # noqa: S101 - as above
            return _reference(shape.model)
    return _SCALARS[shape.name] | bounds


def _reference(model: type[BaseModel]) -> Schema:
    return {"$ref": f"#/definitions/{model.__name__}"}


def _overlaid() -> list[str]:
    environment = fields_of(KINDS["Environment"])
    defaults = model_in(environment["defaults"].shape)
    return list(fields_of(defaults)) if defaults else []


def _describe_overlays(definitions: Schema) -> None:
    """What an Environment adds to a kind is part of that kind's spec: the same fields, none required."""
    properties = definitions["Defaults"]["properties"]
    for kind in _overlaid():
        whole = definitions[KINDS[kind].__name__]
        overlay = {name: part for name, part in whole.items() if name not in ("required", "anyOf")}
        definitions[f"{kind}Overlay"] = overlay
        properties[kind] = {"description": properties[kind]["description"], "anyOf": [{"$ref": f"#/definitions/{kind}Overlay"}]}


def _summary(model: type[BaseModel]) -> str:
    return (model.__doc__ or "").strip().split("\n")[0]
