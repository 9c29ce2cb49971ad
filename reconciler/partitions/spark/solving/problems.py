"""Tables of workers with the rules for their partitions, and what is known of these before anything is planned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from reconciler.partitions.planning.model import PlanningRules, Workers
from reconciler.partitions.spark.columns.frames import rows_of, total


@dataclass(frozen=True, slots=True)
class PoolProblem:
    """One table of workers, and the rules for its partitions."""

    workers: Workers
    rules: PlanningRules
    offset: int = 0
    """Of its workers in the DataFrame."""


@dataclass(slots=True)
class Sums:
    """Of a problem, before anything is planned."""

    subjects: int = 0
    """What counts against the caps: of the partitions of a family, one."""
    partitions: int = 0
    hashes: int = 0
    """Of all keys, xor."""
    zoned: bool = False
    zones: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Weight and subjects, by zone."""
    pinned: dict[int, int] = field(default_factory=dict)


def sums_of(items: DataFrame, problems: Sequence[PoolProblem]) -> list[Sums]:
    """Of each problem."""
    found = [Sums() for _ in problems]
    partitions = F.sum("n" if "n" in items.columns else "f").alias("n")
    totals = (total("w"), total("f"), partitions, F.bit_xor("hash").alias("hashes"))
    for row in rows_of(items.groupBy("problem", "zone").agg(*totals)):
        sums = found[row["problem"]]
        sums.subjects += row["f"]
        sums.partitions += row["n"]
        sums.hashes ^= row["hashes"]
        sums.zones[row["zone"]] = (row["w"], row["f"])
        sums.zoned = sums.zoned or row["zone"] >= 0
    for row in rows_of(items.filter(F.col("pin") >= 0).groupBy("problem", "pin").agg(total("f"))):
        found[row["problem"]].pinned[row["pin"] - problems[row["problem"]].offset] = row["f"]
    return found
