"""A large item that fits nowhere pushes a lighter one out of its place, that one a lighter one still, until one fits.

Where partitions are as large as a share, a worker that is gone leaves items that no other worker has room for. What has to move
then is a chain of them, each lighter than the one before by at most what its worker can spare, with all its light items. Of all
chains that bring a worker back under its limit the one is taken that moves the least weight beside what has moved already.

Invariant: a chain puts nobody over the limit by more than its light items weigh, which can go anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from reconciler.partitions.planning.model import Ints, Items, Ranks

_NEVER = np.iinfo(np.int64).max // 4


class ChainLink(NamedTuple):
    """One item and where it goes."""

    row: int
    to: int


@dataclass(frozen=True, slots=True)
class Around:
    """What a chain has to keep to."""

    receivers: Ints
    spare: Ints
    """Weight that each worker may still take; below zero: it is over its limit."""
    room: Ints
    """Subjects that each may still take."""
    light: Ints
    """Weight of what is not large at each: it goes elsewhere when the plan is made again."""
    linked: bool
    """Whether chains are looked for."""


def lightest_chain(items: Items, rows: Ints, place: Ranks, worker: int, around: Around) -> tuple[ChainLink, ...]:
    """The chain that brings this worker under its limit; nothing when there is none. `rows` are in key order."""
    best: tuple[int, tuple[ChainLink, ...]] = (_NEVER, ())
    for first in rows[place[rows] == worker].tolist():
        found = _from(items, rows, place, first, around)
        if found is not None and found[0] < best[0]:
            best = found
    return best[1]


def _from(items: Items, rows: Ints, place: Ranks, first: int, around: Around) -> tuple[int, tuple[ChainLink, ...]] | None:
    """The lightest chain that begins with this item; what it weighs, and its links."""
    worker = int(place[first])
    spare, room, light = around.spare.copy(), around.room.copy(), around.light
    spare[worker] += items.weight[first]
    room[worker] += items.filters[first]
    if spare[worker] + light[worker] < 0:
        return None
    others = rows[(place[rows] != worker) & (items.weight[rows] < items.weight[first])]
    others = others[np.argsort(items.weight[others], kind="stable")]
    weight, filters, at = items.weight[others], items.filters[others], place[others].astype(np.int64)
    cost = np.where(place[others] == items.home[others], weight, 0)
    whole = np.full(len(others), _NEVER, dtype=np.int64)
    """What it costs to move this item and all that follows."""
    following = np.full(len(others), -1, dtype=np.int64)
    end = np.full(len(others), -1, dtype=np.int64)
    passed: list[frozenset[int]] = []
    """The workers that the rest of its chain leads to: none of them takes twice."""
    receivers = around.receivers

    def look(row_weight: int, row_filters: int, home: int, lighter: int) -> tuple[int, int, int]:
        """The cost of placing an item, the one that it pushes out, or the worker that has room for it."""
        beyond = np.maximum(0, row_weight - spare[receivers])
        beyond[(receivers == home) | (beyond > light[receivers]) | (room[receivers] < row_filters)] = _NEVER
        last = int(np.argmin(beyond))
        shed = np.maximum(0, row_weight - weight[:lighter] - spare[at[:lighter]])
        costs = whole[:lighter] + shed
        never = (at[:lighter] == home) | (weight[:lighter] >= row_weight) | (shed > light[at[:lighter]])
        costs[never | (filters[:lighter] + room[at[:lighter]] < row_filters) | (costs > beyond[last])] = _NEVER
        for chosen in np.argsort(costs, kind="stable")[: int((costs < _NEVER).sum())].tolist():
            if int(at[chosen]) not in passed[chosen]:
                return int(costs[chosen]), chosen, -1
        return int(beyond[last]), -1, int(receivers[last])

    for number in range(len(others)):
        placed, following[number], end[number] = look(int(weight[number]), int(filters[number]), int(at[number]), number)
        whole[number] = min(_NEVER, placed + int(cost[number]))
        pushed = int(following[number])
        passed.append(passed[pushed] | {int(at[pushed])} if pushed >= 0 else frozenset({int(end[number])}))
    placed, chosen, to = look(int(items.weight[first]), int(items.filters[first]), worker, len(others))
    if placed >= _NEVER:
        return None
    links, row = [], first
    while chosen >= 0:
        links.append(ChainLink(row, int(at[chosen])))
        row, chosen, to = int(others[chosen]), int(following[chosen]), int(end[chosen])
    links.append(ChainLink(row, to))
    beside = max(0, -int(spare[worker])) + (int(items.weight[first]) if place[first] == items.home[first] else 0)
    return placed + beside, tuple(links)
