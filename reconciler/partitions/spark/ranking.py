"""Light items meet slots rank by rank (`planning.dealing`), without sorting either of them as a whole.

Items are numbered within (class of weight, stratum of the hash), slots within 1024 stretches of their positions; what stands
before each of those is a running sum over a few thousand counts.

Invariant: ranks are dense, so that each item meets exactly one slot.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from reconciler.partitions.planning.dealing import CLASS_BITS, PHASE_BITS
from reconciler.partitions.planning.keys import xxhash64
from reconciler.partitions.spark.frames import LONG, small
from reconciler.partitions.spark.groups import Group

_STRETCH_BITS = 21
_DECK = ("g", "f")
"""What is dealt apart: each group, and in it items of each number of subjects."""

Dealt = Mapping[tuple[int, int], Mapping[int, int]]
"""By group and number of subjects: how many items each worker gets."""


def weight_class(weight: str = "w") -> Column:
    """`planning.dealing.weight_class`."""
    bits = f"length(bin({weight})) - 1"
    low = f"shiftright({weight}, greatest({bits} - {CLASS_BITS}, 0))"
    high = f"shiftleft({weight}, greatest({CLASS_BITS} - ({bits}), 0))"
    following = f"CASE WHEN {bits} >= {CLASS_BITS} THEN {low} ELSE {high} END"
    return F.expr(f"({bits}) * {1 << CLASS_BITS} + (({following}) & {(1 << CLASS_BITS) - 1})")


def meet(light: DataFrame, spark: SparkSession, dealt: Dealt, groups: Mapping[int, Group]) -> DataFrame:
    """Every light item with its worker, `to`."""
    items = light.withColumn("class", weight_class()).withColumn("stratum", F.expr("pmod(hash, 64)"))
    ranked = _numbered(items, ("class", "stratum"), (F.col("class").desc(), F.col("stratum")), ("hash", "key"))
    slots = _numbered(_slots(spark, dealt, groups), ("stretch",), (F.col("stretch"),), ("position", "to"))
    return ranked.join(slots.select(*_DECK, "rank", "to"), [*_DECK, "rank"]).drop("rank")


def _numbered(rows: DataFrame, parts: tuple[str, ...], order_of_parts: tuple[Column, ...], order: tuple[str, ...]) -> DataFrame:
    """A dense rank, from 1."""
    counts = rows.groupBy(*_DECK, *parts).agg(F.count(F.lit(1)).alias("here"))
    before = Window.partitionBy(*_DECK).orderBy(*order_of_parts).rowsBetween(Window.unboundedPreceding, -1)
    offsets = counts.withColumn("before", F.coalesce(F.sum("here").over(before), F.lit(0))).drop("here")
    numbered = rows.withColumn("number", F.row_number().over(Window.partitionBy(*_DECK, *parts).orderBy(*order)))
    joined = numbered.join(F.broadcast(offsets), [*_DECK, *parts])
    return joined.withColumn("rank", F.col("before") + F.col("number")).drop("before", "number", *parts)


def _slots(spark: SparkSession, dealt: Dealt, groups: Mapping[int, Group]) -> DataFrame:
    """A row for each slot of each worker."""
    rows = [
        (g, filters, rank + groups[g].offset, count, xxhash64(groups[g].workers.names[rank]) % (1 << PHASE_BITS))
        for (g, filters), given in sorted(dealt.items())
        for rank, count in sorted(given.items())
    ]
    columns = ("g", "f", "to", "count", "phase")
    table = small(spark, {name: (LONG, [row[place] for row in rows]) for place, name in enumerate(columns)})
    slots = table.repartition(spread(sum(row[3] for row in rows)), "to").select(
        "g", "f", "to", "count", "phase", F.explode(F.expr("sequence(0L, count - 1)")).alias("slot")
    )
    position = F.expr(f"(shiftleft(slot, {PHASE_BITS}) + phase) div count")
    return (
        slots.withColumn("position", position)
        .withColumn("stretch", F.expr(f"shiftright(position, {_STRETCH_BITS})"))
        .drop("count", "phase", "slot")
    )


def spread(rows: int) -> int:
    """How many parts so many rows are cut into."""
    return max(1, min(256, rows // 250_000))
