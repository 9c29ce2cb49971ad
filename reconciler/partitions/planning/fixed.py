"""What nobody can change: pins, giants, and the share that is left for everybody else.

Invariant: planned again from where it led to, a plan has the same giants on the same workers, and so the same share.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from reconciler.partitions.planning.columns import load_at, sums
from reconciler.partitions.planning.levels import find_giants
from reconciler.partitions.planning.model import Ints, Items, PlanningRules, Share, Workers


@dataclass(frozen=True, slots=True)
class Fixed:
    """Giants and pins of a group, and the share of the others."""

    share: Share
    giants: Mapping[int, int]
    """The worker of each giant, by item."""
    load: Mapping[int, int]
    """What nobody can take away, by worker: pins and giants."""
    hosts: frozenset[int]
    """Workers that get nothing else: those of giants, and those whose pins alone are over their share."""
    receivers: tuple[int, ...]
    """The other active workers."""

    def share_of(self, worker: int, workers: Workers, over: int = 0) -> int:
        """What a worker should carry, and `over` millionths more."""
        return self.load[worker] if worker in self.hosts else self.share.of(workers.capacity[worker], over)


def find_fixed(items: Items, workers: Workers, rules: PlanningRules, group: tuple[int, ...]) -> Fixed:
    """Looks at all items, placed or not."""
    active = [worker for worker in group if workers.active[worker]]
    capacity = {worker: workers.capacity[worker] for worker in active}
    pinned_rows = np.flatnonzero(items.pin >= 0)
    pins = sums(items.weight[pinned_rows], items.pin[pinned_rows], len(workers))
    pins = pins if items.rest is None else pins + items.rest.pinned
    load = {worker: int(pins[worker]) for worker in active}
    total = int(items.weight.sum()) + (0 if items.rest is None else items.rest.total)
    heaviest = _heaviest(items, len(active))
    found = find_giants(items.weight[heaviest].tolist(), total, capacity, load, rules.target)
    giants = _hosts_of(items, workers, _the_first(items, heaviest, found.count), set(active) - found.over_pinned)
    for row, worker in giants.items():
        load[worker] += int(items.weight[row])
    hosts = found.over_pinned | set(giants.values())
    receivers = tuple(worker for worker in active if worker not in hosts)
    if not receivers:  # everybody is somebody's host: then they share all there is
        giants, hosts, receivers = {}, frozenset(), tuple(active)
        load = {worker: int(pins[worker]) for worker in active}
    left = total - sum(load[worker] for worker in hosts)
    share = Share(left, sum(capacity[worker] for worker in receivers) or 1)
    return Fixed(share, giants, load, frozenset(hosts), receivers)


def _heaviest(items: Items, number: int) -> Ints:
    """The heaviest free items, heaviest first; among equals, any."""
    free = np.flatnonzero(items.pin < 0)
    if len(free) > number > 0:
        free = free[np.argpartition(-items.weight[free], number - 1)[:number]]
    heaviest: Ints = free[np.argsort(-items.weight[free], kind="stable")]
    return heaviest


def _the_first(items: Items, heaviest: Ints, count: int) -> Ints:
    """The giants themselves, in an order that does not depend on rows."""
    if not count:
        return heaviest[:0]
    least = items.weight[heaviest[count - 1]]
    rows = np.flatnonzero((items.pin < 0) & (items.weight >= least))
    return items.keys.ordered(rows, -items.weight[rows])[:count]


def _hosts_of(items: Items, workers: Workers, giants: Ints, candidates: set[int]) -> dict[int, int]:
    """A worker for each giant: where it is, if it may stay; else the largest that is free, the least loaded of them first."""
    if not len(giants):
        return {}
    load = load_at(items, items.home, len(workers))
    pinned = sums(items.filters, items.pin, len(workers))
    pinned = pinned if items.rest is None else pinned + items.rest.pinned_filters
    room = (np.array(workers.slots, dtype=np.int64) - pinned).tolist()
    found: dict[int, int] = {}
    free = set(candidates)
    for row in giants.tolist():
        home, filters = int(items.home[row]), int(items.filters[row])
        if home in free and room[home] >= filters:
            found[row] = home
            free.discard(home)
    order = sorted(free, key=lambda worker: (-workers.capacity[worker], int(load[worker]), worker))
    for row in giants.tolist():
        if row not in found:
            host = next((worker for worker in order if room[worker] >= int(items.filters[row])), None)
            if host is not None:
                found[row] = host
                order.remove(host)
    return found
