"""Faults of manifests while they are being looked for: by field path first, by line and column only once it is sure.

Invariant: a document gives a bounded number of problems in bounded time, however large it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, get_args

from pydantic import BaseModel, ValidationError

from reconciler.errors import Problem
from reconciler.manifests.suggest import quoted, suggest, suggest_field
from reconciler.manifests.syntax.document import Document, join_path
from reconciler.manifests.syntax.yaml import locate
from reconciler.model.identity import Location

Step = str | int
Path = tuple[Step, ...]

MAX_FINDINGS = 20
"""Of one document."""
_LOCATE_BYTES = 512 * 1024
"""Finding a field means reading its document again; what is left when these are spent stands at the first line."""


class Finding(NamedTuple):
    """One fault, by the path of the field that is to blame."""

    path: Path
    code: str
    message: str
    severity: str = "error"


class Fault(NamedTuple):
    """A finding, and the document it is about."""

    location: Location
    finding: Finding


def warning(path: Path, code: str, message: str) -> Finding:
    """A fault that nobody has to mend."""
    return Finding(path, code, message, "warning")


def to_problems(document: Document, findings: Iterable[Finding]) -> tuple[Problem, ...]:
    """The same with file, line and column."""
    found = sorted(findings, key=lambda finding: finding.severity)  # errors first
    shown, rest = found[:MAX_FINDINGS], found[MAX_FINDINGS:]
    if rest:
        message = f"{len(rest)} more problems in this document are not shown"
        shown.append(Finding((), "too-many-problems", message, rest[0].severity))
    affordable = _LOCATE_BYTES // _length(document)
    return tuple(_problem(document, finding, exact=number < affordable) for number, finding in enumerate(shown))


def _length(document: Document) -> int:
    """About how many bytes must be read to find a field of the document: up to the next one of its text."""
    text = document.text
    # Texts are cut: one this long is either one long document, or so odd that going through it again and again would not end.
    if text is None or len(text.data) > 2 * _LOCATE_BYTES:
        return _LOCATE_BYTES + 1
    rest = text.data.split(b"\n", document.location.line - text.line)[-1]
    end = rest.find(b"\n---")
    return max(end if end >= 0 else len(rest), 1)


def _problem(document: Document, finding: Finding, *, exact: bool) -> Problem:
    item = document.location.item
    written = finding.path if item is None else ("items", item, *finding.path)
    line, column = locate(document, written) if exact else (document.location.line, 1)
    path = "".join(char if char.isprintable() else "?" for char in join_path(written)[:200])
    return Problem(document.location.file, line, column, finding.code, finding.message, path, finding.severity)


def from_validation(error: ValidationError, model: type[BaseModel], root: Path) -> Iterator[Finding]:
    """What pydantic found, in plain words."""
    for number, fault in enumerate(error.errors(include_url=False)):
        steps: Path = tuple(fault["loc"])
        if number < MAX_FINDINGS:
            yield _explained(fault, model, steps, root + steps)
        else:  # counted, but never shown
            yield Finding(root + steps, "bad-value", fault["msg"])


def _explained(fault: Any, model: type[BaseModel], steps: Path, path: Path) -> Finding:  # noqa: ANN401 - pydantic's ErrorDetails
    kind, context, value = fault["type"], fault.get("ctx", {}), fault["input"]
    if kind == "extra_forbidden":
        name = str(steps[-1])
        return Finding(path, "unknown-field", f"unknown field {quoted(name)}{suggest_field(name, fields_at(model, steps[:-1]))}")
    if kind == "missing":
        return Finding(path, "missing-field", f"{steps[-1]} is required")
    if kind == "literal_error":
        hint = (
            suggest(value, (word.strip("'") for word in context["expected"].replace(" or ", ", ").split(", ")))
            if isinstance(value, str)
            else ""
        )
        return Finding(path, "bad-value", f"{quoted(value)} is not one of {context['expected'].replace(chr(39), '')}{hint}")
    if kind == "value_error":
        return Finding(path, "bad-value", str(context["error"]))
    if kind in _LIMITS:
        return Finding(path, "bad-value", _LIMITS[kind].format(**context))
    expected = next((words for start, words in _EXPECTED if kind.startswith(start)), "a different value")
    return Finding(path, "wrong-type", f"must be {expected}, not {_type_name(value)}")


_LIMITS = {
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be more than {gt}",
    "less_than_equal": "must be at most {le}",
    "string_too_long": "must be at most {max_length} characters long",
    "string_too_short": "must not be empty",
    "string_pattern_mismatch": "does not have the form {pattern}",
    "string_unicode": "contains half of a surrogate pair, which is no character",
}
_EXPECTED = (
    ("string", "text"),
    ("int", "a whole number"),
    ("float", "a number"),
    ("bool", "true or false"),
    ("list", "a list"),
    ("tuple", "a list"),
    ("dict", "a mapping"),
    ("model", "a mapping"),
)


def _type_name(value: object) -> str:
    if value is None:
        return "nothing"
    names = {
        bool: "true or false",
        int: "a number",
        float: "a fraction",
        str: f"the text {quoted(value)}",
        list: "a list",
        dict: "a mapping",
    }
    return names.get(type(value), "this")


def fields_at(model: type[BaseModel], steps: Path) -> list[str]:
    """The YAML names of the fields at a place within a model."""
    for step in steps:
        if isinstance(step, int):
            continue
        info = next((info for info in model.model_fields.values() if info.alias == step), None)
        inner = model_in(info.annotation) if info else None
        if inner is None:
            return []
        model = inner
    return [info.alias for info in model.model_fields.values() if info.alias]


def model_in(annotation: Any) -> type[BaseModel] | None:  # noqa: ANN401 - whatever typing allows
    """The first model inside a type."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for part in get_args(annotation) if (model := model_in(part))), None)
