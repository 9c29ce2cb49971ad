"""A dashboard read by the types that Grafana generates from its own schema (`grafana-foundation-sdk`).

Those skip what they do not know, and take any value; here both are problems.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterator
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

register_default_plugins()


def problems(document: dict[str, Any]) -> list[str]:
    """What Grafana does not know, and what it knows as something else; by its path."""
    read = Dashboard.from_json(document)
    written = json.loads(JSONEncoder().encode(read))
    return [*_unknown(document, written, ""), *_mistyped(read, "")]


def _unknown(ours: Any, theirs: Any, path: str) -> Iterator[str]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name, value in ours.items():
            if name not in theirs and value is not None:
                yield f"{path}.{name}: Grafana does not know this field"
            elif name in theirs:
                yield from _unknown(value, theirs[name], f"{path}.{name}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from _unknown(one, other, f"{path}[{number}]")
    elif ours != theirs:
        yield f"{path}: {ours!r} is read as {theirs!r}"


def _mistyped(read: Any, path: str) -> Iterator[str]:
    for name, wanted in get_type_hints(type(read)).items():
        value = getattr(read, name)
        if not _fits(value, wanted):
            yield f"{path}.{name}: {value!r} is no {wanted}"
        for number, one in enumerate(value if isinstance(value, list) else [value]):
            if hasattr(one, "to_json"):
                yield from _mistyped(one, f"{path}.{name}[{number}]" if isinstance(value, list) else f"{path}.{name}")


def _fits(value: Any, wanted: Any) -> bool:
    origin, inner = get_origin(wanted), get_args(wanted)
    if origin in (Union, UnionType):
        return any(_fits(value, one) for one in inner)
    if origin is Literal:
        return value in inner
    if origin is list:
        return isinstance(value, list) and all(_fits(one, inner[0]) for one in value)
    if origin is dict:
        return isinstance(value, dict) and all(_fits(one, inner[1]) for one in value.values())
    if isinstance(wanted, type) and issubclass(wanted, enum.Enum):
        return value in {one.value for one in wanted}
    if wanted in (int, float) and isinstance(value, bool):
        return False
    return wanted is Any or isinstance(value, (int, float) if wanted is float else wanted)
