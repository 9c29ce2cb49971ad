"""`explain`: what one kind or field is, from the same table that validates, compares and sends it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel

from reconciler.errors import UsageError
from reconciler.manifests.reference.fields import KINDS, FieldDoc, fields_of, model_in
from reconciler.manifests.suggest import quoted, suggest
from reconciler.model.identity import API_VERSION

_MUTABILITY = {
    "mutable": "may be changed on a live resource",
    "immutable": "fixed at creation: a change needs a procedure or a new resource",
    "one-way": "may be turned on later, never off again",
    "removable": "may be removed later, never added or changed",
    "partly": "depends on the values: between limits and interest in place, to or from workqueue never",
}


@dataclass(frozen=True, slots=True)
class Explanation:
    """A kind (`field` is None) or one of its fields, with the fields below it."""

    path: str
    doc: str
    field: FieldDoc | None
    below: tuple[FieldDoc, ...]

    def rows(self) -> list[tuple[str, str]]:
        """Label and text, in the order to print."""
        if self.field is None:
            return []
        field = self.field
        rows = [("type", str(field.shape))]
        if field.required:
            rows.append(("required", "yes"))
        if field.default is not None:
            rows.append(("default", _plain(field.default)))
        if field.mutability:
            rows.append(("mutability", f"{field.mutability}: {_MUTABILITY[field.mutability]}"))
        if field.wire_name:
            rows.append(("on the wire", field.wire_name))
        rows.append(
            ("since", f"nats-server {field.server} (API level {field.level})" if field.level else "every supported server")
        )
        return rows

    def to_json(self) -> dict[str, Any]:
        """The same for programs."""
        document: dict[str, Any] = {"apiVersion": API_VERSION, "kind": "Explanation", "path": self.path, "doc": self.doc}
        if self.field is not None:
            document |= _field_json(self.field)
        return document | {"fields": [_field_json(field) for field in self.below]}

    def __str__(self) -> str:
        lines = [self.path, f"  {self.doc}", ""] if self.doc else [self.path, ""]
        lines += [f"  {label + ':':<13}{text}" for label, text in self.rows()]
        if self.below:
            width = max(len(field.name) for field in self.below)
            lines += ["", "fields:"] if self.rows() else ["fields:"]
            lines += [f"  {field.name:<{width}}  {field.doc}" for field in self.below]
        return "\n".join(lines)


def explain(path: str) -> Explanation:
    """What `Stream`, `Stream.maxAge` or `Stream.sources.filterSubject` is; raises UsageError with a suggestion."""
    kind, *steps = [step for step in path.split(".") if step != "spec"]
    by_lower = {name.lower(): name for name in KINDS}
    if kind.lower() not in by_lower:
        msg = f"there is no kind {quoted(kind)}{suggest(kind, KINDS)}; known: {', '.join(KINDS)}"
        raise UsageError(msg)
    kind = by_lower[kind.lower()]
    model: type[BaseModel] | None = KINDS[kind]
    field: FieldDoc | None = None
    walked = [kind]
    for step in steps:
        fields = fields_of(model) if model else {}
        known = {name: doc for doc in fields.values() for name in (doc.name, *doc.other_names)}
        if step not in known:
            msg = f"{'.'.join(walked)} has no field {quoted(step)}{suggest(step, known)}"
            raise UsageError(msg)
        field = _within(field, known[step])
        walked.append(field.name)
        model = model_in(field.shape)
    below = tuple(fields_of(model).values()) if model else ()
    return Explanation(".".join(walked), field.doc if field else _summary(KINDS[kind]), field, below)


def _within(outer: FieldDoc | None, field: FieldDoc) -> FieldDoc:
    """A part of something fixed is fixed, and no older than the whole."""
    if outer is None:
        return field
    rule = outer.mutability if outer.mutability not in ("", "mutable") else field.mutability
    return replace(field, mutability=rule, level=max(outer.level, field.level))


def _summary(model: type[BaseModel]) -> str:
    return (model.__doc__ or "").strip().split("\n")[0]


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _field_json(field: FieldDoc) -> dict[str, Any]:
    return {
        "name": field.name,
        "doc": field.doc,
        "type": str(field.shape),
        "required": field.required,
        "default": field.default,
        "mutability": field.mutability or None,
        "level": field.level,
        "server": field.server,
        "wire": field.wire_name or None,
    }
