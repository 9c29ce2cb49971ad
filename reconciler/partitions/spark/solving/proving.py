"""A finished plan against every rule, from its own rows (`planning.planner.check`).

Invariant: every partition that was asked for is there once: their number and the xor of their hashes are those that were read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from reconciler.partitions.planning.model import ABSENT, NEW, PlanningRules, Workers
from reconciler.partitions.planning.planner import BrokenPlan
from reconciler.partitions.spark.columns.frames import INT, no, rows_of, small, total
from reconciler.partitions.spark.solving.families import filters

Planned = tuple[Workers, PlanningRules, int]
"""The workers of a problem, its rules, and where its workers begin in the DataFrame."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What has to be there."""

    partitions: int
    hashes: int
    """Of the keys of all items, xor."""
    zoned: bool


@dataclass(frozen=True, slots=True)
class Proof:
    """What the rows have shown besides."""

    counts: Mapping[int, int]
    """Partitions by worker."""
    sums: Sequence[Mapping[str, Any]]
    """By `problem`, `place`, `reason` and whether they `stay`: `count`, `filters` and `w`, and what was looked for."""
    scattered: Mapping[int, int]
    """Weight of partitions that are not where their unit is, by problem."""


def prove(leaves: DataFrame, problems: Sequence[Planned], asked: Sequence[Asked | None], *, units: bool) -> Proof:
    """Raises BrokenPlan where a rule is broken; problems without a plan are not looked at."""
    place, pin, home = F.col("place"), F.col("pin"), F.col("home")
    apart = (home != F.col("item_home")) & (home != NEW) & (F.col("item_home") != ABSENT) if units else no()
    zones = [
        (offset + rank, workers.zone[rank])
        for (workers, rules, offset), one in zip(problems, asked, strict=True)
        for rank in range(len(workers))
        if one is not None and one.zoned and rules.zones == "hard"
    ]
    elsewhere = no()
    if zones:
        columns = {"place": (INT, [at for at, _ in zones]), "zone_of": (INT, [zone for _, zone in zones])}
        leaves = leaves.join(small(leaves.sparkSession, columns), "place", "left")
        elsewhere = (F.col("zone") >= 0) & (F.col("zone_of") != F.col("zone"))
    sums = rows_of(
        leaves.groupBy("problem", "place", "reason", (place == home).alias("stays")).agg(
            F.count(F.lit(1)).alias("count"),
            F.sum(filters(leaves)).alias("filters"),
            total("w"),
            F.bit_xor(F.xxhash64("subject")).alias("hashes"),
            F.count_if((pin >= 0) & (pin != place)).alias("unpinned"),
            F.count_if(elsewhere).alias("elsewhere"),
            F.sum(F.when(apart, F.col("w")).otherwise(F.lit(0))).alias("apart"),
        )
    )
    counts: dict[int, int] = {}
    scattered = dict.fromkeys(range(len(problems)), 0)
    left = {number: (one.partitions, one.hashes) for number, one in enumerate(asked) if one is not None}
    used: dict[int, int] = {}
    for row in sums:
        number = row["problem"]
        if number in left:
            counts[row["place"]] = counts.get(row["place"], 0) + row["count"]
            used[row["place"]] = used.get(row["place"], 0) + row["filters"]
            _check_worker(problems[number], row, used[row["place"]])
            scattered[number] += row["apart"]
            partitions, hashes = left[number]
            left[number] = (partitions - row["count"], hashes ^ row["hashes"])
    for partitions, hashes in left.values():
        if partitions or (hashes and not units):
            msg = "a partition that is lost, or there twice"
            raise BrokenPlan(msg)
    return Proof(counts, sums, scattered)


def _check_worker(problem: Planned, row: Mapping[str, Any], used: int) -> None:
    workers, rules, offset = problem
    rank = row["place"] - offset
    if row["place"] < 0 or rank >= len(workers):
        msg = "a partition without a worker"
        raise BrokenPlan(msg)
    faults = ["more subjects than a worker may have"] if used > workers.slots[rank] else []
    faults += ["a pin that is not kept"] if row["unpinned"] else []
    faults += ["a partition outside of its zone"] if row["elsewhere"] else []
    if not workers.active[rank]:
        faults += ["a draining worker that receives"] if not row["stays"] else []
        faults += ["a draining worker that keeps something"] if rules.budget is None else []
    if faults:
        raise BrokenPlan(", ".join(faults))
