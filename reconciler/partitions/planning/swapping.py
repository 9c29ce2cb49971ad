"""Large items that stand in each other's way change places.

Where a worker is over the trigger and nobody has room for what it could give, a chain of items brings it under the trigger if
chains are asked for (see `chains`). Else one of its large items goes elsewhere, alone or for a lighter one: the step that takes
most off the sum of what is over the trigger, then the one that moves least. Then it is looked again, from the worker that is
furthest over.

Invariant: every step makes that sum smaller, so it ends; where no step can, nothing moves.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from reconciler.partitions.planning.chains import Around, ChainLink, lightest_chain
from reconciler.partitions.planning.columns import by_rank, filters_at, free_at, load_at
from reconciler.partitions.planning.model import Ints, Items, PlanningRules, Ranks, Solved, Workers

_MOST_STEPS = 1000
_MOST_PAIRS = 10_000_000
"""Of large items and receivers: in a larger pool one item hardly matters, and looking at all of them takes long."""
_MOST_TRIED = 20
"""Workers that are looked at before it is given up: those that are furthest over."""


_MOST_LINKED = 300
"""Large items among which chains are looked for: that takes time with the square of their number."""


class _Step(NamedTuple):
    """One item to another worker, and what comes back for it, or -1."""

    row: int
    to: int
    back: int


def swap(items: Items, workers: Workers, solved: Solved, rows: Ints, rules: PlanningRules) -> Ranks:
    """Where everything is after all steps; `rows` are the large items of receivers that may move."""
    count = len(workers)
    place = solved.place.copy()
    if len(rows) * len(solved.share) > _MOST_PAIRS:
        return place
    limit = by_rank(count, {rank: share.of(workers.capacity[rank], rules.trigger) for rank, share in solved.share.items()})
    slots = np.array(workers.slots, dtype=np.int64)
    rows = items.keys.ordered(rows, np.zeros(len(rows), dtype=np.int64))
    receivers = np.array(sorted(solved.share), dtype=np.int64)
    light = free_at(items, place, count, but=rows) if rules.chains else np.zeros(count, dtype=np.int64)
    for _ in range(_MOST_STEPS):
        spare = limit - load_at(items, place, count)
        room = slots - filters_at(items, place, count)
        over = receivers[(spare + light)[receivers] < 0]
        tried = over[np.lexsort((over, spare[over]))][:_MOST_TRIED].tolist()
        around = Around(receivers, spare, room, light, linked=rules.chains and len(rows) <= _MOST_LINKED)
        links = next((found for worker in tried if (found := _links(items, rows, place, worker, around))), ())
        if not links:
            break
        for link in links:
            place[link.row] = link.to
    return place


def _links(items: Items, rows: Ints, place: Ranks, worker: int, around: Around) -> tuple[ChainLink, ...]:
    """What goes where to help one worker."""
    if around.linked:
        return lightest_chain(items, rows, place, worker, around)
    step = _best(items, rows, place, (worker, around.receivers, around.spare, around.room))
    if step is None:
        return ()
    there = ChainLink(step.row, step.to)
    return (there, ChainLink(step.back, worker)) if step.back >= 0 else (there,)


def _best(items: Items, rows: Ints, place: Ranks, around: tuple[int, Ints, Ints, Ints]) -> _Step | None:
    """The best step of one worker."""
    worker, receivers, spare, room = around
    others = rows[place[rows] != worker]
    alone = receivers[receivers != worker]
    to = np.concatenate([alone, place[others].astype(np.int64)])
    back = np.concatenate([np.full(len(alone), -1, dtype=np.int64), others])
    weight = np.concatenate([np.zeros(len(alone), dtype=np.int64), items.weight[others]])
    filters = np.concatenate([np.zeros(len(alone), dtype=np.int64), items.filters[others]])
    best: tuple[int, int] = (0, 0)
    found: _Step | None = None
    for row in rows[place[rows] == worker].tolist():
        less, fewer = items.weight[row] - weight, items.filters[row] - filters
        gain = np.minimum(less, -spare[worker]) - np.maximum(less - np.maximum(spare[to], 0), 0)
        gain[(less <= 0) | (fewer > room[to]) | (-fewer > room[worker])] = 0
        most = int(gain.max(initial=0))
        if most <= 0:
            continue
        equal = np.flatnonzero(gain == most)
        at = equal[np.argmin(weight[equal])]
        key = (most, -int(items.weight[row] + weight[at]))
        if found is None or key > best:
            best, found = key, _Step(row, int(to[at]), int(back[at]))
    return found
