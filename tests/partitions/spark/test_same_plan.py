"""Spark and the local planner make the same plan: of odd tables, in any order, over any number of partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from reconciler.partitions.planning import solve, swapping
from reconciler.partitions.planning.chains import ChainLink, lightest_chain
from reconciler.partitions.planning.model import MoveReason, Solved
from reconciler.partitions.planning.planner import PartitionPlan
from tests.support.partitions.odd import Pool, crowded, grown, leaves, offsets, pool, scattered

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POOLS = 60
IN_TWO = (70, 89, 140, 173, 250, 267)
"""Seeds of tables that are planned better in two steps."""
CHAINED = (3, 11, 32, 36, 44, 65)
"""Seeds of tables in which large items push each other out of their places."""
CROWDED = (1001, 1002, 1003, 1004)
"""Seeds of tables in which somebody has more subjects than it may."""

SCATTERED = (2001, 2002, 2003)
"""Seeds of tables in which the partitions of units are apart, much of them at a worker that drains."""


def planned_here(pool: Pool) -> PartitionPlan:
    """The local plan, which there is."""
    found = pool.plan()
    assert isinstance(found, PartitionPlan), found
    return found


def planned(spark: SparkSession, pools: list[Pool], dice: np.random.Generator) -> tuple[list[Any], dict[tuple[int, str], Any]]:
    """What Spark makes of all of them in one plan."""
    from reconciler.partitions.spark.planner import plan  # noqa: PLC0415 - only where pyspark is
    from reconciler.partitions.spark.solving.problems import PoolProblem  # noqa: PLC0415 - the same

    problems = [PoolProblem(one.workers, one.rules, offset) for one, offset in zip(pools, offsets(pools), strict=True)]
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
            assert str(outcome.error) == wanted, number
            continue
        assert outcome.error is None, (number, outcome.error)
        found = [rows[number, subject] for subject in one.subjects]
        assert [row["place"] - offset for row in found] == wanted.place.tolist(), (number, one.rules)
        assert [row["reason"] for row in found] == wanted.reason.tolist(), (number, one.rules)
        for name in ("share", "hosts", "bounds", "held_by", "waiting", "filling"):
            assert getattr(outcome, name) == getattr(wanted, name), (number, name)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The ways of planning that the local planner has taken since."""
    found: set[str] = set()

    def in_two(*given: Any) -> Solved:
        solved = plain_in_two(*given)
        found.update({"in two"} if solved is not given[-1] else set())
        return solved

    def chain(*given: Any) -> tuple[ChainLink, ...]:
        links = plain_chain(*given)
        found.update({"chain"} if links else set())
        return links

    plain_in_two, plain_chain = solve._in_two, lightest_chain
    monkeypatch.setattr(solve, "_in_two", in_two)
    monkeypatch.setattr(swapping, "lightest_chain", chain)
    return found


@pytest.fixture(scope="module")
def odd() -> list[Pool]:
    """Units, pins, zones, caps, draining, budgets: tables as odd as they may be."""
    dice = np.random.default_rng(20)
    return [pool(dice, number) for number in range(POOLS)]


@pytest.mark.slow
def test_many_odd_tables_get_the_plans_of_the_local_planner(spark: SparkSession, odd: list[Pool], taken: set[str]) -> None:
    """Also tables of large items that are planned in two steps, and with chains: each of those takes the way it is here for."""
    pools = [*odd]
    for way, seeds in (("in two", IN_TWO), ("chain", CHAINED)):
        for seed in seeds:
            pools.append(grown(np.random.default_rng(seed), seed))
            taken.clear()
            pools[-1].plan()
            assert way in taken, (seed, way)
    pools += [scattered(np.random.default_rng(seed), seed) for seed in SCATTERED]
    pools += [crowded(np.random.default_rng(seed), seed) for seed in CROWDED]
    assert all(MoveReason.CAP in planned_here(one).reason for one in pools[-len(CROWDED) :])
    assert_same(pools, *planned(spark, pools, np.random.default_rng(22)))


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
