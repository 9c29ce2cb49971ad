"""Which items a worker gives away, as windows over its own items (`planning.shedding`).

Invariant: only the items of workers that give are sorted, and of them only sums and two candidates a worker reach the driver.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from reconciler.partitions.planning.shedding import Give
from reconciler.partitions.spark.columns.frames import BOOL, LONG, TEXT, no, rows_of, small

_ORDER = ("hash", "key")


@dataclass(frozen=True, slots=True)
class _Given:
    """What one worker gives, and what is known of all that it could give."""

    weight: int
    filters: int
    lightest: int
    heaviest: int
    lighter: int
    """The sum of all items lighter than its excess."""
    lightest_large: int | None


@dataclass(frozen=True, slots=True)
class Chosen:
    """The rows, with what goes marked and the `excess` of their worker, and the sums by worker."""

    rows: DataFrame
    given: Mapping[int, _Given]


def prefix(state: DataFrame, spark: SparkSession, gives: Mapping[int, tuple[Give, int]]) -> tuple[DataFrame, DataFrame]:
    """The rows of workers that give, with their running sums, and all the others; `gives` has the excess beside."""
    table = small(
        spark,
        {
            "at": (LONG, list(gives)),
            "may": (LONG, [give.may for give, _ in gives.values()]),
            "must": (LONG, [give.must for give, _ in gives.values()]),
            "excess": (LONG, [excess for _, excess in gives.values()]),
        },
    )
    marked = state.join(table, "at", "left")
    mine = F.col("movable") & F.col("may").isNotNull()
    window = Window.partitionBy("at").orderBy(F.col("w").desc(), *_ORDER).rowsBetween(Window.unboundedPreceding, 0)
    fits = F.col("w") <= F.col("may")
    some = (
        marked.filter(mine)
        .withColumn("sum", F.sum(F.when(fits, F.col("w")).otherwise(F.lit(0))).over(window))
        .withColumn("gone", fits & (F.col("sum") <= F.col("may")))
        .withColumn("given", F.sum(F.when(F.col("gone"), F.col("w")).otherwise(F.lit(0))).over(Window.partitionBy("at")))
        .drop("sum")
    )
    return some, marked.filter(~mine).drop("may", "must", "excess")


def choose(some: DataFrame, gives: Mapping[int, tuple[Give, int]], top_up_of: Mapping[int, int]) -> Chosen:
    """Completes what is short and tops up, by group; givers that `top_up_of` does not name give only prefixes."""
    stays = ~F.col("gone")
    candidate = F.struct("w", "hash", "key", "f")

    def least(condition: Column) -> Column:
        return F.min(F.when(stays & condition, candidate))

    sums = some.groupBy("at").agg(
        F.first("given").alias("given"),
        F.sum(F.when(F.col("gone"), F.col("f")).otherwise(F.lit(0))).alias("filters"),
        least((F.col("given") < F.col("must")) & (F.col("w") >= F.col("must") - F.col("given"))).alias("short"),
        least((F.col("given") < F.col("may")) & (F.col("w") >= F.col("may") - F.col("given"))).alias("rest"),
        F.min("w").alias("lightest"),
        F.max("w").alias("heaviest"),
        F.sum(F.when(F.col("w") < F.col("excess"), F.col("w")).otherwise(F.lit(0))).alias("lighter"),
        F.min(F.when(F.col("w") >= F.col("excess"), F.col("w"))).alias("large"),
    )
    flat = (F.col(f"{name}.{part}").alias(f"{name}_{part}") for name in ("short", "rest") for part in ("w", "key", "f"))
    found = rows_of(sums.select("at", "given", "filters", "lightest", "heaviest", "lighter", "large", *flat))
    by_worker = {row["at"]: row for row in found}
    picks = {at: _pick(row, "short") for at, row in by_worker.items() if row["short_key"] is not None and at in top_up_of}
    for group in sorted(set(top_up_of.values())):
        of_group = {at: row for at, row in by_worker.items() if top_up_of.get(at) == group and at not in picks}
        picks |= _topped_up(of_group, gives)
    alone = {at for at, pick in picks.items() if by_worker[at]["given"] < gives[at][0].must <= pick["w"]}
    given = {
        at: _Given(
            (0 if at in alone else row["given"]) + (picks[at]["w"] if at in picks else 0),
            (0 if at in alone else row["filters"]) + (picks[at]["f"] if at in picks else 0),
            row["lightest"],
            row["heaviest"],
            row["lighter"],
            row["large"],
        )
        for at, row in by_worker.items()
    }
    return Chosen(_with_picks(some, picks, alone), given)


def _topped_up(rows: Mapping[int, Mapping[str, Any]], gives: Mapping[int, tuple[Give, int]]) -> dict[int, dict[str, Any]]:
    """Rounding down at every worker adds up (`planning.shedding`)."""
    rest = {}
    for at, row in rows.items():
        give = gives[at][0]
        if give.may > row["given"] and give.may > give.must:
            rest[at] = give.may - row["given"]
    missing = sum(rest.values())
    picked = {}
    for at in sorted(rest, key=lambda at: (-((rest[at] << 64) // gives[at][0].capacity), at)):
        if rows[at]["rest_key"] is None:
            continue
        if missing <= 0:
            break
        candidate = _pick(rows[at], "rest")
        if 2 * missing >= candidate["w"]:
            picked[at] = candidate
            missing -= candidate["w"]
    return picked


def _pick(row: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {part: row[f"{name}_{part}"] for part in ("w", "key", "f")}


def _with_picks(some: DataFrame, picks: Mapping[int, Mapping[str, Any]], alone: Collection[int]) -> DataFrame:
    """With what completes a worker; if that is enough alone, it goes alone."""
    cleared = some.drop("may", "must", "given")
    if not picks:
        return cleared
    table = small(
        some.sparkSession,
        {
            "at": (LONG, list(picks)),
            "pick": (TEXT, [pick["key"] for pick in picks.values()]),
            "alone": (BOOL, [at in alone for at in picks]),
        },
    )
    picked = cleared.join(table, "at", "left")
    stays = F.coalesce(F.col("alone"), no())
    return picked.withColumn("gone", (F.col("gone") & ~stays) | F.col("key").eqNullSafe(F.col("pick"))).drop("pick", "alone")


def over_the_cap(state: DataFrame, spark: SparkSession, excess: Mapping[int, int]) -> tuple[DataFrame, DataFrame]:
    """The rows of workers with too many subjects, the lightest marked `gone`, and all the others."""
    table = small(spark, {"at": (LONG, list(excess)), "excess": (LONG, list(excess.values()))})
    marked = state.join(table, "at", "left")
    mine = F.col("movable") & F.col("excess").isNotNull()
    window = Window.partitionBy("at").orderBy("w", *_ORDER).rowsBetween(Window.unboundedPreceding, 0)
    some = marked.filter(mine).withColumn("gone", F.sum("f").over(window) - F.col("f") < F.col("excess")).drop("excess")
    return some, marked.filter(~mine).drop("excess")
