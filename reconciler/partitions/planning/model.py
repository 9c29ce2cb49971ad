"""What the algorithm takes and gives: columns of whole numbers, workers by their rank, places of partitions.

A worker is its rank in the order of the names (bytes of UTF-8). A weight is a whole number of millionths.

Invariant: nothing here depends on the order in which tables are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from reconciler.partitions.planning.keys import Keys

Ints = npt.NDArray[np.int64]
Ranks = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]

NEW = -1
"""The home of a partition that the earlier plan did not have."""
ABSENT = -2
"""The home of one whose worker is gone from the table."""


class MoveReason(IntEnum):
    """Why a partition is where it was not before; the first that applies."""

    STAYS = 0
    NEW = 1
    ABSENT = 2
    DRAINING = 3
    PIN = 4
    ZONE = 5
    UNIT = 6
    GIANT = 7
    OVERLOAD = 8
    FILL = 9
    CAP = 10


@dataclass(frozen=True, slots=True)
class Rest:
    """Items that are not listed one by one: they stay where they are, and only their sums are known."""

    weight: Ints
    """By worker; like the three that follow."""
    filters: Ints
    pinned: Ints
    pinned_filters: Ints
    total: int
    """All of it, also what is nowhere."""
    free: Ints
    """Of its weight what has no pin, by worker."""
    moved: int = 0
    """What of it is elsewhere than in the earlier plan."""
    movable: frozenset[int] = frozenset()
    """Workers that have some of it that could move."""
    large: int | None = None
    """Free items heavier than this are all listed; None when nobody looked for them."""


class NotListed(Exception):
    """A step needs items one by one of which only the sums are known."""

    def __init__(self, workers: frozenset[int] = frozenset(), large: int | None = None) -> None:
        self.workers, self.large = workers, large
        super().__init__(f"items of workers {sorted(workers)} or heavier than {large}")


@dataclass(frozen=True, slots=True)
class Items:
    """What is placed: partitions, or units of them that stay together."""

    keys: Keys
    weight: Ints
    filters: Ints
    """How many subjects it stands for."""
    home: Ranks
    """Where it is: the rank of a worker, NEW or ABSENT."""
    pin: Ranks
    """Where it has to be: the rank of a worker, or -1."""
    zone: Ranks
    """Which zone it belongs to, or -1."""
    rest: Rest | None = None
    """Others of the same pool; None when all are listed."""

    def __len__(self) -> int:
        return len(self.weight)

    def take(self, rows: Ints) -> Items:
        """Some of them."""
        return Items(
            self.keys.take(rows), self.weight[rows], self.filters[rows], self.home[rows], self.pin[rows], self.zone[rows]
        )

    def at(self, home: Ranks) -> Items:
        """The same, elsewhere."""
        return replace(self, home=home)


@dataclass(frozen=True, slots=True)
class Workers:
    """Everybody of the table of workers, by rank."""

    names: Sequence[str]
    capacity: tuple[int, ...]
    slots: tuple[int, ...]
    """The most subjects each may have."""
    active: tuple[bool, ...]
    """False for one that is draining."""
    zone: tuple[int, ...]
    fresh: tuple[bool, ...]
    """Not in the earlier plan, or not yet filled by it."""

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True, slots=True)
class PlanningRules:
    """What the plan has to keep to."""

    trigger: int
    """Millionths over its share from which on a worker gives away."""
    target: int
    """Millionths over its share down to which it does."""
    fill: bool
    budget: int | None = None
    """The most weight that may be moved where no rule demands it."""
    zones: str = "ignore"
    chains: bool = False
    """Whether large items that fit nowhere push lighter ones out; then nobody gives more than what is too much."""
    shed: bool = True
    """Whether workers that carry too much give anything away; false in an attempt that only places what has no place."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What no plan of the same rules can undercut."""

    forced: int = 0
    """Weight that has to leave where it is."""
    moved: int = 0

    def __add__(self, other: Bounds) -> Bounds:
        return Bounds(self.forced + other.forced, self.moved + other.moved)


@dataclass(frozen=True, slots=True)
class Share:
    """Weight per capacity, exactly: what every worker would carry if weight could be poured."""

    weight: int = 0
    capacity: int = 1

    def of(self, capacity: int, over: int = 0) -> int:
        """The share of a capacity, `over` millionths more, rounded down."""
        return self.weight * capacity * (1_000_000 + over) // (self.capacity * 1_000_000)


@dataclass(frozen=True, slots=True)
class Solved:
    """A plan of one group of workers."""

    place: Ranks
    reason: npt.NDArray[np.int8]
    share: dict[int, Share]
    """The share that each worker of the group was measured by."""
    giants: tuple[int, ...] = ()
    """Items heavier than any worker's share."""
    hosts: frozenset[int] = frozenset()
    """Workers whose fixed load alone is over their share: giants or pins."""
    fixed_load: Mapping[int, int] = field(default_factory=dict)
    bounds: Bounds = Bounds()
    held_by: tuple[str, ...] = ()
    """What kept the plan from its balance."""
    waiting: int = 0
    """Weight that the budget left where it is."""
    filling: frozenset[int] = field(default_factory=frozenset)
    """Fresh workers that are not yet full, because the budget ended."""
