"""`where`, texts and numbers, as `reading.conditions`, `reading.texts` and `reading.numbers` have them.

Invariant: the same rows count, and the same value is the same number of millionths, as in the local reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    NullType,
    StringType,
)

from reconciler.errors import InvalidInput
from reconciler.partitions.reading.numbers import MOST, NUMBER
from reconciler.partitions.reading.numbers import micro as millionths
from reconciler.partitions.reading.texts import no_texts
from reconciler.partitions.spark.columns.frames import named, no
from reconciler.partitions.spec import MILLION, RowCondition


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
    number = F.when(text.rlike(NUMBER), text).try_cast("decimal(38,18)")
    fits = F.abs(number) <= F.lit(MOST // MILLION).cast("decimal(38,18)")
    rounded = F.bround(F.when(fits, number), 6).cast("decimal(20,6)")
    return (rounded * F.lit(MILLION).cast("decimal(7,0)")).cast("long")


def text_of(frame: DataFrame, name: str, table: str) -> Column:
    """A column as texts, byte by byte; raises InvalidInput where they could be written in several ways."""
    kind = frame.schema[name].dataType
    plain = isinstance(kind, StringType | IntegralType | BooleanType | DateType | BinaryType | NullType)
    if not plain and not (isinstance(kind, DecimalType) and kind.scale == 0):
        raise InvalidInput((no_texts(name, table),))
    return bytewise(named(name).cast("string"))


def bytewise(column: Column) -> Column:
    """A text that is compared byte by byte, whatever collation its column has."""
    return F.collate(column, "UTF8_BINARY")


def fulfilled(frame: DataFrame, where: Sequence[RowCondition], table: str) -> Column:
    """True for the rows that fulfil all conditions."""
    kept = ~no()
    for condition in where:
        kept = kept & F.coalesce(_holds(frame, condition, table), no())
    return kept


def _holds(frame: DataFrame, condition: RowCondition, table: str) -> Column:
    column = named(condition.column)
    if condition.op in ("isNull", "notNull"):
        return column.isNull() if condition.op == "isNull" else column.isNotNull()
    values: list[Any] = condition.value if isinstance(condition.value, list) else [condition.value]
    left, right = _comparable(frame, condition.column, values, table)
    if condition.op in ("in", "notIn"):
        found = F.when(left.isNotNull(), F.coalesce(left.isin(right), no()) if right else no())
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


def _comparable(frame: DataFrame, name: str, values: Sequence[Any], table: str) -> tuple[Column, list[Column]]:
    """Both sides as millionths when a number is asked for, else as texts, byte by byte."""
    if all(isinstance(value, bool) for value in values):
        return text_of(frame, name, table), [F.lit(str(value).lower()) for value in values]
    if all(isinstance(value, int | float) for value in values):
        wanted = millionths(pa.array([repr(value) for value in values], pa.string())).to_pylist()
        return micro(named(name), frame.schema[name].dataType), [F.lit(value).cast("long") for value in wanted]
    return text_of(frame, name, table), [F.lit(str(value)) for value in values]
