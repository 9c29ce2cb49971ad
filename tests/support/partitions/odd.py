"""Random problems for planners, and the same problems as one DataFrame."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from reconciler.partitions.planning.keys import Keys
from reconciler.partitions.planning.model import ABSENT, NEW, Items, PlanningRules, Workers
from reconciler.partitions.planning.planner import CapExceeded, PartitionPlan, plan_locally

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

UNIT = 1_000_000


@dataclass(frozen=True)
class Pool:
    """One problem."""

    items: Items
    workers: Workers
    rules: PlanningRules
    unit: pa.Array | None
    subjects: list[str]

    def plan(self) -> PartitionPlan | str:
        """The local plan, or what it says is missing."""
        try:
            return plan_locally(self.items, self.workers, self.rules, self.unit)
        except CapExceeded as error:
            return str(error)


def pool(dice: np.random.Generator, number: int, most: int = 60) -> Pool:
    """A table as odd as it may be."""
    zones = str(dice.choice(["ignore", "ignore", "hard", "soft"]))
    count_workers = int(dice.integers(1, 9))
    zone_count = int(dice.integers(1, min(3, count_workers) + 1)) if zones != "ignore" else 0
    roomy = [6, 12, 40, 10**6] if dice.random() < 0.4 else [10**6]
    draining = 0.25 if dice.random() < 0.5 else 0.0
    names = [f"w{rank}" for rank in range(count_workers)]
    around = Workers(
        tuple(names),
        tuple(int(c) for c in dice.choice([UNIT, UNIT, UNIT, 2 * UNIT, UNIT // 3], count_workers)),
        tuple(int(s) for s in dice.choice(roomy, count_workers)),
        tuple(bool(a) for a in dice.random(count_workers) >= draining),
        tuple(rank % zone_count if zone_count else -1 for rank in range(count_workers)),
        tuple(bool(f) for f in dice.random(count_workers) < dice.choice([0.0, 0.3])),
    )
    count = int(dice.integers(0, most))
    kind = dice.integers(0, 5)
    weights = [
        dice.integers(1, 21, count) * UNIT,
        np.full(count, UNIT),
        (dice.lognormal(0, 1, count) * UNIT).astype(np.int64) + 1,
        dice.integers(1, 2**40, count),
        np.where(dice.random(count) < 0.1, dice.integers(100, 500, max(1, count))[:count] * UNIT, UNIT),
    ][kind].astype(np.int64)
    home = dice.integers(ABSENT, count_workers, count).astype(np.int32) if dice.random() < 0.7 else np.full(count, NEW, np.int32)
    zone = np.array([row % zone_count if zone_count else -1 for row in range(count)], dtype=np.int32)
    active = [rank for rank in range(count_workers) if around.active[rank]] or [-1]
    pin = np.full(count, -1, dtype=np.int32)
    unit = None
    if dice.random() < 0.4:
        units = [None if dice.random() < 0.2 else f"{dice.choice(list('abcdefgh'))}{zone[row]}" for row in range(count)]
        unit = pa.array(units, pa.string())
    elif zones != "hard" and dice.random() < 0.4:
        pin = dice.choice([-1, -1, -1, *active], count).astype(np.int32)
    trigger = int(dice.choice([100_000, 50_000, 0]))
    budget = int(weights.sum() * dice.random() * 0.3) if unit is None and dice.random() < 0.25 else None
    rules = PlanningRules(trigger, min(trigger, 50_000), bool(dice.random() < 0.5), budget, zones)
    subjects = [f"s.{number}.{row}" for row in range(count)]
    return Pool(Items(Keys(subjects), weights, filters(unit, count, number), home, pin, zone), around, rules, unit, subjects)


def filters(unit: pa.Array | None, count: int, number: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """How many filters each partition adds; in half of the tables with units, partitions of a unit share some."""
    found = np.ones(count, dtype=np.int64)
    if unit is not None and number % 2:
        seen: set[tuple[str, int]] = set()
        for row, name in enumerate(unit.to_pylist()):
            if name is not None and row % 3:
                found[row] = (name, row % 2) not in seen
                seen.add((name, row % 2))
    return found


def grown(dice: np.random.Generator, number: int) -> Pool:
    """Large items, balanced on some workers; then their weights change, and a new worker comes or one begins to drain."""
    count_workers = int(dice.integers(4, 9))
    count = int(dice.choice([2, 3, 8, 16, 24])) * count_workers
    weights = (dice.lognormal(0, dice.choice([0.3, 1.0]), count) * UNIT).astype(np.int64) + 1
    names = tuple(f"w{rank}" for rank in range(count_workers))
    new = tuple(rank >= count_workers - 1 for rank in range(count_workers))
    capacity, slots, nowhere = (UNIT,) * count_workers, (10**6,) * count_workers, np.full(count, -1, dtype=np.int32)
    nobody_drains, no_zones = (True,) * count_workers, (-1,) * count_workers
    subjects = [f"s.{number}.{row}" for row in range(count)]
    start = Workers(names, capacity, slots, tuple(not one for one in new), no_zones, (False,) * count_workers)
    items = Items(Keys(subjects), weights, np.ones(count, dtype=np.int64), nowhere, nowhere, nowhere)
    home = plan_locally(items, start, PlanningRules(50_000, 25_000, fill=False), None).place
    changed = (weights * dice.choice([0.5, 0.9, 1.0, 1.1, 2.0], count)).astype(np.int64) + 1
    drains = dice.random() < 0.3
    now = Workers(names, capacity, slots, tuple(not drains or rank > 0 for rank in range(count_workers)), no_zones, new)
    items = Items(items.keys, changed, items.filters, home, nowhere, nowhere)
    return Pool(
        items, now if drains else replace(now, active=nobody_drains), PlanningRules(100_000, 50_000, fill=True), None, subjects
    )


def crowded(dice: np.random.Generator, number: int) -> Pool:
    """Nobody has too much weight, but one has more subjects than it may."""
    count, names, nowhere = 36, ("w0", "w1", "w2", "w3"), np.full(36, -1, dtype=np.int32)
    around = Workers(names, (UNIT,) * 4, (12,) * 4, (True,) * 4, (-1,) * 4, (False,) * 4)
    home = dice.permutation(np.repeat(np.arange(4, dtype=np.int32), (20, 6, 5, 5)))
    subjects = [f"s.{number}.{row}" for row in range(count)]
    items = Items(Keys(subjects), dice.integers(1, 4, count) * UNIT, np.ones(count, dtype=np.int64), home, nowhere, nowhere)
    return Pool(items, around, PlanningRules(3_000_000, 2_000_000, fill=True), None, subjects)


def scattered(dice: np.random.Generator, number: int) -> Pool:
    """Units whose partitions are apart, much of them at a worker that drains."""
    count, names, nowhere = 48, ("w0", "w1", "w2", "w3"), np.full(48, -1, dtype=np.int32)
    around = Workers(names, (UNIT,) * 4, (10**6,) * 4, (True, True, True, False), (-1,) * 4, (False,) * 4)
    home = dice.choice(np.array([0, 1, 2, 3, 3], dtype=np.int32), count)
    unit = pa.array([f"u{row // 4}" for row in range(count)])
    subjects = [f"s.{number}.{row}" for row in range(count)]
    ones = np.ones(count, dtype=np.int64)
    items = Items(Keys(subjects), dice.integers(1, 20, count) * UNIT, ones, home, nowhere, nowhere)
    return Pool(items, around, PlanningRules(100_000, 50_000, fill=True), unit, subjects)


def offsets(pools: list[Pool]) -> list[int]:
    """Where the workers of each begin."""
    return [0, *accumulate(len(one.workers) for one in pools)][:-1]


def leaves(spark: SparkSession, pools: list[Pool], dice: np.random.Generator | None = None) -> DataFrame:
    """All partitions of all pools, in any order."""
    columns: dict[str, list[Any]] = {name: [] for name in ("problem", "subject", "unit", "w", "f", "home", "pin", "zone")}
    for number, (one, offset) in enumerate(zip(pools, offsets(pools), strict=True)):
        columns["problem"] += [number] * len(one.items)
        columns["subject"] += one.subjects
        columns["unit"] += one.unit.to_pylist() if one.unit is not None else [None] * len(one.items)
        columns["w"] += one.items.weight.tolist()
        columns["f"] += one.items.filters.tolist()
        for name, ranks in (("home", one.items.home), ("pin", one.items.pin)):
            columns[name] += [rank + offset if rank >= 0 else rank for rank in ranks.tolist()]
        columns["zone"] += one.items.zone.tolist()
    whole, text = pa.int32(), pa.string()
    kinds = {
        "problem": whole,
        "subject": text,
        "unit": text,
        "w": pa.int64(),
        "f": pa.int64(),
        "home": whole,
        "pin": whole,
        "zone": whole,
    }
    table = pa.table({name: pa.array(values, kinds[name]) for name, values in columns.items()})
    if dice is not None:
        table = table.take(pa.array(dice.permutation(len(table))))
    return spark.createDataFrame(table)
