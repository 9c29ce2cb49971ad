"""`where`: which rows count.

A text is compared byte by byte, a number as millionths. A row without a value fulfils `isNull` alone, as in SQL.

Invariant: the same rows count here and in Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from reconciler.partitions.reading.numbers import micro
from reconciler.partitions.reading.texts import text_of
from reconciler.partitions.spec import RowCondition

_OPERATIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "eq": pc.equal,
    "ne": pc.not_equal,
    "lt": pc.less,
    "le": pc.less_equal,
    "gt": pc.greater,
    "ge": pc.greater_equal,
}


def fulfilled(batch: pa.RecordBatch, where: Sequence[RowCondition], table: str) -> pa.Array:
    """True for the rows that fulfil all conditions."""
    kept = pa.array([True] * len(batch))
    for condition in where:
        kept = pc.and_(kept, pc.fill_null(_holds(batch.column(condition.column), condition, table), fill_value=False))
    return kept


def _holds(column: pa.Array, condition: RowCondition, table: str) -> pa.Array:
    if condition.op in ("isNull", "notNull"):
        return pc.is_null(column) if condition.op == "isNull" else pc.is_valid(column)
    values = condition.value if isinstance(condition.value, list) else [condition.value]
    left, right = _comparable(column, values, (condition.column, table))
    if condition.op in ("in", "notIn"):
        found = pc.if_else(pc.is_valid(left), pc.is_in(left, value_set=right), None)
        return found if condition.op == "in" else pc.invert(found)
    return _OPERATIONS[condition.op](left, right[0])


def _comparable(column: pa.Array, values: Sequence[Any], named: tuple[str, str]) -> tuple[pa.Array, pa.Array]:
    """Both sides as millionths when a number is asked for, else as texts."""
    if all(isinstance(value, bool) for value in values):
        return text_of(column, *named), pa.array([str(value).lower() for value in values], pa.string())
    if all(isinstance(value, int | float) for value in values):
        return micro(column), micro(pa.array([repr(value) for value in values], pa.string()))
    return text_of(column, *named), pa.array([str(value) for value in values], pa.string())
