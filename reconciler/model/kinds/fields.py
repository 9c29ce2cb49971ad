"""The field table: what JetStream knows about each field, carried as metadata on the pydantic models.

One row drives validation, JSON Schema, normalisation, diff, the wire format and the documentation.
Invariant: the Python name of a field is its name on the wire; the YAML name is its camelCase alias.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict
from pydantic.alias_generators import to_camel

from reconciler.model import subjects, units


class Mutability(StrEnum):
    """What the server lets an update do to a field of a live resource."""

    MUTABLE = "mutable"
    IMMUTABLE = "immutable"
    ONE_WAY = "one-way"
    """May be set on a live resource, never unset."""
    REMOVABLE = "removable"
    """May be removed from a live resource, never added or changed (a mirror: removing it promotes the stream)."""
    PARTLY = "partly"
    """Depends on the values (retention: limits ↔ interest, never to or from workqueue)."""


class Unit(StrEnum):
    """How a value is written in YAML while it is a plain number or string on the wire."""

    NONE = ""
    DURATION = "duration"
    SIZE = "size"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Wire:
    """One row of the table: a field that travels in the JetStream configuration."""

    doc: str
    default: object = None
    """What the server takes when the field is absent; None when absence is a value of its own."""
    unit: Unit = Unit.NONE
    mutability: Mutability = Mutability.MUTABLE
    level: int = 0
    """The API level (0: any supported server) from which on the field exists."""
    unordered: bool = False
    """A list whose order means nothing."""


@dataclass(frozen=True, slots=True)
class Column:
    """A row together with its two names."""

    wire_name: str
    name: str
    wire: Wire


def _duration(value: object) -> object:
    return units.parse_duration(value) if isinstance(value, str) else value


def _size(value: object) -> object:
    return units.parse_size(value) if isinstance(value, str) else value


def _time(value: object) -> object:
    return units.format_time(units.parse_time(value)) if isinstance(value, str) else value


def _subject(value: str) -> str:
    problem = subjects.problem_with(value)
    if problem:
        msg = f"subject {value[:60]!r} {problem}"
        raise ValueError(msg)
    return value


def _literal(value: str) -> str:
    _subject(value)
    if not subjects.is_literal(value):
        msg = f"subject {value[:60]!r} must not contain wildcards"
        raise ValueError(msg)
    return value


Duration = Annotated[int, BeforeValidator(_duration)]
Size = Annotated[int, BeforeValidator(_size)]
Time = Annotated[str, BeforeValidator(_time)]
Subject = Annotated[str, AfterValidator(_subject)]
LiteralSubject = Annotated[str, AfterValidator(_literal)]


class Spec(BaseModel):
    """Base of everything that is written in a manifest: strict, frozen, unknown fields refused."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        alias_generator=to_camel,
        validate_by_name=False,
        validate_by_alias=True,
        hide_input_in_errors=True,
    )


def yaml_name(model: type[BaseModel], wire_name: str) -> str:
    """The name a field has in YAML."""
    return model.model_fields[wire_name].alias or to_camel(wire_name)


def in_unit(value: Any, unit: Unit) -> Any:  # noqa: ANN401 - a scalar of YAML or JSON
    """A number as a manifest writes it, in its unit; everything else as it is."""
    if isinstance(value, bool) or not isinstance(value, int):
        return value
    if unit is Unit.DURATION:
        return units.format_duration(value)
    return units.format_size(value) if unit is Unit.SIZE else value


@functools.cache
def table(model: type[BaseModel]) -> Mapping[str, Column]:
    """The wire fields of a kind, by wire name; fields of our own (domain, state, …) are not in it."""
    rows: dict[str, Column] = {}
    for name, info in model.model_fields.items():
        wire = next((entry for entry in info.metadata if isinstance(entry, Wire)), None)
        if wire is not None:
            rows[name] = Column(name, yaml_name(model, name), wire)
    return MappingProxyType(rows)


def to_wire(value: Any) -> Any:  # noqa: ANN401 - plain JSON in, plain JSON out
    """A validated model (or list, or scalar) as it travels: wire names, absent fields left out."""
    if isinstance(value, Spec):
        columns = table(type(value))
        pairs = ((name, getattr(value, name)) for name in columns)
        return {name: to_wire(item) for name, item in pairs if item is not None}
    if isinstance(value, list | tuple):
        return [to_wire(item) for item in value]
    return value
