"""The order of boxes within their columns: links that span columns get a waypoint in each, and sweeps take out crossings.

Invariant: a column is sorted by lane before all else, so that each lane is a band across the columns.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from reconciler.render.graph.ranks import Pair

_SWEEPS = 8


@dataclass(frozen=True, slots=True)
class Ordered:
    """Items are boxes (by their number) and, from `boxes` on, waypoints."""

    columns: list[list[int]]
    lane: dict[int, int]
    chains: dict[int, list[int]]
    """By link: its items from left to right."""
    before: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Of each item, what it is linked with in the column on its left, once per link."""
    after: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))


def ordered(rank: dict[int, int], lanes: Sequence[int], forward: dict[int, Pair], first_waypoint: int) -> Ordered:
    """Columns in an order with few crossings; `forward` are the links by number, each from a lower rank to a higher one."""
    found = Ordered([[] for _ in range(max(rank.values()) + 1)], {box: lanes[box] for box in rank}, {})
    for box, column in sorted(rank.items()):
        found.columns[column].append(box)
    waypoint, stands_for = first_waypoint, {box: box for box in rank}
    degree = Counter(box for pair in forward.values() for box in pair)
    for link, (one, other) in sorted(forward.items()):
        chain = [one]
        for column in range(rank[one] + 1, rank[other]):
            found.columns[column].append(waypoint)
            found.lane[waypoint] = lanes[other]
            stands_for[waypoint] = one if degree[one] < degree[other] else other
            chain.append(waypoint)
            waypoint += 1
        found.chains[link] = [*chain, other]
        for left, right in pairwise(found.chains[link]):
            found.after[left].append(right)
            found.before[right].append(left)
    for items in found.columns:  # as it would be if waypoints were the boxes they are there for
        items.sort(key=lambda item: (found.lane[item], stands_for[item], item))
    _untangle(found)
    return found


def _untangle(found: Ordered) -> None:
    """Barycentres, from the left and from the right in turn; the best of what was seen stays."""
    best, fewest = [list(column) for column in found.columns], _crossings(found)
    for sweep in range(_SWEEPS):
        if not fewest:
            break
        leftwards = bool(sweep % 2)
        near = found.after if leftwards else found.before
        for column in reversed(found.columns) if leftwards else found.columns:
            _sort(found, column, near)
        now = _crossings(found)
        if now < fewest:
            best, fewest = [list(column) for column in found.columns], now
    found.columns[:] = best


def _sort(found: Ordered, column: list[int], near: dict[int, list[int]]) -> None:
    place = {item: at for items in found.columns for at, item in enumerate(items)}
    centre = {item: sum(place[other] for other in near[item]) / len(near[item]) if near[item] else place[item] for item in column}
    column.sort(key=lambda item: (found.lane[item], centre[item], place[item]))


def _crossings(found: Ordered) -> int:
    """How many pairs of links cross between neighbouring columns."""
    total = 0
    for left, right in pairwise(found.columns):
        place = {item: at for at, item in enumerate(right)}
        seen: list[int] = []
        for item in left:
            ends = sorted(place[other] for other in found.after[item])
            total += sum(len(seen) - bisect_right(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    return total
