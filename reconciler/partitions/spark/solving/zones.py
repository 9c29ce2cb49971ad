"""Zones (`planning.zones`): which items are planned together, and by which workers.

Soft zones are planned as workers first: where that puts an item is where it is planned.

Invariant: which group an item belongs to is settled before any worker is looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from reconciler.partitions.planning.model import PlanningRules, Workers
from reconciler.partitions.planning.planner import CapExceeded, zones_exceeded
from reconciler.partitions.planning.zones import open_zones, zone_workers
from reconciler.partitions.spark.columns.frames import INT, LONG, among, kept, small
from reconciler.partitions.spark.solving.groups import Group
from reconciler.partitions.spark.solving.problems import PoolProblem, Sums
from reconciler.partitions.spark.solving.solve import solve

_ITEM = ("problem", "g", "key", "hash", "w", "f", "home", "pin", "zone")


def groups_of(
    items: DataFrame, problems: Sequence[PoolProblem], sums: Sequence[Sums], errors: dict[int, CapExceeded]
) -> tuple[DataFrame, dict[int, tuple[int, tuple[int, ...]]]]:
    """Items with their group, and of each group the problem and the workers; errors of soft zones are added."""
    members: dict[int, tuple[int, tuple[int, ...]]] = {}
    zoned: list[tuple[int, int, int]] = []
    soft = []
    for number, problem in enumerate(problems):
        if number in errors:
            continue
        if problem.rules.zones == "ignore" or not sums[number].zoned:
            zoned.append((number, -9, len(members)))
            members[len(members)] = (number, tuple(range(len(problem.workers))))
            continue
        soft += [number] if problem.rules.zones == "soft" else []
        for zone, ranks in enumerate(_zones(problem.workers)):
            zoned.append((number, zone, len(members)))
            members[len(members)] = (number, ranks)
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
    by_zone: DataFrame, problems: Sequence[PoolProblem], sums: Sequence[Sums], soft: Sequence[int]
) -> tuple[DataFrame, dict[int, CapExceeded]]:
    """Zones as workers, items as they are. And what fits into none."""
    groups, roomy = _as_workers(problems, sums, soft)
    solved = solve(kept(_at_zones(among(by_zone, "problem", soft), problems, groups, roomy)), groups)
    starts = small(by_zone.sparkSession, {"problem": (INT, soft), "start": (INT, [groups[number].offset for number in soft])})
    lent = solved.rows.select(F.col("g").cast("int").alias("problem"), "key", "place").join(starts, "problem")
    lent = lent.select("problem", "key", (F.col("place") - F.col("start")).cast("int").alias("lent"))
    found = by_zone.join(lent, ["problem", "key"], "left")
    full = {
        number: zones_exceeded(solution.error, sums[number].subjects, problems[number].workers)
        for number, solution in solved.groups.items()
        if solution.error is not None
    }
    return found.withColumn("by", F.coalesce("lent", "by")).drop("lent"), full


def _as_workers(
    problems: Sequence[PoolProblem], sums: Sequence[Sums], soft: Sequence[int]
) -> tuple[dict[int, Group], dict[int, list[bool]]]:
    """The zones of each problem as a group of workers, and which of them have room for all that belongs to them."""
    groups: dict[int, Group] = {}
    roomy: dict[int, list[bool]] = {}
    offset = 0
    for number in soft:
        rules, zones = problems[number].rules, _zones(problems[number].workers)
        large = zone_workers(problems[number].workers, zones)
        of_zone = [sums[number].zones.get(zone, (0, 0)) for zone in range(len(zones))]
        weight, subjects = [weight for weight, _ in of_zone], [subjects for _, subjects in of_zone]
        whole = sum(weight for weight, _ in sums[number].zones.values())
        roomy[number] = open_zones(large, zones, rules, (weight, subjects, whole))
        groups[number] = Group(
            number, large, tuple(range(len(zones))), PlanningRules(rules.trigger, rules.target, fill=False), offset
        )
        offset += len(zones)
    return groups, roomy


def _at_zones(
    items: DataFrame, problems: Sequence[PoolProblem], groups: Mapping[int, Group], roomy: Mapping[int, Sequence[bool]]
) -> DataFrame:
    """Items that zones have as workers have them; those of a zone with room for all stay in it."""
    spark = items.sparkSession
    zones = [(number, zone, group.offset + zone) for number, group in groups.items() for zone in group.ranks]
    of_zone = small(
        spark,
        {
            "problem": (INT, [number for number, _, _ in zones]),
            "zone": (INT, [zone for _, zone, _ in zones]),
            "own": (INT, [own for _, _, own in zones]),
            "roomy": (INT, [int(roomy[number][zone]) for number, zone, _ in zones]),
        },
    )
    homes = [
        (problems[number].offset + rank, group.offset + zone)
        for number, group in groups.items()
        for rank, zone in enumerate(problems[number].workers.zone)
    ]
    workers, here = (INT, [worker for worker, _ in homes]), (INT, [zone for _, zone in homes])
    of_home, of_pin = small(spark, {"home": workers, "here": here}), small(spark, {"pin": workers, "pinned": here})
    joined = items.join(of_zone, ["problem", "zone"]).join(of_home, "home", "left").join(of_pin, "pin", "left")
    at_home = F.col("roomy") == 1
    home = F.when(at_home, F.col("own")).otherwise(F.coalesce("here", "own")).cast("int")
    pin = F.coalesce(F.col("pinned"), F.when(at_home, F.col("own")), F.lit(-1)).cast("int")
    return joined.select(
        F.col("problem").cast("long").alias("g"),
        "key",
        "hash",
        "w",
        "f",
        home.alias("home"),
        pin.alias("pin"),
        F.lit(-1).cast("int").alias("zone"),
    )


def _zones(workers: Workers) -> list[tuple[int, ...]]:
    """The workers of each zone."""
    return [tuple(k for k, of in enumerate(workers.zone) if of == zone) for zone in range(max(workers.zone) + 1)]
