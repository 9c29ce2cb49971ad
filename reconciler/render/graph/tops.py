"""How high everything lies: each item goes where its links are straight, as far as those beside it in its column let it.

Invariant: items of a column keep their order and their distances; a lane is a band over the columns it has items in, and of
lanes in the same column each lies below those before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

_SWEEPS = 6
_GAP, _NARROW = 18.0, 5.0
"""Between boxes, and where a waypoint is one of the two."""
_APART = 22.0
"""Between lanes."""
_STRAIGHT = 4.0
"""How much more a waypoint pulls than a box."""


@dataclass(frozen=True, slots=True)
class Tie:
    """A link of an item with another one: how far below the tops of the two it begins and ends."""

    other: int
    own: float
    its: float


@dataclass(frozen=True, slots=True)
class Band:
    """A lane: its first and last column, and where it lies."""

    lane: int
    first: int
    last: int
    y: float
    size: float

    def beside(self, other: Band) -> bool:
        """Whether there is a column that both take part of."""
        return self.first <= other.last and other.first <= self.last


class Banded(NamedTuple):
    """The top of each item, the lanes, and the height of all."""

    tops: dict[int, float]
    bands: list[Band]
    height: float


@dataclass(frozen=True, slots=True)
class Stack:
    """What has to be placed."""

    columns: Sequence[Sequence[int]]
    """Each sorted by lane."""
    lane: Mapping[int, int]
    heights: Mapping[int, float]
    waypoints: int
    """The first number that is no box."""
    before: Mapping[int, Sequence[Tie]]
    after: Mapping[int, Sequence[Tie]]

    def banded(self, above: float, below: float) -> Banded:
        """Lane by lane, each with some room above and below its items."""
        tops = self._tops()
        items: dict[int, list[int]] = {}
        column_of = {item: at for at, column in enumerate(self.columns) for item in column}
        for item in column_of:
            items.setdefault(self.lane[item], []).append(item)
        bands: list[Band] = []
        for lane, own in sorted(items.items()):
            highest = min(tops[item] for item in own)
            size = above + max(tops[item] + self.heights[item] for item in own) - highest + below
            band = Band(lane, min(map(column_of.__getitem__, own)), max(map(column_of.__getitem__, own)), 0.0, size)
            band = replace(band, y=max((other.y + other.size + _APART for other in bands if other.beside(band)), default=0.0))
            bands.append(band)
            tops |= {item: tops[item] - highest + band.y + above for item in own}
        height = max(band.y + band.size for band in bands)
        for at in reversed(range(len(bands))):
            free = min((other.y - _APART for other in bands[at + 1 :] if other.beside(bands[at])), default=height)
            shift = max(0.0, min(self._pull(items[bands[at].lane], tops), free - bands[at].y - bands[at].size))
            bands[at] = replace(bands[at], y=bands[at].y + shift)
            tops |= {item: tops[item] + shift for item in items[bands[at].lane]}
        return Banded(tops, bands, height)

    def _pull(self, items: Sequence[int], tops: Mapping[int, float]) -> float:
        """How much lower these would have to lie for their links with other lanes to be straight."""
        pulls = [
            tops[tie.other] + tie.its - tops[item] - tie.own
            for item in items
            for tie in (*self.before.get(item, ()), *self.after.get(item, ()))
            if self.lane[tie.other] != self.lane[item]
        ]
        return sum(pulls) / len(pulls) if pulls else 0.0

    def _tops(self) -> dict[int, float]:
        """The top of each item, from that of its lane."""
        lanes = sorted(set(self.lane.values()))
        by_column = {lane: [band for column in self.columns if (band := self._band(column, lane))] for lane in lanes}
        found: dict[int, float] = {}
        for band in (band for inner in by_column.values() for band in inner):
            found |= dict(zip(band, self._offsets(band), strict=True))
        for inner in by_column.values():
            for sweep in range(_SWEEPS):
                last = sweep == _SWEEPS - 1
                for band in inner if sweep % 2 == 0 else reversed(inner):
                    near = (self.before, self.after) if last else (self.after,) if sweep % 2 else (self.before,)
                    self._settle(band, found, near)
        return found

    def _band(self, column: Sequence[int], lane: int) -> list[int]:
        return [item for item in column if self.lane[item] == lane]

    def _offsets(self, band: Sequence[int]) -> list[float]:
        """The tops of items that stand as close as they may."""
        found, at = [], 0.0
        for item, below in zip(band, [*band[1:], -1], strict=True):
            found.append(at)
            at += self.heights[item] + (_GAP if item < self.waypoints > below else _NARROW)
        return found

    def _settle(self, band: Sequence[int], found: dict[int, float], near: Iterable[Mapping[int, Sequence[Tie]]]) -> None:
        sides = list(near)
        wanted, weights = [], []
        offsets = self._offsets(band)
        for item, offset in zip(band, offsets, strict=True):
            ties = [tie for side in sides for tie in side.get(item, ()) if self.lane[tie.other] == self.lane[item]]
            aims = [found[tie.other] + tie.its - tie.own for tie in ties] or [found[item]]
            wanted.append(sum(aims) / len(aims) - offset)
            weights.append((_STRAIGHT if item >= self.waypoints else 1.0) if ties else 0.01)
        for item, offset, at in zip(band, offsets, isotonic(wanted, weights), strict=True):
            found[item] = at + offset


def isotonic(wanted: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The values nearest to those wanted (by the squares) of which none is below the one before it."""
    pools: list[tuple[float, float, int]] = []  # value, weight, how many
    for value, weight in zip(wanted, weights, strict=True):
        pool = (value, weight, 1)
        while pools and pools[-1][0] > pool[0]:
            last = pools.pop()
            both = last[1] + pool[1]
            pool = ((last[0] * last[1] + pool[0] * pool[1]) / both, both, last[2] + pool[2])
        pools.append(pool)
    return [value for value, _, count in pools for _ in range(count)]
