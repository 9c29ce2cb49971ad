"""How much every worker should carry, once what nobody can change is set aside.

A giant is heavier than the share of any worker that is left; it takes a worker for itself, and the others share the rest. So does
a worker whose pins alone are over its share. Both change the share, so this goes on until nothing changes.

Invariant: which items are giants depends on weights, capacities and pins, never on where anything is now.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reconciler.partitions.planning.model import Share


@dataclass(frozen=True, slots=True)
class Giants:
    """How many of the heaviest items are giants, and which workers are over their share by pins."""

    count: int
    over_pinned: frozenset[int]


def find_giants(
    weights: Sequence[int], total: int, capacity: Mapping[int, int], pinned: Mapping[int, int], target: int
) -> Giants:
    """Looks at free items from the heaviest down.

    Args:
        weights: The heaviest free items, heaviest first; as many as there are workers are enough.
        total: All weight, pinned and free.
        capacity: Of the workers that may receive.
        pinned: The weight pinned to each.
        target: Millionths over its share that a worker may carry.
    """
    over: set[int] = set()
    left = sorted(capacity, key=lambda worker: (-capacity[worker], worker))
    count = 0
    while True:
        hosts = [worker for worker in left if worker not in over]
        rest = hosts[count:]
        if not rest:
            return Giants(count, frozenset(over))
        fixed = sum(pinned.get(worker, 0) for worker in over) + sum(weights[:count])
        share = Share(total - fixed, sum(capacity[worker] for worker in rest))
        newly = {worker for worker in hosts if pinned.get(worker, 0) > share.of(capacity[worker], target)}
        if newly:
            over |= newly
        elif count < len(weights) and weights[count] > share.of(capacity[rest[0]], target):
            count += 1
        else:
            return Giants(count, frozenset(over))
