"""Items without a place are dealt out: the heavy ones one by one, the many light ones by rank.

Light items are ranked from heavy to light by class of weight, stratum of the hash, hash and key; the slots of the workers are
ranked evenly over the same length; equal ranks meet. Each worker gets an even sample of all weights, so that counts are exact
and weights differ by less than the heaviest item that is dealt.

Invariant: nobody gets more subjects than it has free slots.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from reconciler.partitions.planning.keys import xxhash64
from reconciler.partitions.planning.model import Ints, Items, Ranks, Workers
from reconciler.partitions.planning.quotas import pour, quotas

PHASE_BITS = 31
_MOST_HEAPS = 64
"""Different capacities that are told apart when heavy items are dealt."""
CLASS_BITS = 4
"""A class of weight is its length in bits and the next four."""


class NoRoom(Exception):
    """Some items fit nowhere."""

    def __init__(self, filters: int, placed: int, asked: int) -> None:
        self.filters, self.placed, self.asked = filters, placed, asked
        super().__init__(f"{placed} of {asked} units of {filters} subjects fit")


@dataclass(slots=True)
class RoundTable:
    """The workers around the table, while the dealing goes on."""

    workers: Workers
    load: dict[int, int]
    """Of those that receive; of light items an estimate: what their quota weighs on average."""
    free: dict[int, int]
    first: dict[int, int]
    """What fresh workers get before others get anything: up to their share."""

    def receive(self, worker: int, weight: int, filters: int) -> None:
        """One item, or many of them together."""
        self.load[worker] += weight
        self.free[worker] -= filters
        if worker in self.first:
            self.first[worker] = max(0, self.first[worker] - weight)


def deal_heavy(items: Items, rows: Ints, table: RoundTable) -> dict[int, int]:
    """Each item, heaviest first, to the worker that then has the lowest load for its capacity, of those that have room for it.

    Among workers of one capacity that is the one with the lowest load now; so one of each capacity is looked at.
    """
    heaps = _by_capacity(table)
    placed: dict[int, int] = {}
    for row in items.keys.ordered(rows, -items.weight[rows]).tolist():
        filters, weight = int(items.filters[row]), int(items.weight[row])
        best: tuple[int, int, int] | None = None
        aside: list[tuple[int, tuple[int, int]]] = []
        for capacity, heap in heaps.items():
            while heap and table.free[heap[0][1]] < filters:
                aside.append((capacity, heapq.heappop(heap)))
            if heap:
                load, worker = heap[0]
                after = (((load + weight) << 64) // capacity if capacity else load, worker, capacity)
                best = after if best is None or after < best else best
        if best is None:
            raise NoRoom(filters, len(placed), len(rows))
        _, worker, capacity = best
        table.receive(worker, weight, filters)
        heapq.heapreplace(heaps[capacity], (_standing(table, worker, capacity), worker))
        for of, entry in aside:
            heapq.heappush(heaps[of], entry)
        placed[row] = worker
    return placed


def _by_capacity(table: RoundTable) -> dict[int, list[tuple[int, int]]]:
    """The workers with room by their load, a heap for each capacity; with very many of them one heap, by load for capacity."""
    capacities = sorted({table.workers.capacity[worker] for worker in table.load})
    heaps: dict[int, list[tuple[int, int]]] = (
        {capacity: [] for capacity in capacities} if len(capacities) <= _MOST_HEAPS else {0: []}
    )
    for worker in table.load:
        if table.free[worker] > 0:
            of = table.workers.capacity[worker] if 0 not in heaps else 0
            heaps[of].append((_standing(table, worker, of), worker))
    for heap in heaps.values():
        heapq.heapify(heap)
    return heaps


def _standing(table: RoundTable, worker: int, capacity: int) -> int:
    """By what a worker stands in its heap."""
    load = table.load[worker]
    return load if capacity else (load << 64) // table.workers.capacity[worker]


def deal_light(items: Items, rows: Ints, table: RoundTable, place: Ranks) -> None:
    """All the others, those that stand for most subjects first: that is how they fit best."""
    sizes: list[int] = np.unique(items.filters[rows]).tolist()
    for filters in reversed(sizes):
        some = rows[items.filters[rows] == filters] if len(sizes) > 1 else rows
        given = share_out(table, filters, len(some), int(items.weight[some].sum()))
        place[ranked(items, some)] = slots_in_order(given, table.workers.names)


def share_out(table: RoundTable, filters: int, count: int, weight: int) -> dict[int, int]:
    """How many of so many items, each of this number of subjects, every worker gets."""
    free = {worker: slots // filters for worker, slots in table.free.items()}
    found = quotas(count, _wanted(weight, table), free)
    if found is None:
        raise NoRoom(filters, sum(free.values()), count)
    given = {worker: number for worker, number in found.items() if number}
    for worker, number in given.items():
        table.receive(worker, weight * number // count, number * filters)
    return given


def _wanted(weight: int, table: RoundTable) -> dict[int, int]:
    """Fresh workers first, up to their share; the rest is poured over everybody."""
    first = {worker: wanted for worker, wanted in table.first.items() if wanted > 0}
    total = sum(first.values())
    capacity = {worker: table.workers.capacity[worker] for worker in table.load}
    if total >= weight and first:
        return first if total == weight else pour(weight, *_fresh_only(table, first))
    load = {worker: load + first.get(worker, 0) for worker, load in table.load.items()}
    poured = pour(weight - total, load, capacity)
    return {worker: poured.get(worker, 0) + first.get(worker, 0) for worker in load}


def _fresh_only(table: RoundTable, first: Mapping[int, int]) -> tuple[dict[int, int], dict[int, int]]:
    return {worker: table.load[worker] for worker in first}, {worker: table.workers.capacity[worker] for worker in first}


def ranked(items: Items, rows: Ints) -> Ints:
    """From heavy to light: by class of weight, stratum, hash and key."""
    return items.keys.ordered(rows, -weight_class(items.weight[rows]), strata=True)


def weight_class(weight: Ints) -> Ints:
    """Sixteen classes to each power of two, by whole numbers alone: logarithms differ in their last bit between machines."""
    bits = np.zeros(len(weight), dtype=np.int64)
    rest = weight.copy()
    for step in (32, 16, 8, 4, 2, 1):
        wide = rest >= (np.int64(1) << step)
        bits[wide] += step
        rest = np.where(wide, rest >> step, rest)
    # `bits` is now the place of the leading bit; the four that follow it, filled with zeros where there are fewer
    following = np.where(
        bits >= CLASS_BITS, weight >> np.maximum(bits - CLASS_BITS, 0), weight << np.maximum(CLASS_BITS - bits, 0)
    )
    found: Ints = bits * (1 << CLASS_BITS) + (following & ((1 << CLASS_BITS) - 1))
    return found


def slots_in_order(given: Mapping[int, int], names: Iterable[str]) -> Ranks:
    """The worker of each rank: slot j of q stands at (j · 2³¹ + phase) div q, the phase being the worker's hash mod 2³¹."""
    names = list(names)
    ranks = sorted(given)
    number = np.array([given[worker] for worker in ranks], dtype=np.int64)
    phase = np.array([xxhash64(names[worker]) % (1 << PHASE_BITS) for worker in ranks], dtype=np.int64)
    owner = np.repeat(np.array(ranks, dtype=np.int32), number)
    starts = np.repeat(np.cumsum(number) - number, number)
    slot = np.arange(len(owner), dtype=np.int64) - starts
    position = ((slot << PHASE_BITS) + np.repeat(phase, number)) // np.repeat(number, number)
    ordered: Ranks = owner[np.lexsort((owner, position))]
    return ordered
