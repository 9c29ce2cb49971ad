"""Who of the workers gets how much, and how many: whole numbers, exactly.

Invariant: quotas add up to what there is, none is over the free slots, and ties are broken by the rank of the worker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def pour(weight: int, load: Mapping[int, int], capacity: Mapping[int, int]) -> dict[int, int]:
    """What each worker gets if weight is poured where it is lowest, load by capacity, until it is used up."""
    # load/capacity as an exact order needs fractions; (load << 64) // capacity differs from it only where it does not matter.
    order = sorted(load, key=lambda worker: ((load[worker] << 64) // capacity[worker], worker))
    total_load = total_capacity = 0
    for place, worker in enumerate(order):
        total_load += load[worker]
        total_capacity += capacity[worker]
        following = order[place + 1] if place + 1 < len(order) else None
        level = weight + total_load
        if following is None or level * capacity[following] <= load[following] * total_capacity:
            return {
                receiver: max(0, level * capacity[receiver] // total_capacity - load[receiver]) for receiver in order[: place + 1]
            }
    return {}


def skim(weight: int, load: Mapping[int, int], capacity: Mapping[int, int]) -> dict[int, int]:
    """What each worker gives if weight is taken where it is highest, load by capacity, until there is enough."""
    order = sorted(load, key=lambda worker: (-((load[worker] << 64) // capacity[worker]), worker))
    total_load = total_capacity = 0
    for place, worker in enumerate(order):
        total_load += load[worker]
        total_capacity += capacity[worker]
        following = order[place + 1] if place + 1 < len(order) else None
        level = max(0, total_load - weight)
        if following is None or level * capacity[following] >= load[following] * total_capacity:
            return {giver: max(0, load[giver] - level * capacity[giver] // total_capacity) for giver in order[: place + 1]}
    return {}


def quotas(count: int, wanted: Mapping[int, int], free: Mapping[int, int]) -> dict[int, int] | None:
    """How many of `count` items each worker gets, in proportion to what it wants; None when there is no room.

    Largest remainder. What is over the free slots goes to the others, in proportion again, until it is settled; when nobody of
    them wants anything, in proportion to the free slots.
    """
    if count > sum(free.values()):
        return None
    given = dict.fromkeys(free, 0)
    left = count
    while left > 0:
        open_ = [worker for worker in sorted(free) if given[worker] < free[worker]]
        asking = [worker for worker in open_ if wanted.get(worker, 0) > 0]
        parts = (
            {worker: wanted[worker] for worker in asking}
            if asking
            else {worker: free[worker] - given[worker] for worker in open_}
        )
        for worker, number in proportional(left, list(parts), list(parts.values())).items():
            taken = min(number, free[worker] - given[worker])
            given[worker] += taken
            left -= taken
    return given


def proportional(count: int, workers: Sequence[int], parts: Sequence[int]) -> dict[int, int]:
    """`count` divided in proportion to the parts; what is left over goes to the largest remainders, then the lowest ranks."""
    total = sum(parts)
    whole = {worker: count * part // total for worker, part in zip(workers, parts, strict=True)}
    rest = count - sum(whole.values())
    remainder = {worker: count * part % total for worker, part in zip(workers, parts, strict=True)}
    for worker in sorted(workers, key=lambda worker: (-remainder[worker], worker))[:rest]:
        whole[worker] += 1
    return whole
