"""The weighted consistent hash of parti, from its description, to be measured beside our plans. It knows no earlier plan.

All weights equal: each partition goes to the next of 150 points per worker on a ring, whatever that worker has. Otherwise those
of more than twice the mean weight are dealt in turn, heaviest first, and each of the others goes to its worker on the ring unless
that would be over 1.3 times the mean load; then to the least loaded worker.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest

Ints = npt.NDArray[np.int64]

_POINTS = 150
_EXTREME = 2.0
_OVERFLOW = 1.3


def weighted_consistent_hash(subjects: Sequence[bytes], weights: Ints, workers: Sequence[str]) -> Ints:
    """The place of each partition among the workers, which are sorted by name."""
    candidate = _ring(subjects, workers)
    if weights.min() == weights.max():
        return candidate
    total, count = int(weights.sum()), len(workers)
    extreme = np.flatnonzero(weights > _EXTREME * total / len(weights))
    heaviest = extreme[np.argsort(-weights[extreme], kind="stable")]
    place = candidate.copy()
    place[heaviest] = np.arange(len(heaviest)) % count
    load = np.zeros(count, dtype=np.int64)
    np.add.at(load, place[heaviest], weights[heaviest])
    most = _OVERFLOW * total / count
    is_extreme = np.zeros(len(weights), dtype=np.bool_)
    is_extreme[extreme] = True
    for row in np.flatnonzero(~is_extreme).tolist():
        to = int(candidate[row])
        if load[to] + weights[row] > most:
            to = int(np.argmin(load))
            place[row] = to
        load[to] += weights[row]
    return place


def _ring(subjects: Sequence[bytes], workers: Sequence[str]) -> Ints:
    points = np.array(
        [xxh3_64_intdigest(f"{worker}#{point}".encode()) for worker in workers for point in range(_POINTS)], dtype=np.uint64
    )
    owner = np.repeat(np.arange(len(workers)), _POINTS)
    order = np.argsort(points, kind="stable")
    hashes = np.array([xxh3_64_intdigest(subject) for subject in subjects], dtype=np.uint64)
    found: Ints = owner[order][np.searchsorted(points[order], hashes) % len(points)]
    return found
