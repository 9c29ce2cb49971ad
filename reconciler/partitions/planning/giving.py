"""Who gives away how much, and the least that any plan of the same rules would have to move.

Invariant: a worker that is not over the trigger gives only to fill fresh ones, and never below the level they all share.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from reconciler.partitions.planning.columns import by_rank
from reconciler.partitions.planning.fixed import Fixed
from reconciler.partitions.planning.model import Ints, Items, PlanningRules, Workers
from reconciler.partitions.planning.quotas import skim
from reconciler.partitions.planning.shedding import Give


@dataclass(frozen=True, slots=True)
class Giving:
    """What is given away, and by whom."""

    gives: Mapping[int, Give]
    over: Mapping[int, int]
    """Who is over the trigger, or is a host with more than its own: how much is too much."""
    waiting: int
    """What should be given away and is not, because the budget ended."""


def find_giving(workers: Workers, rules: PlanningRules, fixed: Fixed, load: Ints, pool: tuple[int, int]) -> Giving:
    """From the load of each worker, and of the pool: the weight that is in it already, and by what fresh workers are filled."""
    waiting, grain = pool
    over = {}
    for worker in (*fixed.receivers, *sorted(fixed.hosts)):
        if rules.shed and load[worker] > fixed.share_of(worker, workers, rules.trigger):
            over[worker] = int(load[worker]) - fixed.share_of(worker, workers, rules.trigger if rules.chains else rules.target)
    lacking = 0
    if rules.fill:
        fresh = (worker for worker in fixed.receivers if workers.fresh[worker])
        lack = (max(0, fixed.share_of(worker, workers) - int(load[worker])) for worker in fresh)
        lacking = sum(weight - weight % grain for weight in lack)
    wanted = max(0, lacking - waiting)
    more = _for_the_fresh(wanted - sum(over.values()), workers, fixed, load, over)
    gives = {
        worker: Give(over.get(worker, 0), over.get(worker, 0) + more.get(worker, 0), workers.capacity[worker])
        for worker in sorted({*over, *more})
    }
    if rules.budget is None:
        return Giving(gives, over, 0)
    affordable = _affordable(gives, rules.budget)
    left = sum(give.may for give in gives.values()) - sum(give.may for give in affordable.values())
    return Giving(affordable, over, left)


def _for_the_fresh(wanted: int, workers: Workers, fixed: Fixed, load: Ints, over: Mapping[int, int]) -> dict[int, int]:
    if wanted <= 0:
        return {}
    left = {worker: int(load[worker]) - over.get(worker, 0) for worker in fixed.receivers if not workers.fresh[worker]}
    skimmed = skim(wanted, left, {worker: workers.capacity[worker] for worker in left})
    return {worker: weight for worker, weight in skimmed.items() if weight > 0}


def _affordable(gives: Mapping[int, Give], budget: int) -> dict[int, Give]:
    """The largest overloads first, by capacity."""
    found = {}
    for worker in sorted(gives, key=lambda worker: (-((gives[worker].may << 64) // gives[worker].capacity), worker)):
        may = min(gives[worker].may, budget)
        budget -= may
        if may > 0:
            found[worker] = Give(0, may, gives[worker].capacity)
    return found


def least_given(items: Items, rows: Ints, over: Mapping[int, int], workers: int) -> int:
    """The least weight that those over the trigger have to give, out of these rows, which are all that they could give.

    A worker whose items are all heavier than its excess gives at least the lightest of them; in general so many items as the
    heaviest ones would do, each at least as heavy as the lightest.
    """
    if not over:
        return 0
    home, weight = items.home[rows], items.weight[rows]
    excess = by_rank(workers, over)
    lightest, heaviest = np.full(workers, np.iinfo(np.int64).max), np.zeros(workers, dtype=np.int64)
    np.minimum.at(lightest, home, weight)
    np.maximum.at(heaviest, home, weight)
    large = weight >= excess[home]
    small_sum, lightest_large = np.zeros(workers, dtype=np.int64), np.full(workers, np.iinfo(np.int64).max)
    np.add.at(small_sum, home[~large], weight[~large])
    np.minimum.at(lightest_large, home[large], weight[large])
    found = 0
    for worker, much in over.items():
        large_one = int(lightest_large[worker])
        found += least_of_one(
            much,
            (int(lightest[worker]), int(heaviest[worker])),
            (int(small_sum[worker]), large_one if large_one < np.iinfo(np.int64).max else None),
        )
    return found


def least_of_one(much: int, weights: tuple[int, int], small_and_large: tuple[int, int | None]) -> int:
    """What one worker has to give at least, from its lightest and heaviest, all lighter than `much`, and the lightest other."""
    (lightest, heaviest), (small_sum, lightest_large) = weights, small_and_large
    if not heaviest:
        return 0  # pins alone: nothing of it can move
    least = max(much, -(-much // heaviest) * lightest)
    return max(least, lightest_large) if small_sum < much and lightest_large is not None else least
