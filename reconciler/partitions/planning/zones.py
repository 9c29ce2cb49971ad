"""Zones: groups of workers that are planned apart.

Hard: an item belongs to its zone. Soft: a zone that is over its share of all the weight lends items to others; zones are then
planned like workers, with the same trigger and target. A zone that has room for all of its items has all of them.

Invariant: which group an item belongs to is settled before any worker is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reconciler.partitions.planning.columns import sums
from reconciler.partitions.planning.model import Items, PlanningRules, Ranks, Share, Workers
from reconciler.partitions.planning.solve import solve


def groups(items: Items, workers: Workers, rules: PlanningRules) -> tuple[Ranks, list[tuple[int, ...]]]:
    """The group of each item, and the workers of each group."""
    everybody = tuple(range(len(workers)))
    if rules.zones == "ignore" or not (items.zone >= 0).any():
        return np.zeros(len(items), dtype=np.int32), [everybody]
    zones = [tuple(k for k in everybody if workers.zone[k] == zone) for zone in range(max(workers.zone) + 1)]
    if rules.zones == "hard":
        return items.zone, zones
    return _lent(items, workers, rules, zones), zones


def _lent(items: Items, workers: Workers, rules: PlanningRules, zones: list[tuple[int, ...]]) -> Ranks:
    """Zones as workers, items as they are."""
    large = zone_workers(workers, zones)
    zone_of = np.array(workers.zone, dtype=np.int32)
    here = np.where(items.home >= 0, zone_of[np.maximum(items.home, 0)], items.zone)
    demand, subjects = (sums(column, items.zone, len(zones)).tolist() for column in (items.weight, items.filters))
    roomy = np.array(open_zones(large, zones, rules, (demand, subjects, int(items.weight.sum()))), dtype=np.bool_)
    at_home = roomy[items.zone]
    home = np.where(at_home, items.zone, here).astype(np.int32)
    pin = np.where(at_home, items.zone, -1)
    pin = np.where(items.pin >= 0, zone_of[np.maximum(items.pin, 0)], pin).astype(np.int32)
    as_zones = Items(items.keys, items.weight, items.filters, home, pin, items.zone)
    calm = PlanningRules(rules.trigger, rules.target, fill=False)
    return solve(as_zones, large, calm, tuple(range(len(zones)))).place


def zone_workers(workers: Workers, zones: Sequence[tuple[int, ...]]) -> Workers:
    """Each zone as one worker: what its active workers are together."""
    open_ = [[k for k in zone if workers.active[k]] for zone in zones]
    return Workers(
        names=tuple(f"zone {zone}" for zone in range(len(zones))),
        capacity=tuple(max(1, sum(workers.capacity[k] for k in zone)) for zone in open_),
        slots=tuple(sum(workers.slots[k] for k in zone) for zone in open_),
        active=tuple(bool(zone) for zone in open_),
        zone=tuple(-1 for _ in zones),
        fresh=tuple(False for _ in zones),
    )


def open_zones(
    large: Workers,
    zones: Sequence[tuple[int, ...]],
    rules: PlanningRules,
    demand: tuple[Sequence[int], Sequence[int], int],
) -> list[bool]:
    """Which zones can hold all that belongs to them, from its weight and subjects by zone, and all weight."""
    weight, subjects, whole = demand
    share = Share(whole, sum(large.capacity[z] for z in range(len(zones)) if large.active[z]) or 1)
    return [
        large.active[z] and weight[z] <= share.of(large.capacity[z], rules.target) and subjects[z] <= large.slots[z]
        for z in range(len(zones))
    ]
