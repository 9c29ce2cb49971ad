"""The whole plan (`planning.planner`), for one table of workers or for several that have nothing to do with each other.

Invariant: what comes back has been checked from its own rows; a plan that breaks a rule is an error, never a plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from reconciler.partitions.planning.model import ABSENT, NEW, Bounds, MoveReason, Share
from reconciler.partitions.planning.planner import (
    CapExceeded,
    cap_exceeded,
    no_receivers,
    pinned_too_many,
    too_many,
)
from reconciler.partitions.spark.columns.frames import INT, LONG, among, kept, rows_of, small
from reconciler.partitions.spark.solving.groups import Group, Solution
from reconciler.partitions.spark.solving.items import item_key, roll_up
from reconciler.partitions.spark.solving.problems import PoolProblem, Sums, sums_of
from reconciler.partitions.spark.solving.proving import Asked, prove
from reconciler.partitions.spark.solving.solve import solve
from reconciler.partitions.spark.solving.zones import groups_of

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class PlanSummary:
    """All of a plan but its rows."""

    share: Mapping[int, Share] = field(default_factory=dict)
    giants: tuple[str, ...] = ()
    """The keys of items that have a worker to themselves."""
    hosts: frozenset[int] = frozenset()
    bounds: Bounds = field(default_factory=Bounds)
    held_by: tuple[str, ...] = ()
    waiting: int = 0
    filling: frozenset[int] = frozenset()
    error: CapExceeded | None = None


@dataclass(frozen=True, slots=True)
class PlannedPartitions:
    """Every partition with `place` and `reason`, and what is known of each problem."""

    rows: DataFrame
    outcomes: Sequence[PlanSummary]
    counts: Mapping[int, int]
    """Partitions of every worker that has any."""
    sums: Sequence[Mapping[str, Any]]
    """Of the rows, by worker and reason (`proving.Proof`)."""


def plan(partitions: DataFrame, problems: Sequence[PoolProblem], *, units: bool) -> PlannedPartitions:
    """Plans partitions (`items.LEAF`)."""
    items = roll_up(partitions, _draining(problems), units=units)
    items = kept(items) if units else items
    sums = sums_of(items, problems)
    errors: dict[int, CapExceeded] = {}
    for number, problem in enumerate(problems):
        error = _no_room(items, number, problem, sums[number])
        if error is not None:
            errors[number] = error
    grouped, members = groups_of(items, problems, sums, errors)
    found: dict[int, Solution] = {}
    placed = []
    for wave in _waves(members, problems):
        groups = _groups(wave, members, problems, found)
        rows = among(grouped, "g", groups) if len(members) > 1 else grouped
        solved = solve(rows, groups)
        found |= solved.groups
        placed.append(solved.rows)
    lost = _lost(grouped, members, problems)
    outcomes = [_outcome(number, problem, members, found, (errors, lost)) for number, problem in enumerate(problems)]
    rows = placed[0] if placed else None
    for more in placed[1:]:
        rows = rows.unionByName(more) if rows is not None else more
    leaves = _leaves(partitions, rows, members, units=units)
    leaves = kept(leaves) if units else leaves
    asked = [
        None if outcome.error else Asked(one.partitions, one.hashes, one.zoned)
        for outcome, one in zip(outcomes, sums, strict=True)
    ]
    proof = prove(leaves, [(problem.workers, problem.rules, problem.offset) for problem in problems], asked, units=units)
    outcomes = [
        outcome if outcome.error else replace(outcome, bounds=outcome.bounds + Bounds(proof.scattered.get(number, 0)))
        for number, outcome in enumerate(outcomes)
    ]
    return PlannedPartitions(leaves, outcomes, proof.counts, proof.sums)


def _draining(problems: Sequence[PoolProblem]) -> list[int]:
    """Workers that receive nothing, as DataFrames have them."""
    return [problem.offset + rank for problem in problems for rank, active in enumerate(problem.workers.active) if not active]


def _no_room(items: DataFrame, number: int, problem: PoolProblem, sums: Sums) -> CapExceeded | None:
    """Before anything else: enough room at all, and for what is pinned."""
    workers = problem.workers
    for rank in sorted(sums.pinned):
        if sums.pinned[rank] > workers.slots[rank]:
            mine = items.filter((F.col("problem") == number) & (F.col("pin") == rank + problem.offset))
            keys = [row["key"].strip() for row in rows_of(mine.select("key").orderBy("key").limit(_SHOWN))]
            return pinned_too_many(workers, rank, sums.pinned[rank], keys)
    return too_many(sums.subjects, workers)


def _waves(members: Mapping[int, tuple[int, tuple[int, ...]]], problems: Sequence[PoolProblem]) -> list[list[int]]:
    """Groups that are planned together: a budget is used up group by group."""
    waves: dict[int, list[int]] = {}
    seen: dict[int, int] = {}
    for group, (number, _) in members.items():
        wave = seen.get(number, 0) if problems[number].rules.budget is not None else 0
        seen[number] = wave + 1
        waves.setdefault(wave, []).append(group)
    return [waves[wave] for wave in sorted(waves)]


def _lost(
    grouped: DataFrame, members: Mapping[int, tuple[int, tuple[int, ...]]], problems: Sequence[PoolProblem]
) -> frozenset[int]:
    """Groups with partitions and without anybody to receive them."""
    empty = {group for group, (number, ranks) in members.items() if not any(problems[number].workers.active[k] for k in ranks)}
    if not empty:
        return frozenset()
    return frozenset(row["g"] for row in rows_of(grouped.select("g").distinct()) if row["g"] in empty)


def _groups(
    wave: list[int],
    members: Mapping[int, tuple[int, tuple[int, ...]]],
    problems: Sequence[PoolProblem],
    found: Mapping[int, Solution],
) -> dict[int, Group]:
    groups = {}
    for group in wave:
        number, ranks = members[group]
        problem = problems[number]
        budget = problem.rules.budget
        if budget is not None:
            earlier = (other for other, (of, _) in members.items() if of == number and other in found)
            budget = _left(budget, [found[other] for other in earlier])
        if any(problem.workers.active[k] for k in ranks):
            groups[group] = Group(group, problem.workers, ranks, replace(problem.rules, budget=budget), problem.offset)
    return groups


def _left(budget: int, earlier: list[Solution]) -> int:
    for solution in earlier:
        budget = max(0, budget - solution.moved)
    return budget


def _outcome(
    number: int,
    problem: PoolProblem,
    members: Mapping[int, tuple[int, tuple[int, ...]]],
    found: Mapping[int, Solution],
    failed: tuple[Mapping[int, CapExceeded], frozenset[int]],
) -> PlanSummary:
    """The groups of a problem as one."""
    errors, lost = failed
    if number in errors:
        return PlanSummary(error=errors[number])
    mine = [(group, ranks) for group, (of, ranks) in members.items() if of == number]
    for group, ranks in mine:
        if group in lost:
            return PlanSummary(error=no_receivers())
        solution = found.get(group)
        if solution is not None and solution.error is not None:
            return PlanSummary(error=cap_exceeded(solution.error, solution.all_subjects, problem.workers, ranks))
    solved = [found[group] for group, _ in mine if group in found]
    return PlanSummary(
        {worker: share for one in solved for worker, share in one.solved.share.items()},
        tuple(key for one in solved for key in one.giants),
        frozenset().union(*(one.solved.hosts for one in solved)),
        sum((one.solved.bounds for one in solved), Bounds()),
        tuple(dict.fromkeys(reason for one in solved for reason in one.solved.held_by)),
        sum(one.solved.waiting for one in solved),
        frozenset().union(*(one.solved.filling for one in solved)),
    )


def _leaves(
    partitions: DataFrame,
    rows: DataFrame | None,
    members: Mapping[int, tuple[int, tuple[int, ...]]],
    *,
    units: bool,
) -> DataFrame:
    """Every partition with the place of its item."""
    if rows is None:
        nothing = F.lit(-1).cast("int")
        return partitions.withColumn("item_home", F.col("home")).withColumn("place", nothing).withColumn("reason", nothing)
    problems = small(
        partitions.sparkSession,
        {"g": (LONG, list(members)), "problem": (INT, [number for number, _ in members.values()])},
    )
    if len(members) == 1:
        ((number, _),) = members.values()
        named = rows.withColumn("problem", F.lit(number).cast("int"))
    else:
        named = rows.join(problems, "g")
    if not units:
        return named.select(
            "problem",
            F.col("key").alias("subject"),
            F.lit(None).cast("string").alias("unit"),
            "w",
            "home",
            "pin",
            "zone",
            F.col("home").alias("item_home"),
            "place",
            "reason",
        )
    placed = named.select("problem", "key", F.col("home").alias("item_home"), "place", F.col("reason").alias("why"))
    leaves = partitions.withColumn("key", item_key()).join(placed, ["problem", "key"], "left")
    home, place = F.col("home"), F.col("place")
    reason = (
        F.when(home == NEW, F.lit(int(MoveReason.NEW)))
        .when(home == ABSENT, F.lit(int(MoveReason.ABSENT)))
        .when(place == home, F.lit(int(MoveReason.STAYS)))
        .when(F.col("why") == int(MoveReason.STAYS), F.lit(int(MoveReason.UNIT)))
        .when(F.col("why") == int(MoveReason.ABSENT), F.lit(int(MoveReason.DRAINING)))
        .otherwise(F.col("why"))
    )
    placed_or_not = F.coalesce("place", F.lit(-1)).cast("int")
    return leaves.withColumn("reason", reason.cast("int")).withColumn("place", placed_or_not).drop("why", "key")
