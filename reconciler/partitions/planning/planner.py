"""The local planner: partitions, workers and where everything was → where everything goes.

Invariant: what it returns has been checked from the result itself; a plan that breaks a rule is an error, never a plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reconciler.partitions.planning.columns import sums
from reconciler.partitions.planning.dealing import NoRoom
from reconciler.partitions.planning.model import (
    ABSENT,
    NEW,
    Bounds,
    Items,
    MoveReason,
    PlanningRules,
    Ranks,
    Share,
    Solved,
    Workers,
)
from reconciler.partitions.planning.solve import solve
from reconciler.partitions.planning.units import roll_up
from reconciler.partitions.planning.zones import groups

_SHOWN = 5


class CapExceeded(Exception):
    """The workers cannot hold so many subjects; the text says what would."""


class BrokenPlan(Exception):
    """The planner made something that breaks a rule: a fault of ours."""


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """Where every partition goes, and why."""

    place: Ranks
    reason: npt.NDArray[np.int8]
    share: dict[int, Share]
    giants: Ranks
    """Rows of partitions that are giants, or belong to one."""
    hosts: frozenset[int]
    bounds: Bounds
    held_by: tuple[str, ...]
    waiting: int
    filling: frozenset[int]
    rounds: int = 1


def plan_locally(partitions: Items, workers: Workers, rules: PlanningRules, unit: pa.Array | None = None) -> PartitionPlan:
    """The whole plan."""
    rolled = roll_up(partitions, unit, workers.active)
    items = rolled.items
    _check_room(items, workers)
    try:
        group, members = groups(items, workers, rules)
    except NoRoom as error:
        raise zones_exceeded(error, int(items.filters.sum()), workers) from error
    place = np.full(len(items), -1, dtype=np.int32)
    reason = np.zeros(len(items), dtype=np.int8)
    solved = []
    budget = rules.budget
    for number, ranks in enumerate(members):
        rows = np.flatnonzero(group == number) if len(members) > 1 else np.arange(len(items), dtype=np.int64)
        some = items.take(rows) if len(members) > 1 else items
        found = _solved(some, workers, replace(rules, budget=budget), ranks)
        if budget is not None:
            budget = max(0, budget - _voluntary(some, found))
        place[rows], reason[rows] = found.place, found.reason
        solved.append((rows, found))
    giants = np.concatenate([rows[list(found.giants)] for rows, found in solved]) if solved else np.array([], dtype=np.int64)
    leaf_place, leaf_reason = place[rolled.item], reason[rolled.item]
    if unit is not None:
        reunited = (leaf_reason == MoveReason.STAYS) & (leaf_place != partitions.home)
        leaf_reason = np.where(reunited, np.int8(MoveReason.UNIT), leaf_reason)
        leaf_reason = np.where(leaf_reason == MoveReason.ABSENT, np.int8(MoveReason.DRAINING), leaf_reason)
        leaf_reason = np.where(leaf_place == partitions.home, np.int8(MoveReason.STAYS), leaf_reason)
        leaf_reason = np.where(partitions.home == NEW, np.int8(MoveReason.NEW), leaf_reason)
        leaf_reason = np.where(partitions.home == ABSENT, np.int8(MoveReason.ABSENT), leaf_reason).astype(np.int8)
    plan = PartitionPlan(
        leaf_place,
        leaf_reason,
        {worker: share for _, found in solved for worker, share in found.share.items()},
        np.flatnonzero(np.isin(rolled.item, giants)).astype(np.int32),
        frozenset().union(*(found.hosts for _, found in solved)),
        sum((found.bounds for _, found in solved), Bounds(_scattered(partitions, items, rolled.item))),
        tuple(dict.fromkeys(reason for _, found in solved for reason in found.held_by)),
        sum(found.waiting for _, found in solved),
        frozenset().union(*(found.filling for _, found in solved)),
    )
    check(partitions, workers, rules, plan, unit)
    return plan


def _solved(items: Items, workers: Workers, rules: PlanningRules, ranks: tuple[int, ...]) -> Solved:
    if not any(workers.active[k] for k in ranks):
        if len(items):
            raise no_receivers()
        return Solved(items.home, np.zeros(0, dtype=np.int8), {})
    try:
        return solve(items, workers, rules, ranks)
    except NoRoom as error:
        raise cap_exceeded(error, int(items.filters.sum()), workers, ranks) from error


def no_receivers() -> CapExceeded:
    """Partitions, and nobody for them."""
    return CapExceeded("nobody is left to receive: no worker is active")


def cap_exceeded(error: NoRoom, subjects: int, workers: Workers, ranks: tuple[int, ...]) -> CapExceeded:
    """What did not fit, and how much room there is."""
    what = "partitions" if error.filters == 1 else f"units of {error.filters} subjects"
    slots = sum(workers.slots[k] for k in ranks if workers.active[k])
    msg = (
        f"{error.placed} of {error.asked} {what} that need a worker fit: {subjects} subjects, "
        f"room for {slots} on {sum(workers.active[k] for k in ranks)} workers; add workers or raise maxSubjects"
    )
    return CapExceeded(msg)


def zones_exceeded(error: NoRoom, subjects: int, workers: Workers) -> CapExceeded:
    """What fits into no zone, although all zones together would have the room."""
    what = "partitions" if error.filters == 1 else f"units of {error.filters} subjects"
    slots = sum(workers.slots[k] for k in range(len(workers)) if workers.active[k])
    return CapExceeded(
        f"{error.placed} of {error.asked} {what} that need a zone fit: {subjects} subjects, room for {slots} in all zones "
        "together; add workers, raise maxSubjects or make units smaller"
    )


def _check_room(items: Items, workers: Workers) -> None:
    """Before anything else: enough room at all, and for what is pinned."""
    pinned = items.pin >= 0
    filters = sums(items.filters[pinned], items.pin[pinned], len(workers)).tolist()
    for rank, count in enumerate(filters):
        if count > workers.slots[rank]:
            keys = items.keys.texts(np.flatnonzero(items.pin == rank))
            raise pinned_too_many(workers, rank, count, [key.decode().strip() for key in sorted(keys)[:_SHOWN]])
    error = too_many(int(items.filters.sum()), workers)
    if error is not None:
        raise error


def pinned_too_many(workers: Workers, rank: int, count: int, keys: Sequence[str]) -> CapExceeded:
    """More is pinned to a worker than it may have; the keys are the first of them."""
    return CapExceeded(
        f"{count} subjects are pinned to {workers.names[rank]}, which may have {workers.slots[rank]}: {', '.join(keys)}, …"
    )


def too_many(subjects: int, workers: Workers) -> CapExceeded | None:
    """More subjects than there is room for, if that is so."""
    slots = [workers.slots[k] for k in range(len(workers)) if workers.active[k]]
    if subjects <= sum(slots):
        return None
    usual = max(slots, default=0)
    needed = f"; {-(-subjects // usual)} workers of {usual} would do" if usual else ""
    return CapExceeded(f"{subjects} subjects, room for {sum(slots)} on {len(slots)} active workers{needed}")


def _voluntary(items: Items, solved: Solved) -> int:
    moved = (solved.place != items.home) & (items.home != NEW)
    return int(items.weight[moved].sum())


def _scattered(partitions: Items, items: Items, item: npt.NDArray[np.int64]) -> int:
    """Weight of partitions that are not where their unit is: they have to move, whatever the plan."""
    if len(items) == len(partitions):
        return 0
    apart = (partitions.home != items.home[item]) & (partitions.home != NEW) & (items.home[item] != ABSENT)
    return int(partitions.weight[apart].sum())


def check(partitions: Items, workers: Workers, rules: PlanningRules, plan: PartitionPlan, unit: pa.Array | None) -> None:
    """The plan against every rule, from what it says."""
    place = plan.place
    faults = []
    if len(place) != len(partitions) or (len(place) and (place.min() < 0 or place.max() >= len(workers))):
        msg = "a partition without a worker"
        raise BrokenPlan(msg)
    filters = sums(partitions.filters, place, len(workers))
    if (filters > np.array(workers.slots, dtype=np.int64)).any():
        faults.append("more subjects than a worker may have")
    pinned = partitions.pin >= 0
    if (place[pinned] != partitions.pin[pinned]).any():
        faults.append("a pin that is not kept")
    zone = np.array(workers.zone, dtype=np.int32)
    if rules.zones == "hard" and (partitions.zone >= 0).any() and (zone[place] != partitions.zone)[partitions.zone >= 0].any():
        faults.append("a partition outside of its zone")
    active = np.array(workers.active, dtype=np.bool_)
    if (~active[place] & (place != partitions.home)).any():
        faults.append("a draining worker that receives")
    if rules.budget is None and (~active[place]).any():
        faults.append("a draining worker that keeps something")
    if unit is not None and unit.null_count < len(unit):
        codes = unit.dictionary_encode().indices.to_numpy(zero_copy_only=False)
        named = ~np.asarray(unit.is_null())
        worker_of = np.full(int(np.nanmax(codes[named])) + 1, -1, dtype=np.int32)
        worker_of[codes[named].astype(np.int64)] = place[named]
        if (worker_of[codes[named].astype(np.int64)] != place[named]).any():
            faults.append("a unit on several workers")
    if faults:
        raise BrokenPlan(", ".join(faults))
