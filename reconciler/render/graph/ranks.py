"""The columns of a layered picture: cycles are cut, every box gets a rank, and a rank of too many boxes is spread over several.

Invariant: after it every link leads from a lower rank to a higher one; which links were turned round for that is told.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Sequence

Pair = tuple[int, int]


def components(count: int, pairs: Iterable[Pair]) -> list[list[int]]:
    """Boxes that hang together; those that hang on nothing are one group of their own, the last."""
    near: list[list[int]] = [[] for _ in range(count)]
    for one, other in pairs:
        near[one].append(other)
        near[other].append(one)
    seen = [False] * count
    found: list[list[int]] = []
    alone = [box for box in range(count) if not near[box]]
    for start in range(count):
        if seen[start] or not near[start]:
            continue
        seen[start], due, group = True, [start], []
        while due:
            box = due.pop()
            group.append(box)
            for other in near[box]:
                if not seen[other]:
                    seen[other] = True
                    due.append(other)
        found.append(sorted(group))
    return [*found, alone] if alone else found


def ranks(boxes: Sequence[int], pairs: Sequence[Pair]) -> tuple[dict[int, int], set[Pair]]:
    """The rank of each box, and the pairs that had to be turned round."""
    turned = _back_pairs(boxes, pairs)
    forward = [(b, a) if (a, b) in turned else (a, b) for a, b in pairs if a != b]
    rank = _longest_paths(boxes, forward)
    after: dict[int, list[int]] = {}
    for one, other in forward:
        after.setdefault(one, []).append(other)
    begins = set(boxes) - {other for _, other in forward}
    for box in begins:  # not further away than need be
        if box in after:
            rank[box] = min(rank[other] for other in after[box]) - 1
    _spread(boxes, rank, begins, set(boxes) - after.keys())
    return rank, turned


def _back_pairs(boxes: Sequence[int], pairs: Sequence[Pair]) -> set[Pair]:
    """Pairs that close a cycle, by a walk in depth that begins where nothing comes in."""
    after: dict[int, list[int]] = {box: [] for box in boxes}
    for one, other in sorted(set(pairs), reverse=True):
        if one != other:
            after[one].append(other)
    entered = {other for one, other in pairs if one != other}
    state: dict[int, int] = {}  # 1: on the way, 2: done
    found: set[Pair] = set()
    for start in sorted(boxes, key=lambda box: (box in entered, box)):
        if start in state:
            continue
        state[start] = 1
        way = [start]
        while way:
            box = way[-1]
            if not after[box]:
                state[box] = 2
                way.pop()
                continue
            other = after[box].pop()
            if state.get(other) == 1:
                found.add((box, other))
            elif other not in state:
                state[other] = 1
                way.append(other)
    return found


def _longest_paths(boxes: Sequence[int], forward: Sequence[Pair]) -> dict[int, int]:
    after: dict[int, list[int]] = {}
    waits: Counter[int] = Counter()
    for one, other in forward:
        after.setdefault(one, []).append(other)
        waits[other] += 1
    rank = dict.fromkeys(boxes, 0)
    due = deque(box for box in boxes if not waits[box])
    while due:
        box = due.popleft()
        for other in after.get(box, ()):
            rank[other] = max(rank[other], rank[box] + 1)
            waits[other] -= 1
            if not waits[other]:
                due.append(other)
    return rank


_COLUMN, _GRID = 32, 6
"""Boxes that a column takes without question, and where nothing is linked."""


def _spread(boxes: Sequence[int], rank: dict[int, int], begins: set[int], ends: set[int]) -> None:
    """Where a column would be a tower, boxes where nothing comes in move further left, those where nothing goes out right."""
    linked = len(begins) + len(ends) < 2 * len(boxes)
    most = max(_COLUMN, math.isqrt(5 * len(boxes))) if linked else max(_GRID, math.isqrt(3 * len(boxes) // 2))
    columns: dict[int, list[int]] = {}
    for box in boxes:
        columns.setdefault(rank[box], []).append(box)
    shifted: dict[int, float] = {}
    for column, members in columns.items():
        if len(members) <= most:
            continue
        free = [box for box in members if box in begins or box in ends]
        parts = min(math.ceil(len(members) / most), len(free)) or 1
        for number, box in enumerate(free):
            part = number % parts
            shifted[box] = column + (part if box in ends else part - parts + 1) / parts
    values = sorted({shifted.get(box, float(rank[box])) for box in boxes})
    column_of = {value: column for column, value in enumerate(values)}
    for box in boxes:
        rank[box] = column_of[shifted.get(box, float(rank[box]))]
