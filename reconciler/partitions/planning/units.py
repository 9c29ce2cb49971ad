"""Partitions of one unit as one item, and back.

The key of a unit is its name after a space, which no subject contains: units and single partitions never share a key.

Invariant: partitions of a unit have one worker; where they had several, the unit stays where most of its weight is, and never
goes to a worker that is draining.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reconciler.partitions.planning.keys import Keys
from reconciler.partitions.planning.model import ABSENT, Ints, Items, Ranks


@dataclass(frozen=True, slots=True)
class Rolled:
    """Units as items, and the item of each partition."""

    items: Items
    item: Ints


def roll_up(partitions: Items, unit: pa.Array | None, active: Sequence[bool]) -> Rolled:
    """Each unit as one item; a partition without a unit is one by itself. `active` says who may receive, by rank."""
    if unit is None or unit.null_count == len(unit):
        return Rolled(partitions, np.arange(len(partitions), dtype=np.int64))
    named = pc.binary_join_element_wise(pa.scalar(" "), unit, "", null_handling="emit_null")
    keys = pc.coalesce(named, partitions.keys.column).dictionary_encode()
    item = keys.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    count = len(keys.dictionary)
    weight, filters = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    np.add.at(weight, item, partitions.weight)
    np.add.at(filters, item, partitions.filters)
    pin, zone = np.full(count, -1, dtype=np.int32), np.full(count, -1, dtype=np.int32)
    np.maximum.at(pin, item, partitions.pin)  # all that say something say the same
    np.maximum.at(zone, item, partitions.zone)
    return Rolled(Items(Keys(keys.dictionary), weight, filters, _homes(partitions, item, count, active), pin, zone), item)


def _homes(partitions: Items, item: Ints, count: int, active: Sequence[bool]) -> Ranks:
    """The active worker with most of the weight, of equal ones the lowest rank; a draining one only if it has all of it.

    Being nowhere counts only if all of it is nowhere.
    """
    home = np.full(count, -1, dtype=np.int32)
    gone = partitions.home < 0
    np.minimum.at(home, item[gone], partitions.home[gone])
    rows = np.flatnonzero(~gone)
    if not len(rows):
        return home
    order = rows[np.lexsort((partitions.home[rows], item[rows]))]
    starts = np.flatnonzero(
        np.r_[True, (item[order][1:] != item[order][:-1]) | (partitions.home[order][1:] != partitions.home[order][:-1])]
    )
    weight = np.add.reduceat(partitions.weight[order], starts)
    at_item, at_home = item[order][starts], partitions.home[order][starts]
    receives = np.array(active, dtype=np.bool_)
    best = np.lexsort((-at_home, weight, receives[at_home], at_item))  # the last one of each item is the one to stay at
    home[at_item[best]] = at_home[best]
    scattered = np.unique(item[partitions.home != home[item]])
    scattered = scattered[home[scattered] >= 0]
    home[scattered[~receives[home[scattered]]]] = ABSENT
    return home
