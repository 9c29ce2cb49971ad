"""Sums per worker and the like, in whole numbers.

Invariant: no sum passes through floating point, whatever it adds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from reconciler.partitions.planning.model import Ints, Items, Mask, NotListed, Ranks


def sums(values: Ints, place: Ranks, workers: int) -> Ints:
    """Per worker; what has no place is left out. `bincount` with weights would add floating-point numbers."""
    placed = place >= 0
    if not placed.all():
        values, place = values[placed], place[placed]
    total = np.zeros(workers, dtype=np.int64)
    np.add.at(total, place, values)
    return total


def load_at(items: Items, place: Ranks, workers: int) -> Ints:
    """The weight at each worker, with what is not listed."""
    listed = sums(items.weight, place, workers)
    return listed if items.rest is None else listed + items.rest.weight


def filters_at(items: Items, place: Ranks, workers: int) -> Ints:
    """The subjects of each worker, with what is not listed."""
    listed = sums(items.filters, place, workers)
    return listed if items.rest is None else listed + items.rest.filters


def free_at(items: Items, place: Ranks, workers: int, but: Ints) -> Ints:
    """The weight without a pin at each worker, with what is not listed, but for these rows."""
    beside = items.pin < 0
    beside[but] = False
    listed = sums(items.weight[beside], place[beside], workers)
    return listed if items.rest is None else listed + items.rest.free


def need_listed(items: Items, workers: Iterable[int]) -> None:
    """Raises NotListed where a worker has items that could move and are not listed."""
    missing = frozenset() if items.rest is None else items.rest.movable & frozenset(workers)
    if missing:
        raise NotListed(missing)


def by_rank(workers: int, values: Mapping[int, int], default: int = 0) -> Ints:
    """A column with a value for each worker."""
    column = np.full(workers, default, dtype=np.int64)
    for worker, value in values.items():
        column[worker] = value
    return column


def among(place: Ranks, chosen: Iterable[int], workers: int) -> Mask:
    """Which rows are at one of these workers."""
    member = np.zeros(workers + 1, dtype=np.bool_)  # the last one stands for "nowhere": place -1
    member[list(chosen)] = True
    found: Mask = member[np.maximum(place, -1)]
    return found


def running(values: Ints, place: Ranks) -> Ints:
    """Running sums within each worker; rows are in the order of the workers."""
    if not len(values):
        return values
    total = np.cumsum(values)
    starts = np.flatnonzero(np.r_[True, place[1:] != place[:-1]])
    before = np.repeat(total[starts] - values[starts], np.diff(np.r_[starts, len(place)]))
    found: Ints = total - before
    return found
