"""Partitions of one unit as one item (`planning.units`), by whole numbers alone.

Invariant: an item's home is the active worker with most of its weight, of equal ones the lowest rank.
"""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from reconciler.partitions.planning.model import ABSENT
from reconciler.partitions.spark.columns.frames import INT, small
from reconciler.partitions.spark.solving.families import filters

LEAF = ("problem", "subject", "unit", "w", "home", "pin", "zone")
"""Columns of partitions: workers by rank and offset, -1 without a pin, zone or home."""


def item_key() -> Column:
    """The key of the item that a partition belongs to."""
    return F.when(F.col("unit").isNull(), F.col("subject")).otherwise(F.concat(F.lit(" "), F.col("unit")))


def roll_up(partitions: DataFrame, draining: Collection[int], *, units: bool) -> DataFrame:
    """One row for each item: problem, key, hash, w, f, home, pin, zone, and of units how many partitions (n).

    `draining` are workers that receive nothing.
    """
    if not units:
        items = partitions.select(
            "problem", F.col("subject").alias("key"), "w", filters(partitions).alias("f"), "home", "pin", "zone"
        )
        return items.withColumn("hash", F.xxhash64("key"))
    keyed = partitions.withColumn("key", item_key())
    at_home = keyed.groupBy("problem", "key", "home").agg(
        F.sum("w").alias("w"),
        F.sum(filters(partitions)).alias("f"),
        F.count(F.lit(1)).alias("n"),
        F.max("pin").alias("pin"),
        F.max("zone").alias("zone"),
    )
    drains = small(partitions.sparkSession, {"home": (INT, sorted(draining)), "drains": (INT, [1] * len(draining))})
    at_home = at_home.join(drains, "home", "left").withColumn("receives", F.col("drains").isNull())
    place = F.struct(F.col("receives"), F.col("w"), (-F.col("home")).alias("not_home"))
    items = at_home.groupBy("problem", "key").agg(
        F.sum("w").alias("w"),
        F.sum("f").alias("f"),
        F.sum("n").alias("n"),
        F.max(F.when(F.col("home") >= 0, place)).alias("best"),
        F.count(F.lit(1)).alias("places"),
        F.min("home").alias("least"),
        F.max("pin").cast("int").alias("pin"),
        F.max("zone").cast("int").alias("zone"),
    )
    stays = F.col("best.receives") | (F.col("places") == 1)
    home = F.when(F.col("best").isNull(), F.col("least")).when(stays, -F.col("best.not_home")).otherwise(F.lit(ABSENT))
    return items.withColumn("home", home.cast("int")).withColumn("hash", F.xxhash64("key")).drop("best", "places", "least")
