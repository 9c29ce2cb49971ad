"""Spark and the local planner make the same plan: of odd tables, in any order, over any number of partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.support.partition_pools import Pool, leaves, offsets, pool

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POOLS = 60


def planned(spark: SparkSession, pools: list[Pool], dice: np.random.Generator) -> tuple[list[Any], dict[tuple[int, str], Any]]:
    """What Spark makes of all of them in one plan."""
    from reconciler.partitions.spark.planner import Problem, plan  # noqa: PLC0415 - only where pyspark is

    problems = [Problem(one.workers, one.rules, offset) for one, offset in zip(pools, offsets(pools), strict=True)]
    made = plan(leaves(spark, pools, dice), problems, units=True)
    rows = made.rows.toArrow().to_pylist()
    found = {(row["problem"], row["subject"]): row for row in rows}
    assert len(found) == len(rows)
    return list(made.outcomes), found


def assert_same(pools: list[Pool], outcomes: list[Any], rows: dict[tuple[int, str], Any]) -> None:
    """Places, reasons, shares and bounds, pool by pool."""
    for number, (one, offset, outcome) in enumerate(zip(pools, offsets(pools), outcomes, strict=True)):
        wanted = one.plan()
        if isinstance(wanted, str):
            assert outcome.error is not None, (number, wanted)
            assert wanted in (str(outcome.error), "no room in the zones")
            continue
        assert outcome.error is None, (number, outcome.error)
        found = [rows[number, subject] for subject in one.subjects]
        assert [row["place"] - offset for row in found] == wanted.place.tolist(), (number, one.rules)
        assert [row["reason"] for row in found] == wanted.reason.tolist(), (number, one.rules)
        for name in ("share", "hosts", "bounds", "held_by", "waiting", "filling"):
            assert getattr(outcome, name) == getattr(wanted, name), (number, name)


def test_many_odd_tables_get_the_plans_of_the_local_planner(spark: SparkSession) -> None:
    """Units, pins, zones, caps, draining and budgets, all pools in one Spark plan."""
    dice = np.random.default_rng(20)
    pools = [pool(dice, number) for number in range(POOLS)]
    assert_same(pools, *planned(spark, pools, dice))


@pytest.mark.thorough(also="tests/partitions/spark/test_same_plan.py::test_many_odd_tables_get_the_plans_of_the_local_planner")
@pytest.mark.parametrize(("partitions", "adaptive"), [(1, True), (2, False), (32, True)])
def test_the_number_of_shuffle_partitions_means_nothing(spark: SparkSession, partitions: int, adaptive: bool) -> None:
    before = {name: spark.conf.get(name) for name in ("spark.sql.shuffle.partitions", "spark.sql.adaptive.enabled")}
    dice = np.random.default_rng(21)
    pools = [pool(dice, number) for number in range(20)]
    spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
    spark.conf.set("spark.sql.adaptive.enabled", str(adaptive).lower())
    try:
        assert_same(pools, *planned(spark, pools, dice))
    finally:
        for name, value in before.items():
            spark.conf.set(name, str(value))
