"""Problems for the planner, small enough to read and to check by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from reconciler.partitions.planning.columns import sums
from reconciler.partitions.planning.keys import Keys
from reconciler.partitions.planning.model import ABSENT, NEW, Items, PlanningRules, Workers
from reconciler.partitions.planning.planner import PartitionPlan, plan_locally

UNIT = 1_000_000
RULES = PlanningRules(trigger=100_000, target=50_000, fill=True)


def workers(count: int, *, capacity: Sequence[int] | int = UNIT, slots: int = 10**6, draining: Sequence[int] = ()) -> Workers:
    """So many workers, all in the earlier plan."""
    capacities = (capacity,) * count if isinstance(capacity, int) else tuple(capacity)
    return Workers(
        names=tuple(f"w{number:05d}" for number in range(count)),
        capacity=capacities,
        slots=(slots,) * count,
        active=tuple(number not in draining for number in range(count)),
        zone=(-1,) * count,
        fresh=(False,) * count,
    )


def fresh(given: Workers, ranks: Sequence[int]) -> Workers:
    """The same, some of them new."""
    return replace(given, fresh=tuple(rank in ranks for rank in range(len(given))))


def items(weights: Sequence[int], home: Sequence[int] | int = NEW) -> Items:
    """Partitions of these weights, `dc.tool0.chamber0` and so on."""
    count = len(weights)
    subjects = [f"dc.tool{number // 4}.chamber{number % 4}" for number in range(count)]
    nowhere = np.full(count, -1, dtype=np.int32)
    homes = np.full(count, home, dtype=np.int32) if isinstance(home, int) else np.asarray(home, dtype=np.int32)
    ones = np.ones(count, dtype=np.int64)
    return Items(Keys(subjects), np.asarray(weights, dtype=np.int64), ones, homes, nowhere, nowhere)


@dataclass(frozen=True)
class Quality:
    """What a plan is worth."""

    most: float
    """The highest load by share, giants' hosts apart."""
    least: float
    moved: int
    count: int
    bound: int


def quality(given: Items, around: Workers, plan: PartitionPlan) -> Quality:
    """From the result itself."""
    load = sums(given.weight, plan.place, len(around)).tolist()
    ratios = [load[rank] * share.capacity / (share.weight * around.capacity[rank]) for rank, share in plan.share.items()]
    moved = (plan.place != given.home) & (given.home != NEW)
    return Quality(max(ratios), min(ratios), int(given.weight[moved].sum()), int(moved.sum()), plan.bounds.moved)


def resized(weights: Sequence[int], before: int, after: int) -> tuple[Items, Workers]:
    """A settled plan of so many workers, and then others."""
    start = items(weights)
    home = plan_locally(start, workers(before), RULES).place.copy()
    home[home >= after] = ABSENT
    return start.at(home), fresh(workers(after), range(before, after))


def shuffled(
    given: Items, unit: pa.Array | None, order: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> tuple[Items, pa.Array | None]:
    """The same rows in another order."""
    return given.take(order), None if unit is None else unit.take(pa.array(order))
