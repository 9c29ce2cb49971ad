"""Where everything goes in a layered picture from left to right: boxes in columns, lanes as bands across them, links as paths.

Parts that do not hang together are laid out each on its own and set side by side like words in a paragraph.

Invariant: boxes never overlap, and a link passes other boxes of its part at a distance.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from reconciler.render.graph.order import Ordered, ordered
from reconciler.render.graph.ranks import components, ranks
from reconciler.render.graph.tops import Band, Banded, Stack, Tie

LINE = 13.0
"""From one line of a label to the next."""
_ABOVE, _BELOW = 16.0, 6.0
"""What a label needs above its line, and below what follows the line."""
_BARE = 5.0
"""The same of a link without a label."""
_WAYPOINT = 4.0
_CURVE, _WIDER, _WIDEST = 44.0, 1.0, 180.0
"""The room that curves take between columns, for each more of them, and at most."""
_MARGIN, _HEADER = 16.0, 24.0
"""Within a frame."""
_BETWEEN = 32.0
_SHAPE = 1.7
"""Width by height of the whole, where parts can be set side by side."""
_INDENT = 8.0
"""From a box to the label beside it."""

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Box:
    """What has a place; the size is the least that it needs."""

    width: float
    height: float
    lane: int = 0


@dataclass(frozen=True, slots=True)
class Connector:
    """What leads from one box to another; its label has a width and a number of lines."""

    origin: int
    target: int
    width: float = 0.0
    lines: int = 0


@dataclass(frozen=True, slots=True)
class Rectangle:
    """A rectangle."""

    x: float
    y: float
    width: float
    height: float

    def moved(self, x: float, y: float) -> Rectangle:
        """The same elsewhere."""
        return replace(self, x=self.x + x, y=self.y + y)


@dataclass(frozen=True, slots=True)
class Path:
    """Knots from origin to target: a straight piece, a curve, a straight piece, and so on; and where the label begins."""

    knots: tuple[Point, ...]
    label: Point

    def moved(self, x: float, y: float) -> Path:
        """The same elsewhere."""
        return Path(tuple((a + x, b + y) for a, b in self.knots), (self.label[0] + x, self.label[1] + y))


@dataclass(frozen=True, slots=True)
class Layout:
    """All places, by the numbers of boxes and links; frames with the lane that they are a part of."""

    width: float
    height: float
    boxes: dict[int, Rectangle]
    paths: dict[int, Path]
    frames: list[tuple[int, Rectangle]]


def layout(boxes: Sequence[Box], links: Sequence[Connector], *, framed: bool) -> Layout:
    """Places for all of it; with frames around lanes if they have names to be shown."""
    pairs = [(link.origin, link.target) for link in links]
    parts = []
    for members in components(len(boxes), pairs):
        inside = set(members)
        own = {number: link for number, link in enumerate(links) if link.origin in inside}
        parts.append(_part(boxes, own, members, framed=framed))
    return _packed(parts)


def _packed(parts: list[Layout]) -> Layout:
    """Parts in rows, the tallest first; what hangs on nothing comes last."""
    area = sum((part.width + _BETWEEN) * (part.height + _BETWEEN) for part in parts)
    room = max([math.sqrt(area * _SHAPE), *(part.width for part in parts)])
    boxes: dict[int, Rectangle] = {}
    paths: dict[int, Path] = {}
    frames: list[tuple[int, Rectangle]] = []
    x = y = row = width = 0.0
    for part in sorted(parts, key=lambda part: (not part.paths, -part.height)):
        if x and x + part.width > room:
            x, y, row = 0.0, y + row + _BETWEEN, 0.0
        boxes |= {number: place.moved(x, y) for number, place in part.boxes.items()}
        paths |= {number: path.moved(x, y) for number, path in part.paths.items()}
        frames += [(lane, place.moved(x, y)) for lane, place in part.frames]
        x, row = x + part.width + _BETWEEN, max(row, part.height)
        width = max(width, x - _BETWEEN)
    return Layout(width, y + row, boxes, paths, frames)


def _part(boxes: Sequence[Box], links: dict[int, Connector], members: list[int], *, framed: bool) -> Layout:
    """One part that hangs together, its own corner at 0, 0."""
    rank, turned = ranks(members, [(link.origin, link.target) for link in links.values()])
    backwards = {number for number, link in links.items() if (link.origin, link.target) in turned}
    forward = {
        number: (link.target, link.origin) if number in backwards else (link.origin, link.target)
        for number, link in links.items()
        if link.origin != link.target
    }
    part = _Part(boxes, links, ordered(rank, [box.lane for box in boxes], forward, len(boxes)), _MARGIN if framed else 0.0)
    banded = part.bands()
    found = part.places(banded.tops)
    paths = {}
    for number in forward:
        path = part.path(number, banded.tops)
        paths[number] = replace(path, knots=path.knots[::-1]) if number in backwards else path
    paths |= {number: _loop(found[link.origin]) for number, link in links.items() if link.origin == link.target}
    frames = [part.frame(band) for band in banded.bands] if framed else []
    return Layout(part.width, banded.height, found, paths, frames)


def _loop(box: Rectangle) -> Path:
    """A link of a box with itself: its two ends, on the upper edge."""
    near, far = box.x + box.width * 0.6, box.x + box.width * 0.9
    return Path(((near, box.y), (far, box.y)), (box.x + box.width + _INDENT, box.y))


class _Part:
    """The columns of a part: where they begin, and where links meet their boxes."""

    def __init__(self, boxes: Sequence[Box], links: dict[int, Connector], order: Ordered, margin: float) -> None:
        """The margin is that of the frames around lanes; 0 where there are none."""
        self._boxes, self._links, self._order, self._margin = boxes, links, order, margin
        self._indent = _INDENT + margin
        self._column = {item: at for at, items in enumerate(order.columns) for item in items}
        self._at_left = {  # on the side of fewer links there is more room for a label
            number: len(order.after[chain[0]]) <= len(order.before[chain[-1]]) for number, chain in order.chains.items()
        }
        self._heights = {item: boxes[item].height if item < len(boxes) else _WAYPOINT for item in self._column}
        self._ports = dict(self._all_ports())
        self._zones = self._label_zones()
        self._lefts, self._widths, self._rights = self._across()

    @property
    def width(self) -> float:
        """Of all columns."""
        return self._rights[-1] + self._margin

    def bands(self) -> Banded:
        """How high all of it lies."""
        sides: tuple[dict[int, list[Tie]], dict[int, list[Tie]]] = (defaultdict(list), defaultdict(list))
        for number, chain in self._order.chains.items():
            for one, other in pairwise(chain):
                out, into = self._ports[one, number, True], self._ports[other, number, False]
                sides[1][one].append(Tie(other, out, into))
                sides[0][other].append(Tie(one, into, out))
        above, below = (_HEADER + _MARGIN / 2, _MARGIN) if self._margin else (0.0, 0.0)
        stack = Stack(self._order.columns, self._order.lane, self._heights, len(self._boxes), *sides)
        return stack.banded(above, below)

    def frame(self, band: Band) -> tuple[int, Rectangle]:
        """Around what a lane has in this part."""
        left, right = self._lefts[band.first] - self._margin, self._rights[band.last] + self._margin
        return band.lane, Rectangle(left, band.y, right - left, band.size)

    def places(self, tops: dict[int, float]) -> dict[int, Rectangle]:
        """The boxes."""
        return {
            item: Rectangle(self._lefts[column], tops[item], self._widths[column], self._heights[item])
            for item, column in self._column.items()
            if item < len(self._boxes)
        }

    def path(self, number: int, tops: dict[int, float]) -> Path:
        """The way of a link from left to right."""
        chain = self._order.chains[number]
        knots: list[Point] = []
        for one, other in pairwise(chain):
            column = self._column[one]
            left, right = self._zones[column]
            start, end = tops[one] + self._ports[one, number, True], tops[other] + self._ports[other, number, False]
            if not knots:
                knots.append((self._rights[column], start))
            knots += [(self._rights[column] + left, start), (self._lefts[column + 1] - right, end)]
        last = self._lefts[self._column[chain[-1]]]
        knots.append((last, knots[-1][1]))
        x, y = knots[0] if self._at_left[number] else (knots[-1][0] - self._links[number].width - 2 * self._indent, knots[-1][1])
        return Path(tuple(knots), (x + self._indent, y))

    def _all_ports(self) -> Iterator[tuple[tuple[int, int, bool], float]]:
        """By item, link and whether on its right: how far below the item's top; boxes grow to have room for them."""
        place = {item: at for items in self._order.columns for at, item in enumerate(items)}
        meeting: dict[tuple[int, bool], list[tuple[int, int]]] = defaultdict(list)
        for number, chain in self._order.chains.items():
            for one, other in pairwise(chain):
                meeting[one, True].append((place[other], number))
                meeting[other, False].append((place[one], number))
        for (item, _), found in meeting.items():
            if item < len(self._boxes):
                self._heights[item] = max(self._heights[item], sum(map(sum, (self._room(item, number) for _, number in found))))
        for (item, right), found in meeting.items():
            slots = [(number, self._room(item, number)) for _, number in sorted(found)]
            at = (self._heights[item] - sum(sum(room) for _, room in slots)) / 2
            for number, (above, below) in slots:
                yield (item, number, right), at + above
                at += above + below

    def _room(self, item: int, number: int) -> tuple[float, float]:
        """What a link needs above and below the point where it meets an item."""
        chain, link = self._order.chains[number], self._links[number]
        labelled = link.lines and item == chain[0 if self._at_left[number] else -1]
        if item >= len(self._boxes):
            return _WAYPOINT / 2, _WAYPOINT / 2
        return (_ABOVE, _BELOW + LINE * (link.lines - 1)) if labelled else (_BARE, _BARE)

    def _label_zones(self) -> list[tuple[float, float]]:
        """By gap between columns: how wide the labels beside the left and the right column are."""
        zones = [(0.0, 0.0)] * len(self._order.columns)
        for number, chain in self._order.chains.items():
            width = self._links[number].width + 2 * self._indent if self._links[number].lines else _INDENT
            gap = self._column[chain[0]] if self._at_left[number] else self._column[chain[-1]] - 1
            left, right = zones[gap]
            zones[gap] = (max(left, width), right) if self._at_left[number] else (left, max(right, width))
        return zones

    def _across(self) -> tuple[list[float], list[float], list[float]]:
        """Where columns begin, how wide they are, and where they end."""
        crossing = [0] * len(self._order.columns)
        for chain in self._order.chains.values():
            for item in chain[:-1]:
                crossing[self._column[item]] += 1
        lefts, widths, rights, x = [], [], [], self._margin
        for items, (left, right), links in zip(self._order.columns, self._zones, crossing, strict=True):
            width = max((self._boxes[item].width for item in items if item < len(self._boxes)), default=0.0)
            lefts.append(x)
            widths.append(width)
            rights.append(x + width)
            x += width + left + right + min(_CURVE + _WIDER * links, _WIDEST)
        return lefts, widths, rights
