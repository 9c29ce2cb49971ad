"""Partitions of one unit as one item (`planning.units`), by whole numbers alone.

Invariant: an item's home is where most of its weight is; of equal ones the lowest rank.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name

LEAF = ("problem", "subject", "unit", "w", "home", "pin", "zone")
"""Columns of partitions: workers by rank and offset, -1 without a pin, zone or home."""


def item_key() -> Column:
    """The key of the item that a partition belongs to."""
    return F.when(F.col("unit").isNull(), F.col("subject")).otherwise(F.concat(F.lit(" "), F.col("unit")))


def roll_up(partitions: DataFrame, *, units: bool) -> DataFrame:
    """One row for each item: problem, key, hash, w, f, home, pin, zone."""
    if not units:
        items = partitions.select(
            "problem", F.col("subject").alias("key"), "w", F.lit(1).cast("long").alias("f"), "home", "pin", "zone"
        )
        return items.withColumn("hash", F.xxhash64("key"))
    keyed = partitions.withColumn("key", item_key())
    at_home = keyed.groupBy("problem", "key", "home").agg(
        F.sum("w").alias("w"), F.count(F.lit(1)).alias("f"), F.max("pin").alias("pin"), F.max("zone").alias("zone")
    )
    heaviest = F.max(F.when(F.col("home") >= 0, F.struct(F.col("w"), (-F.col("home")).alias("not_home"))))
    items = at_home.groupBy("problem", "key").agg(
        F.sum("w").alias("w"),
        F.sum("f").alias("f"),
        F.coalesce(-heaviest["not_home"], F.min("home")).cast("int").alias("home"),
        F.max("pin").cast("int").alias("pin"),
        F.max("zone").cast("int").alias("zone"),
    )
    return items.withColumn("hash", F.xxhash64("key"))
