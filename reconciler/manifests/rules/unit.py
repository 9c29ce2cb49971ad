"""Rules for how values are written: a duration has a unit.

A bare number is nanoseconds, as on the wire and in NACK's manifests; `ackWait: 30` would be 30 ns, which nobody means.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel

from reconciler.manifests.findings import Finding, Path, model_in
from reconciler.model.kinds.fields import Duration

_MEANT = 10**8
"""From 100 ms on a bare number can only have been meant as nanoseconds; less would be refused or useless nearly everywhere."""
_MARK = get_args(Duration)[1]


def check_units(model: type[BaseModel], spec: Mapping[str, Any], path: Path) -> Iterator[Finding]:
    """Every duration that is too short to be meant; a zero needs no unit."""
    shape = _shape(model)
    for name, value in spec.items():
        if name not in shape or isinstance(value, str):
            continue
        inner = shape[name]
        for place, item in enumerate(value if isinstance(value, list) else (value,)):
            at: Path = (*path, name, place) if isinstance(value, list) else (*path, name)
            if inner is not None and isinstance(item, dict):
                yield from check_units(inner, item, at)
            elif inner is None and type(item) is int and 0 < item < _MEANT:
                yield Finding(at, "bad-value", f"a duration needs a unit: write {item}s, or {item}ns if that is meant")


@functools.cache
def _shape(model: type[BaseModel]) -> Mapping[str, type[BaseModel] | None]:
    """By YAML name: None for a duration, else the model of what is inside; other fields are left out."""
    shape: dict[str, type[BaseModel] | None] = {}
    for info in model.model_fields.values():
        inner = model_in(info.annotation)
        if info.alias and (inner or _MARK in info.metadata or _is_duration(info.annotation)):
            shape[info.alias] = inner
    return shape


def _is_duration(annotation: Any) -> bool:  # noqa: ANN401 - whatever typing allows
    return _MARK in getattr(annotation, "__metadata__", ()) or any(map(_is_duration, get_args(annotation)))
