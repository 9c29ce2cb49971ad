"""Families (`partitions.families`) as columns: the filter of a subject, and what an earlier plan knew by its filters.

Invariant: a subject has the same family everywhere: the same expression decides, in a notation that Java and RE2 read alike.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from reconciler.partitions.families import Family, covering
from reconciler.partitions.reading.subjects import WILD
from reconciler.partitions.spark.columns.frames import rows_of


def is_wild(subject: Column) -> Column:
    """Whether a token is a wildcard; most subjects are seen to have none at one glance."""
    return (subject.contains("*") | subject.contains(">")) & subject.rlike(WILD)


def filter_of(subject: Column, families: Sequence[Family]) -> Column:
    """The filter of a subject's family; null for one that is a filter by itself."""
    found = [
        F.when(subject.rlike(family.expression), F.regexp_replace(subject, family.expression, family.replacement("$")))
        for family in families
    ]
    return F.coalesce(*found, F.lit(None).cast("string"))


def counted_once(partitions: DataFrame) -> DataFrame:
    """With `f`: of the partitions that share a filter (`family`), the first by its subject adds one, the others none."""
    shared = Window.partitionBy(F.coalesce("family", "subject")).orderBy("subject")
    return partitions.withColumn("f", (F.row_number().over(shared) == 1).cast("long"))


def filters(partitions: DataFrame) -> Column:
    """How many filters each partition adds; without families each is one."""
    return F.col("f") if "f" in partitions.columns else F.lit(1).cast("long")


def covering_all(earlier: DataFrame) -> list[Family]:
    """Families that have all filters with wildcards of a table among theirs."""
    token = F.transform(F.split("subject", r"\."), lambda each: F.when(each.isin("*", ">"), each).otherwise(F.lit("x")))
    shapes = earlier.filter(is_wild(F.col("subject"))).select(F.array_join(token, ".").alias("shape")).distinct()
    return covering(row["shape"] for row in rows_of(shapes))


def told_by(rows: DataFrame, earlier: DataFrame, families: Sequence[Family], name: str) -> DataFrame:
    """Rows; where their column of this name is null, it is what the earlier table says of a filter that matches the subject."""
    found = rows
    of_filters = earlier.filter(is_wild(F.col("subject")))
    for family in families:
        through = of_filters.select(F.col("subject").alias("through"), F.col(name).alias("said"))
        known = found.withColumn("through", filter_of(F.col("subject"), [family])).join(through, "through", "left")
        found = known.withColumn(name, F.coalesce(name, "said")).drop("through", "said")
    return found
