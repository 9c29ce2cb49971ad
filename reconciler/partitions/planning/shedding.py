"""Which items a worker gives away.

Heaviest first, as long as they fit into what it has to give; what is then missing is completed by the one lightest item that is
heavy enough; if that one is enough alone, it goes alone. Few items move, and hardly more weight than must.

Invariant: the choice of one worker depends on its own items and its own numbers alone, so that workers can be looked at apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from reconciler.partitions.planning.columns import by_rank, running, sums
from reconciler.partitions.planning.model import Ints, Items, Mask, Ranks


@dataclass(frozen=True, slots=True)
class Give:
    """What one worker gives away."""

    must: int
    """At least so much, if items allow."""
    may: int
    """About so much, must included."""
    capacity: int
    """By which those who could give a little more are put in order."""


def choose(items: Items, rows: Ints, gives: Mapping[int, Give], workers: int, *, up: bool = True) -> Ints:
    """The items that go, out of the rows that may; every row's home is one of the givers. Without `up` never more than asked."""
    if not len(rows):
        return rows
    rows = items.keys.ordered(rows, items.home[rows].astype(np.int64), -items.weight[rows])
    home, weight = items.home[rows], items.weight[rows]
    may = by_rank(workers, {worker: give.may for worker, give in gives.items()})
    fits = weight <= may[home]
    gone = fits & (running(np.where(fits, weight, 0), home) <= may[home])
    given = sums(weight[gone], home[gone], workers)
    if not up:
        limited: Ints = rows[gone]
        return limited
    short = {worker: give.must - int(given[worker]) for worker, give in gives.items() if give.must > given[worker]}
    completed = _lightest_above(home, weight, gone, short, workers)
    alone = {worker: int(weight[place]) for worker, place in completed.items() if weight[place] >= gives[worker].must}
    gone &= by_rank(workers, alone)[home] == 0
    given[list(alone)] = 0
    for worker, place in completed.items():
        gone[place] = True
        given[worker] += weight[place]
    _top_up(home, weight, gone, given, {worker: give for worker, give in gives.items() if worker not in completed})
    chosen: Ints = rows[gone]
    return chosen


def _top_up(home: Ranks, weight: Ints, gone: Mask, given: Ints, gives: Mapping[int, Give]) -> None:
    """Rounding down at every worker adds up: those with the largest rest give one more, while that comes nearer to the sum."""
    rest = {
        worker: give.may - int(given[worker])
        for worker, give in gives.items()
        if give.may > given[worker] and give.may > give.must
    }
    missing = sum(rest.values())
    candidates = _lightest_above(home, weight, gone, rest, len(given))
    for worker in sorted(candidates, key=lambda worker: (-((rest[worker] << 64) // gives[worker].capacity), worker)):
        place = candidates[worker]
        if missing <= 0:
            return
        if 2 * missing >= weight[place]:
            gone[place] = True
            missing -= int(weight[place])


def _lightest_above(home: Ranks, weight: Ints, gone: Mask, least: Mapping[int, int], workers: int) -> dict[int, int]:
    """For each worker the place of its lightest item still there that has at least this weight; rows are heaviest first."""
    if not least:
        return {}
    bound = by_rank(workers, least, np.iinfo(np.int64).max)
    places = np.flatnonzero(~gone & (weight >= bound[home]))
    lightest = np.full(workers, -1, dtype=np.int64)
    lightest[home[places]] = weight[places]  # the last one of each worker stays, and that is the lightest
    first = places[weight[places] == lightest[home[places]]]
    found, index = np.unique(home[first], return_index=True)
    return {int(worker): int(first[place]) for worker, place in zip(found, index, strict=True)}


def over_the_cap(items: Items, rows: Ints, excess: Mapping[int, int], workers: int) -> Ints:
    """The lightest items of each worker that together stand for at least so many subjects."""
    if not excess:
        return rows[:0]
    allowed = by_rank(workers, excess)
    rows = rows[allowed[items.home[rows]] > 0]
    rows = items.keys.ordered(rows, items.home[rows].astype(np.int64), items.weight[rows])
    home, filters = items.home[rows], items.filters[rows]
    chosen: Ints = rows[running(filters, home) - filters < allowed[home]]
    return chosen
