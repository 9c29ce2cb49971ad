"""What is planned: partitions on workers before, and what has changed since."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reconciler.partitions.planning.keys import Keys
from reconciler.partitions.planning.model import ABSENT, NEW, Items, PlanningRules, Workers

UNIT = 1_000_000
RULES = PlanningRules(trigger=100_000, target=50_000, fill=True)
Weights = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two: before, or after."""

    weights: Weights
    workers: Workers


@dataclass(frozen=True, slots=True)
class Case:
    """A change."""

    name: str
    before: Side
    after: Side
    small: bool = True
    """Whether partitions are small beside a share: only then can a plan come near to the bound."""

    def moved_home(self, place: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """Where the partitions of the later side are, after this plan of the earlier one."""
        names = {name: rank for rank, name in enumerate(self.after.workers.names)}
        rank_after = np.array([names.get(name, ABSENT) for name in self.before.workers.names], dtype=np.int32)
        home = np.full(len(self.after.weights), NEW, dtype=np.int32)
        home[: len(place)] = rank_after[place]
        return home

    def fresh(self) -> Workers:
        """The later workers; those that were not there before are new."""
        known = set(self.before.workers.names)
        return replace(self.after.workers, fresh=tuple(name not in known for name in self.after.workers.names))


def items(weights: Weights) -> Items:
    """Partitions of four chambers to a tool."""
    count = len(weights)
    numbers = np.arange(count)
    tools = pa.array(numbers // 4).cast(pa.string())
    chambers = pa.array(numbers % 4).cast(pa.string())
    subjects = pc.binary_join_element_wise("dc.tool", tools, ".chamber", chambers, ".completion", "")
    nowhere = np.full(count, -1, dtype=np.int32)
    return Items(Keys(subjects), weights, np.ones(count, dtype=np.int64), np.full(count, NEW, dtype=np.int32), nowhere, nowhere)


def workers(count: int, *, first: int = 0, slots: int = 10**7, twice: int = 0) -> Workers:
    """Numbered from `first`; one in `twice` has the double capacity."""
    numbers = range(first, first + count)
    return Workers(
        names=tuple(f"worker-{number:05d}" for number in numbers),
        capacity=tuple(2 * UNIT if twice and number % twice == 0 else UNIT for number in numbers),
        slots=(slots,) * count,
        active=(True,) * count,
        zone=(-1,) * count,
        fresh=(False,) * count,
    )


def reference(seed: int = 1) -> Weights:
    """That of parti: 3,000 partitions, 5 % of them of 10,000 to 50,000 where the others have 100."""
    random = np.random.default_rng(seed)
    weights = np.full(3000, 100 * UNIT)
    weights[random.permutation(3000)[:150]] = random.integers(10_000, 50_000, 150) * UNIT
    return weights


def cases(large: tuple[tuple[int, int], ...]) -> Iterator[Callable[[], Case]]:
    """Each is made when its turn has come: ten million partitions need room."""
    yield partial(_reference, 110)
    yield partial(_reference, 99)
    yield partial(_of_equal, 10_000, 128, 141)
    yield partial(_of_equal, 2_000, 25, 30)
    yield drift
    yield _full
    for partitions, count in large:
        yield partial(day, partitions, count)


def _reference(count: int) -> Case:
    name = f"reference of parti, 100 to {count} workers"
    return Case(name, _side(reference(), 100), _side(reference(), count), small=False)


def _of_equal(partitions: int, before: int, after: int) -> Case:
    name = f"{partitions:,} equal, {before} to {after} workers"
    return Case(name, _side(_equal(partitions), before), _side(_equal(partitions), after))


def _side(weights: Weights, count: int) -> Side:
    return Side(weights, workers(count))


def _equal(count: int) -> Weights:
    return np.full(count, UNIT)


def lognormal(count: int, seed: int = 7) -> Weights:
    """One in two thousand is a hundred times as heavy."""
    random = np.random.default_rng(seed)
    weights = random.lognormal(0, 1, count) * UNIT
    weights[random.permutation(count)[: count // 2000]] *= 100
    return np.maximum(1, weights.astype(np.int64))


def drift() -> Case:
    """Of every weight, up or down."""
    before = np.maximum(1, (np.random.default_rng(3).lognormal(0, 1, 4000) * UNIT).astype(np.int64))
    after = (before * np.random.default_rng(4).uniform(0.9, 1.1, len(before))).astype(np.int64)
    return Case("4,000 on 25 workers, weights drift by 10 %", _side(before, 25), _side(after, 25))


def day(count: int, number: int) -> Case:
    """Weights drift by a quarter, one in a hundred is thrice as heavy; of fifty workers one is gone, one drains; 5 % are new."""
    before = lognormal(count)
    random = np.random.default_rng(8)
    drifted = before * random.uniform(0.75, 1.25, count)
    drifted[random.permutation(count)[: count // 100]] *= 3
    after = np.append(np.maximum(1, drifted.astype(np.int64)), lognormal(count // 100, 9))
    gone, new, draining = number // 50, number // 20, number // 50
    around = workers(number - gone + new, first=gone, twice=5)
    active = tuple(not (place < draining) for place in range(len(around)))
    name = f"{count:,} lognormal with giants on {number:,} workers, a day of changes"
    return Case(name, Side(before, workers(number, twice=5)), Side(after, replace(around, active=active)))


def _full() -> Case:
    """19 of 20 slots are taken."""
    before = lognormal(9_500, 5)[:9_500]
    before = np.minimum(before, 20 * UNIT)
    after = (before * np.random.default_rng(6).uniform(0.8, 1.2, len(before))).astype(np.int64)
    slots = workers(20, slots=500)
    return Case("9,500 on 20 workers of 500 slots, weights drift by 20 %", Side(before, slots), Side(np.maximum(1, after), slots))
