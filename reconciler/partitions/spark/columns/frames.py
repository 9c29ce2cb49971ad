"""Small tables of the driver as DataFrames, and DataFrames as sums on the driver.

Invariant: what is made here has as many rows as there are workers, classes of weight or heavy partitions, never as partitions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.types import BooleanType, IntegerType, LongType, StringType, StructField, StructType

FEW = 500
"""So many values may be written into a query."""
LONG, INT, TEXT, BOOL = pa.int64(), pa.int32(), pa.string(), pa.bool_()
_KINDS = {LONG: LongType(), INT: IntegerType(), TEXT: StringType(), BOOL: BooleanType()}


def named(column: str) -> Column:
    """A column by its name; one with dots in it is one name."""
    return F.col("`" + column.replace("`", "``") + "`")


def no() -> Column:
    """False, as a column."""
    return F.lit(False)  # noqa: FBT003 - a literal


def small(spark: SparkSession, columns: Mapping[str, tuple[pa.DataType, Sequence[Any]]]) -> DataFrame:
    """A table of the driver, sent to every executor when it is joined."""
    table = pa.table({name: pa.array(values, kind) for name, (kind, values) in columns.items()})
    return F.broadcast(sent(spark, table))


def sent(spark: SparkSession, table: pa.Table) -> DataFrame:
    """A table of this process; with its schema, as Connect infers none from no rows."""
    return spark.createDataFrame(table, StructType([StructField(field.name, _KINDS[field.type]) for field in table.schema]))


def among(frame: DataFrame, column: str, values: Collection[int]) -> DataFrame:
    """The rows with one of these values; each table that is sent to executors is a job, so few values are a condition."""
    if len(values) <= FEW:
        return frame.filter(F.col(column).isin(sorted(values)))
    return frame.join(small(frame.sparkSession, {column: (LONG, sorted(values))}), column, "left_semi")


def with_value(frame: DataFrame, name: str, values: Mapping[int, int]) -> DataFrame:
    """With a number that belongs to the group of each row; all rows are of these groups."""
    if len(values) == 1:
        return frame.withColumn(name, F.lit(*values.values()).cast("long"))
    return frame.join(small(frame.sparkSession, {"g": (LONG, list(values)), name: (LONG, list(values.values()))}), "g")


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    """All rows, as Arrow brings them: exact numbers, no pickling."""
    found: list[dict[str, Any]] = frame.toArrow().to_pylist()
    return found


def kept(frame: DataFrame) -> DataFrame:
    """Computed once, and planned no more: queries over queries over queries are analysed anew at every step."""
    return frame.localCheckpoint(eager=False)


def long(value: Column) -> Column:
    """As a 64-bit number."""
    return value.cast("long")


def total(column: str) -> Column:
    """A sum, 0 of nothing."""
    return F.coalesce(F.sum(column), F.lit(0)).alias(column)
