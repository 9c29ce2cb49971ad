"""Normal forms as users write them: YAML names, canonical units, defaults spelled out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from reconciler.model.kinds.buckets import BUCKET_SHAPE, BUCKET_WORDS
from reconciler.model.kinds.consumer import ConsumerSpec
from reconciler.model.kinds.fields import Unit, in_unit, table, yaml_name
from reconciler.model.kinds.stream import (
    ConsumerLimits,
    External,
    Placement,
    Republish,
    Source,
    SourceConsumer,
    StreamSpec,
    Transform,
)
from reconciler.model.sourcing import DELIVERED, is_unused

_NESTED: Mapping[str, type[BaseModel]] = {
    "mirror": Source,
    "sources": Source,
    "placement": Placement,
    "republish": Republish,
    "subject_transform": Transform,
    "subject_transforms": Transform,
    "consumer_limits": ConsumerLimits,
    "external": External,
    "consumer": SourceConsumer,
}
_BUCKETS = ("KeyValue", "ObjectStore")
_OURS = {"durable": "durable", "dead_letter": "deadLetter.subject"}


def yaml_value(model: type[BaseModel], wire_name: str, value: Any, *, generated: bool = False) -> Any:  # noqa: ANN401
    """One field's value as it is written in a manifest; with `generated`, subjects of our own making as well."""
    nested = _NESTED.get(wire_name)
    if nested and isinstance(value, Mapping):
        if nested is SourceConsumer and not generated and (value.get("deliver_subject") or "").startswith(DELIVERED):
            return {"name": value["name"], "serverManaged": True}
        if nested is Source and not generated:
            value = _without_unused(value)
        known = [name for name in table(nested) if name in value]
        names = (*known, *(name for name in value if name not in known))
        shown = {name: yaml_name(nested, name) for name in names if name in nested.model_fields}  # all else is of a newer server
        return {shown[name]: yaml_value(nested, name, value[name], generated=generated) for name in shown} | {
            name: value[name] for name in names if name not in shown
        }
    if isinstance(value, list):
        if nested:
            return [yaml_value(model, wire_name, item, generated=generated) for item in value]
        column = table(model).get(wire_name)
        return [in_unit(item, column.wire.unit if column else Unit.NONE) for item in value]
    column = table(model).get(wire_name)
    return in_unit(value, column.wire.unit if column else Unit.NONE)


def _without_unused(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """The entry without the subject that tells it from an earlier one, and that nobody publishes to."""
    transforms = entry.get("subject_transforms") or []
    used = [one for one in transforms if not is_unused(str(one.get("src", "")))]
    if len(used) == len(transforms):
        return entry
    left = {name: value for name, value in entry.items() if name != "subject_transforms"}
    return left | {"subject_transforms": used} if used else left


def yaml_path(kind: str, wire_name: str) -> str:
    """A field's path as it is written in a manifest of this kind; a field we do not know keeps its wire name."""
    if wire_name in _OURS:
        return _OURS[wire_name]
    if kind in _BUCKETS and wire_name in BUCKET_WORDS:
        return BUCKET_WORDS[wire_name]
    model = spec_model(kind)
    return yaml_name(model, wire_name) if wire_name in table(model) else wire_name


def spec_model(kind: str) -> type[BaseModel]:
    """The model whose table describes this kind on the wire (buckets are streams there)."""
    return ConsumerSpec if kind == "Consumer" else StreamSpec


def yaml_spec(kind: str, normal: Mapping[str, Any]) -> dict[str, Any]:
    """A whole normal form as the spec of a manifest; what makes a bucket of a stream nobody writes down."""
    model = spec_model(kind)
    spec: dict[str, Any] = {}
    for wire_name, value in normal.items():
        if kind in _BUCKETS and (wire_name == "subjects" or BUCKET_SHAPE.get(wire_name) == value):
            continue
        if wire_name == "dead_letter":
            spec["deadLetter"] = {"subject": value}
        elif wire_name == "durable":
            if value is False:
                spec["durable"] = False
        else:
            spec[yaml_path(kind, wire_name)] = yaml_value(model, wire_name, value)
    return spec


def in_short(names: list[str], most: int = 5) -> str:
    """The first few of many names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
