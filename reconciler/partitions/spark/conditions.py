"""`where` and numbers, as `reading.conditions` and `reading.numbers` have them.

Invariant: the same rows count, and the same value is the same number of millionths, as in the local reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.types import DataType, DecimalType, DoubleType, FloatType, IntegralType, StringType

from reconciler.partitions.reading.numbers import MOST
from reconciler.partitions.spec import MILLION, Condition

_NUMBER = r"\A[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?\z"


def micro(column: Column, kind: DataType) -> Column:
    """Millionths; null where there is no number, or none that fits."""
    if isinstance(kind, StringType):
        return _of_text(column)
    if isinstance(kind, DecimalType):
        return _of_text(column.cast("string"))
    if isinstance(kind, DoubleType | FloatType):
        scaled = F.rint(column.cast("double") * F.lit(float(MILLION)))
        return F.when(F.abs(scaled) < F.lit(float(MOST)), F.when(~F.isnan(scaled), scaled)).cast("long")
    if isinstance(kind, IntegralType):
        value = column.cast("long")
        most = MOST // MILLION
        return F.when((value <= most) & (value >= -most), value) * F.lit(MILLION)
    return F.lit(None).cast("long")


def _of_text(column: Column) -> Column:
    text = F.btrim(column.cast("string"), F.lit(" \t"))
    number = F.when(text.rlike(_NUMBER), text).try_cast("decimal(38,18)")
    fits = F.abs(number) <= F.lit(MOST // MILLION).cast("decimal(38,0)")
    rounded = F.bround(F.when(fits, number), 6).cast("decimal(20,6)")
    return (rounded * F.lit(MILLION).cast("decimal(7,0)")).cast("long")


def fulfilled(frame: DataFrame, where: Sequence[Condition]) -> Column:
    """True for the rows that fulfil all conditions."""
    kept = F.lit(True)  # noqa: FBT003 - a literal
    for condition in where:
        name = "`" + condition.column.replace("`", "``") + "`"
        kept = kept & F.coalesce(_holds(F.col(name), frame.schema[condition.column].dataType, condition), F.lit(False))  # noqa: FBT003
    return kept


def _holds(column: Column, kind: DataType, condition: Condition) -> Column:
    if condition.op in ("isNull", "notNull"):
        return column.isNull() if condition.op == "isNull" else column.isNotNull()
    values: list[Any] = condition.value if isinstance(condition.value, list) else [condition.value]
    left, right = _comparable(column, kind, values)
    if condition.op in ("in", "notIn"):
        found = F.when(left.isNotNull(), left.isin(right) if right else F.lit(False))  # noqa: FBT003
        return found if condition.op == "in" else ~found
    operations = {
        "eq": left == right[0],
        "ne": left != right[0],
        "lt": left < right[0],
        "le": left <= right[0],
        "gt": left > right[0],
        "ge": left >= right[0],
    }
    return operations[condition.op]


def _comparable(column: Column, kind: DataType, values: Sequence[Any]) -> tuple[Column, list[Column]]:
    """Both sides as millionths when a number is asked for, else as texts, byte by byte."""
    text = F.collate(column.cast("string"), "UTF8_BINARY")
    if all(isinstance(value, bool) for value in values):
        return text, [F.lit(str(value).lower()) for value in values]
    if all(isinstance(value, int | float) for value in values):
        return micro(column, kind), [micro(F.lit(repr(value)), StringType()) for value in values]
    return text, [F.lit(str(value)) for value in values]
