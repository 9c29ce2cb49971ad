"""Every field of every kind as data: what `explain`, the JSON Schema and the generated pages are made of.

Invariant: nothing is said here by hand; it is read from the models, their field tables and the lines of `own_fields`.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import AliasChoices, BaseModel
from pydantic.fields import FieldInfo

from reconciler.manifests.environment import MODELS
from reconciler.manifests.reference.own_fields import DOCS, STANDS_FOR
from reconciler.model.kinds.documents import AssignmentIndexSpec, EnvironmentSpec, PolicySpec
from reconciler.model.kinds.fields import Duration, LiteralSubject, Size, Subject, Time, Unit, Wire, in_unit, table, yaml_name
from reconciler.model.kinds.pool import TEMPLATE_DEFAULTS, PoolConsumer, WorkerAssignmentSpec
from reconciler.model.kinds.stream import StreamSpec
from reconciler.plan.comparing.mutability import SERVER_OF_LEVEL

KINDS: Mapping[str, type[BaseModel]] = {
    **MODELS,
    "WorkerAssignment": WorkerAssignmentSpec,
    "Environment": EnvironmentSpec,
    "Policy": PolicySpec,
    "AssignmentIndex": AssignmentIndexSpec,
}
OLDEST_SERVER = "2.11"

_SPECIAL = {
    get_args(alias)[1].func: name
    for alias, name in (
        (Duration, "duration"),
        (Size, "size"),
        (Time, "timestamp"),
        (Subject, "subject"),
        (LiteralSubject, "literal"),
    )
}
_PLAIN: Mapping[Any, str] = {str: "text", int: "integer", float: "number", bool: "boolean"}


@dataclass(frozen=True, slots=True)
class Shape:
    """What may stand in a field: a word for a scalar, or what a list or mapping is made of."""

    name: str
    """text, integer, number, boolean, duration, size, timestamp, subject, literal, enum, list, mapping, object or any"""
    values: tuple[str, ...] = ()
    item: Shape | None = None
    model: type[BaseModel] | None = None

    def __str__(self) -> str:
        match self.name:
            case "enum":
                return " | ".join(self.values)
            case "list":
                return f"list of {self.item}"
            case "mapping":
                return f"mapping of text to {self.item}"
            case "literal":
                return "subject without wildcards"
            case "boolean":
                return "true | false"
        return self.name


@dataclass(frozen=True, slots=True)
class FieldDoc:
    """One field, ready to be shown."""

    name: str
    doc: str
    shape: Shape
    required: bool
    default: object = None
    """As it is written in a manifest; None when there is none."""
    mutability: str = ""
    level: int = 0
    wire_name: str = ""
    """Empty for a field of our own."""
    other_names: tuple[str, ...] = ()
    limits: Mapping[str, Any] = field(default_factory=dict)
    """Whatever was declared of ge, gt, le, min_length, max_length and pattern."""

    @property
    def server(self) -> str:
        """The first supported server that knows the field."""
        return SERVER_OF_LEVEL.get(self.level, OLDEST_SERVER)


def fields_of(model: type[BaseModel]) -> Mapping[str, FieldDoc]:
    """The fields of a model by YAML name, those of JetStream in the order of its table."""
    docs = [_field(model, name, info) for name, info in model.model_fields.items()]
    return {doc.name: doc for doc in docs}


def _field(model: type[BaseModel], python_name: str, info: FieldInfo) -> FieldDoc:
    name = yaml_name(model, python_name)
    column = table(model).get(python_name)
    wire = column.wire if column else None
    stands_for = table(StreamSpec)[STANDS_FOR[name]].wire if _is_bucket(model) and name in STANDS_FOR else None
    rules = wire or stands_for
    shape = _shape(info.annotation, info.metadata)
    own = _manifest_default(model, python_name) or _own_default(info, shape)
    return FieldDoc(
        name=name,
        doc=wire.doc if wire else _own_doc(model, name),
        shape=shape,
        required=info.is_required(),
        default=own if own is not None or rules is None else _default(rules),
        mutability=str(rules.mutability) if rules else "",
        level=rules.level if rules else 0,
        wire_name=python_name if wire else "",
        other_names=_other_names(info, name),
        limits=_limits(info),
    )


def _is_bucket(model: type[BaseModel]) -> bool:
    return model in (MODELS["KeyValue"], MODELS["ObjectStore"])


def _own_doc(model: type[BaseModel], name: str) -> str:
    """The line of the first class in the model's family that has one."""
    return next((DOCS[kind.__name__][name] for kind in model.__mro__ if name in DOCS.get(kind.__name__, {})), "")


def _manifest_default(model: type[BaseModel], python_name: str) -> object:
    """What a manifest means where it says nothing, and the server would mean something else."""
    if model is PoolConsumer and python_name in TEMPLATE_DEFAULTS:
        return in_unit(TEMPLATE_DEFAULTS[python_name], table(model)[python_name].wire.unit)
    return "explicit" if model is MODELS["Consumer"] and python_name == "ack_policy" else None


def _own_default(info: FieldInfo, shape: Shape) -> object:
    value = None if info.is_required() else info.default
    if value in (None, "", (), []) or isinstance(value, BaseModel):
        return None
    return in_unit(value, {"duration": Unit.DURATION, "size": Unit.SIZE}.get(shape.name, Unit.NONE))


def _default(wire: Wire) -> object:
    return None if wire.default in (None, "") else in_unit(wire.default, wire.unit)


def _other_names(info: FieldInfo, name: str) -> tuple[str, ...]:
    choices = info.validation_alias.choices if isinstance(info.validation_alias, AliasChoices) else ()
    return tuple(choice for choice in choices if isinstance(choice, str) and choice != name)


def _limits(info: FieldInfo) -> Mapping[str, Any]:
    names = ("ge", "gt", "le", "min_length", "max_length", "pattern")
    found = ((name, getattr(entry, name, None)) for entry in info.metadata for name in names)
    return {name: limit for name, limit in found if limit is not None}


def _shape(annotation: Any, metadata: list[Any]) -> Shape:  # noqa: ANN401 - whatever typing allows
    special = next((_SPECIAL[func] for entry in metadata if (func := getattr(entry, "func", None)) in _SPECIAL), None)
    if special:
        return Shape(special)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _shape(arguments[0], list(arguments[1:]))
    if origin in (Union, types.UnionType):
        (inner,) = (argument for argument in arguments if argument is not type(None))
        return _shape(inner, [])
    if origin is Literal:
        return Shape("enum", tuple(str(value) for value in arguments))
    if origin in (list, tuple):
        return Shape("list", item=_shape(arguments[0], []))
    if origin is dict:
        return Shape("mapping", item=_shape(arguments[1], []))
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return Shape("object", model=annotation)
    return Shape(_PLAIN.get(annotation, "any"))


def model_in(shape: Shape) -> type[BaseModel] | None:
    """The model of an object, or of a list's objects."""
    return shape.model or (shape.item.model if shape.item else None)
