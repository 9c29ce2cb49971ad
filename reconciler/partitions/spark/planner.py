"""The whole plan (`planning.planner`), for one table of workers or for several that have nothing to do with each other.

Invariant: what comes back has been checked from its own rows; a plan that breaks a rule is an error, never a plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from reconciler.partitions.planning.model import ABSENT, NEW, Bounds, Reason, Rules, Share, Workers
from reconciler.partitions.planning.planner import (
    CapExceeded,
    cap_exceeded,
    no_receivers,
    pinned_too_many,
    too_many,
    zones_exceeded,
)
from reconciler.partitions.planning.zones import open_zones, zone_workers
from reconciler.partitions.spark.frames import INT, LONG, among, kept, rows_of, small, total
from reconciler.partitions.spark.groups import Group, Solution
from reconciler.partitions.spark.items import item_key, roll_up
from reconciler.partitions.spark.proving import Asked, prove
from reconciler.partitions.spark.solve import solve

_SHOWN = 5
_ITEM = ("problem", "g", "key", "hash", "w", "f", "home", "pin", "zone")


@dataclass(frozen=True, slots=True)
class Problem:
    """One table of workers, and the rules for its partitions."""

    workers: Workers
    rules: Rules
    offset: int = 0
    """Of its workers in the DataFrame."""


@dataclass(frozen=True, slots=True)
class Outcome:
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
class Planned:
    """Every partition with `place` and `reason`, and what is known of each problem."""

    rows: DataFrame
    outcomes: Sequence[Outcome]
    counts: Mapping[int, int]
    """Partitions of every worker that has any."""
    sums: Sequence[Mapping[str, Any]]
    """Of the rows, by worker and reason (`proving.Proof`)."""


@dataclass(slots=True)
class _Sums:
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


def plan(partitions: DataFrame, problems: Sequence[Problem], *, units: bool) -> Planned:
    """Plans partitions (`items.LEAF`)."""
    items = roll_up(partitions, _draining(problems), units=units)
    items = kept(items) if units else items
    sums = _sums(items, problems)
    errors: dict[int, CapExceeded] = {}
    for number, problem in enumerate(problems):
        error = _no_room(items, number, problem, sums[number])
        if error is not None:
            errors[number] = error
    grouped, members = _grouped(items, problems, sums, errors)
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
    return Planned(leaves, outcomes, proof.counts, proof.sums)


def _draining(problems: Sequence[Problem]) -> list[int]:
    """Workers that receive nothing, as DataFrames have them."""
    return [problem.offset + rank for problem in problems for rank, active in enumerate(problem.workers.active) if not active]


def _sums(items: DataFrame, problems: Sequence[Problem]) -> list[_Sums]:
    found = [_Sums() for _ in problems]
    partitions = F.sum("n" if "n" in items.columns else "f").alias("n")
    sums_of = (total("w"), total("f"), partitions, F.bit_xor("hash").alias("hashes"))
    for row in rows_of(items.groupBy("problem", "zone").agg(*sums_of)):
        sums = found[row["problem"]]
        sums.subjects += row["f"]
        sums.partitions += row["n"]
        sums.hashes ^= row["hashes"]
        sums.zones[row["zone"]] = (row["w"], row["f"])
        sums.zoned = sums.zoned or row["zone"] >= 0
    for row in rows_of(items.filter(F.col("pin") >= 0).groupBy("problem", "pin").agg(total("f"))):
        found[row["problem"]].pinned[row["pin"] - problems[row["problem"]].offset] = row["f"]
    return found


def _no_room(items: DataFrame, number: int, problem: Problem, sums: _Sums) -> CapExceeded | None:
    """Before anything else: enough room at all, and for what is pinned."""
    workers = problem.workers
    for rank in sorted(sums.pinned):
        if sums.pinned[rank] > workers.slots[rank]:
            mine = items.filter((F.col("problem") == number) & (F.col("pin") == rank + problem.offset))
            keys = [row["key"].strip() for row in rows_of(mine.select("key").orderBy("key").limit(_SHOWN))]
            return pinned_too_many(workers, rank, sums.pinned[rank], keys)
    return too_many(sums.subjects, workers)


def _grouped(
    items: DataFrame, problems: Sequence[Problem], sums: list[_Sums], errors: dict[int, CapExceeded]
) -> tuple[DataFrame, dict[int, tuple[int, tuple[int, ...]]]]:
    """Items with their group, and of each group the problem and the workers; errors of soft zones are added."""
    members: dict[int, tuple[int, tuple[int, ...]]] = {}
    zoned: list[tuple[int, int, int]] = []
    soft = []
    for number, problem in enumerate(problems):
        if number in errors:
            continue
        workers = problem.workers
        everybody = tuple(range(len(workers)))
        if problem.rules.zones == "ignore" or not sums[number].zoned:
            zoned.append((number, -9, len(members)))
            members[len(members)] = (number, everybody)
            continue
        soft += [number] if problem.rules.zones == "soft" else []
        for zone in range(max(workers.zone) + 1):
            zoned.append((number, zone, len(members)))
            members[len(members)] = (number, tuple(k for k in everybody if workers.zone[k] == zone))
    whole = {number for number, zone, _ in zoned if zone < 0}
    numbers = sorted({number for number, _, _ in zoned})
    spark = items.sparkSession
    if not soft and len(members) == len(whole) == 1 and len(problems) == 1:
        return items.withColumn("g", F.lit(0).cast("long")).select(*_ITEM), members
    kinds = small(spark, {"problem": (INT, numbers), "whole": (INT, [int(number in whole) for number in numbers])})
    by_zone = items.join(kinds, "problem").withColumn("by", F.when(F.col("whole") == 1, F.lit(-9)).otherwise(F.col("zone")))
    if soft:
        by_zone, full = _lent(by_zone, problems, sums, soft)
        errors.update(full)
        members = {group: of for group, of in members.items() if of[0] not in full}
        zoned = [one for one in zoned if one[0] not in full]
    table = small(
        spark,
        {
            "problem": (INT, [number for number, _, _ in zoned]),
            "by": (INT, [zone for _, zone, _ in zoned]),
            "g": (LONG, [group for _, _, group in zoned]),
        },
    )
    return kept(by_zone.join(table, ["problem", "by"]).select(*_ITEM)), members


def _lent(
    by_zone: DataFrame, problems: Sequence[Problem], sums: list[_Sums], soft: list[int]
) -> tuple[DataFrame, dict[int, CapExceeded]]:
    """Soft zones: they are planned as workers first, and where that puts an item is its group. And what fits into none."""
    spark = by_zone.sparkSession
    groups, zone_rows, home_rows = {}, [], []
    offset = 0
    for number in soft:
        problem, workers = problems[number], problems[number].workers
        zones = [tuple(k for k in range(len(workers)) if workers.zone[k] == zone) for zone in range(max(workers.zone) + 1)]
        weight = [sums[number].zones.get(zone, (0, 0))[0] for zone in range(len(zones))]
        subjects = [sums[number].zones.get(zone, (0, 0))[1] for zone in range(len(zones))]
        whole = sum(weight for weight, _ in sums[number].zones.values())
        large = zone_workers(workers, zones)
        roomy = open_zones(large, zones, problem.rules, (weight, subjects, whole))
        calm = Rules(problem.rules.trigger, problem.rules.target, fill=False)
        groups[number] = Group(number, large, tuple(range(len(zones))), calm, offset)
        zone_rows += [(number, zone, offset + zone, int(roomy[zone])) for zone in range(len(zones))]
        home_rows += [(problem.offset + k, offset + workers.zone[k]) for k in range(len(workers))]
        offset += len(zones)
    of_zone = small(
        spark,
        {
            "problem": (INT, [row[0] for row in zone_rows]),
            "zone": (INT, [row[1] for row in zone_rows]),
            "own": (INT, [row[2] for row in zone_rows]),
            "roomy": (INT, [row[3] for row in zone_rows]),
        },
    )
    of_home = small(spark, {"home": (INT, [row[0] for row in home_rows]), "here": (INT, [row[1] for row in home_rows])})
    of_pin = small(spark, {"pin": (INT, [row[0] for row in home_rows]), "pinned": (INT, [row[1] for row in home_rows])})
    mine = among(by_zone, "problem", soft)
    joined = mine.join(of_zone, ["problem", "zone"]).join(of_home, "home", "left").join(of_pin, "pin", "left")
    at_home = F.col("roomy") == 1
    home = F.when(at_home, F.col("own")).otherwise(F.coalesce("here", "own")).cast("int")
    pin = F.coalesce(F.col("pinned"), F.when(at_home, F.col("own")), F.lit(-1)).cast("int")
    as_zones = joined.select(
        F.col("problem").cast("long").alias("g"),
        "key",
        "hash",
        "w",
        "f",
        home.alias("home"),
        pin.alias("pin"),
        F.lit(-1).cast("int").alias("zone"),
    )
    solved = solve(kept(as_zones), groups)
    starts = small(spark, {"problem": (INT, soft), "start": (INT, [groups[number].offset for number in soft])})
    lent = solved.rows.select(F.col("g").cast("int").alias("problem"), "key", "place").join(starts, "problem")
    lent = lent.select("problem", "key", (F.col("place") - F.col("start")).cast("int").alias("lent"))
    found = by_zone.join(lent, ["problem", "key"], "left")
    full = {
        number: zones_exceeded(solution.error, sums[number].subjects, problems[number].workers)
        for number, solution in solved.groups.items()
        if solution.error is not None
    }
    return found.withColumn("by", F.coalesce("lent", "by")).drop("lent"), full


def _waves(members: Mapping[int, tuple[int, tuple[int, ...]]], problems: Sequence[Problem]) -> list[list[int]]:
    """Groups that are planned together: a budget is used up group by group."""
    waves: dict[int, list[int]] = {}
    seen: dict[int, int] = {}
    for group, (number, _) in members.items():
        wave = seen.get(number, 0) if problems[number].rules.budget is not None else 0
        seen[number] = wave + 1
        waves.setdefault(wave, []).append(group)
    return [waves[wave] for wave in sorted(waves)]


def _lost(grouped: DataFrame, members: Mapping[int, tuple[int, tuple[int, ...]]], problems: Sequence[Problem]) -> frozenset[int]:
    """Groups with partitions and without anybody to receive them."""
    empty = {group for group, (number, ranks) in members.items() if not any(problems[number].workers.active[k] for k in ranks)}
    if not empty:
        return frozenset()
    return frozenset(row["g"] for row in rows_of(grouped.select("g").distinct()) if row["g"] in empty)


def _groups(
    wave: list[int],
    members: Mapping[int, tuple[int, tuple[int, ...]]],
    problems: Sequence[Problem],
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
    problem: Problem,
    members: Mapping[int, tuple[int, tuple[int, ...]]],
    found: Mapping[int, Solution],
    failed: tuple[Mapping[int, CapExceeded], frozenset[int]],
) -> Outcome:
    """The groups of a problem as one."""
    errors, lost = failed
    if number in errors:
        return Outcome(error=errors[number])
    mine = [(group, ranks) for group, (of, ranks) in members.items() if of == number]
    for group, ranks in mine:
        if group in lost:
            return Outcome(error=no_receivers())
        solution = found.get(group)
        if solution is not None and solution.error is not None:
            return Outcome(error=cap_exceeded(solution.error, solution.all_subjects, problem.workers, ranks))
    solved = [found[group] for group, _ in mine if group in found]
    return Outcome(
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
        F.when(home == NEW, F.lit(int(Reason.NEW)))
        .when(home == ABSENT, F.lit(int(Reason.ABSENT)))
        .when(place == home, F.lit(int(Reason.STAYS)))
        .when(F.col("why") == int(Reason.STAYS), F.lit(int(Reason.UNIT)))
        .when(F.col("why") == int(Reason.ABSENT), F.lit(int(Reason.DRAINING)))
        .otherwise(F.col("why"))
    )
    placed_or_not = F.coalesce("place", F.lit(-1)).cast("int")
    return leaves.withColumn("reason", reason.cast("int")).withColumn("place", placed_or_not).drop("why", "key")
