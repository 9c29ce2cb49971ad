"""Groups of workers as Spark sees them: each is planned by itself, all of them in the same jobs.

In a DataFrame a worker is its rank plus the offset of its table of workers, so that several tables can be planned at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from reconciler.partitions.planning.dealing import NoRoom
from reconciler.partitions.planning.fixed import Fixed
from reconciler.partitions.planning.giving import Giving
from reconciler.partitions.planning.model import Bounds, Ints, PlanningRules, Solved, Workers


@dataclass(frozen=True)
class Group:
    """Some workers of one table."""

    number: int
    workers: Workers
    ranks: tuple[int, ...]
    rules: PlanningRules
    offset: int = 0

    @cached_property
    def ranks_set(self) -> frozenset[int]:
        """The same, to look into."""
        return frozenset(self.ranks)

    def rank(self, worker: int) -> int:
        """Of a worker in a DataFrame; NEW and ABSENT are the same everywhere."""
        return worker - self.offset if worker >= 0 else worker


@dataclass(slots=True)
class Book:
    """What is known of a group while a plan is made, by rank."""

    group: Group
    weight: Ints
    """At home, pinned or not."""
    filters: Ints
    pinned: Ints
    pinned_filters: Ints
    free: Ints
    """At home and not pinned."""
    free_filters: Ints
    total: int = 0
    all_subjects: int = 0
    nowhere: int = 0
    """Free weight without a home in the group."""
    forced: int = 0
    heaviest: int = 0
    """The weight of the heaviest free item."""
    fixed: Fixed | None = None
    hosted: dict[str, int] = field(default_factory=dict)
    """The worker of each giant, by key."""
    heaviest_keys: tuple[str, ...] = ()
    """Of all giants, also of those that nobody had room for."""
    load: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    subjects: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Where things are at the moment; what is in the pool is nowhere."""
    waiting: int = 0
    left: int | None = None
    """Of the budget."""
    giving: Giving | None = None
    bound: int = 0
    error: NoRoom | None = None
    nowhere_now: int = 0
    """The weight of the pool."""
    pool: int = 0
    """The same, before anything was given away."""
    before: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """The loads at that time."""

    @property
    def settled(self) -> Fixed:
        """What nobody can change, once it is known."""
        if self.fixed is None:
            msg = "giants and shares are asked for before they are known"
            raise RuntimeError(msg)
        return self.fixed

    @property
    def fills(self) -> bool:
        """Whether there is anybody to be filled."""
        workers = self.group.workers
        return self.group.rules.fill and any(workers.fresh[rank] for rank in self.settled.receivers)

    def leave(self, rank: int, weight: int, filters: int) -> None:
        """So much goes into the pool."""
        self.load[rank] -= weight
        self.subjects[rank] -= filters
        self.nowhere_now += weight


def open_book(group: Group) -> Book:
    """An empty one."""
    weight, filters, pinned, pinned_filters, free, free_filters = np.zeros((6, len(group.workers)), dtype=np.int64)
    return Book(group, weight, filters, pinned, pinned_filters, free, free_filters)


@dataclass(frozen=True, slots=True)
class Solution:
    """The plan of a group, but for the rows."""

    solved: Solved
    """Without places: those are in the DataFrame."""
    giants: tuple[str, ...]
    load: Ints
    subjects: Ints
    moved: int
    """Of what is in the group, elsewhere than in the plan before."""
    error: NoRoom | None = None
    all_subjects: int = 0
    """Also of what found no place."""


NOBODY = Solved(np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int8), {}, bounds=Bounds())


def ranks_of(groups: Mapping[int, Group]) -> list[tuple[int, int, int]]:
    """Worker in a DataFrame, its group and its rank, for all workers of these groups."""
    return [(rank + group.offset, number, rank) for number, group in groups.items() for rank in group.ranks]
