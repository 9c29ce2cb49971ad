"""What a plan is made of, once it is read and checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reconciler.errors import UsageError
from reconciler.partitions.families import covering
from reconciler.partitions.planning.model import Ints, Ranks, Workers
from reconciler.partitions.reading.subjects import wild


class TooMany(UsageError):
    """More partitions than are planned in this process; all of them were checked."""

    def __init__(self, rows: int, most: int) -> None:
        self.rows = rows
        super().__init__(
            f"{rows:,} partitions are more than the {most:,} that are planned in this process (spec.localRows): "
            "raise it, or plan with Spark: pip install 'jetstream-reconciler[spark]'"
        )


@dataclass(frozen=True, slots=True)
class Partitions:
    """The table of partitions: a row for each, in no order."""

    subject: pa.Array
    weight: Ints
    pin: Ranks
    zone: Ranks
    unit: pa.Array | None
    """Of a partition that has none, its family, which is one."""
    family: pa.Array | None = None
    """The filter that a partition shares with others; null where its subject is the filter."""

    def __len__(self) -> int:
        return len(self.weight)

    @property
    def filter(self) -> pa.Array:
        """What each is read through."""
        return self.subject if self.family is None else pc.coalesce(self.family, self.subject)

    @property
    def filters(self) -> Ints:
        """How many filters each adds: of those that share one, one does."""
        if self.family is None:
            return np.ones(len(self), dtype=np.int64)
        found = np.zeros(len(self), dtype=np.int64)
        found[np.unique(self.filter.dictionary_encode().indices, return_index=True)[1]] = 1
        return found


@dataclass(frozen=True, slots=True)
class Previous:
    """The plan before this one: who has which subject, and who had a file at all."""

    subject: pa.Array
    """Or the filter of a family, where its partitions are not known one by one."""
    worker: pa.Array
    """The names."""
    workers: frozenset[str]
    filling: frozenset[str] = frozenset()
    """Workers that a budget left half filled."""
    source: str = "none"
    families: Mapping[str, str] = field(default_factory=dict)
    """The worker of every filter with wildcards: whatever it matches was there."""

    def __len__(self) -> int:
        return len(self.subject)

    def worker_of(self, subject: pa.Array) -> pa.Array:
        """Who had each of these; null for what is new."""
        found = self.worker.take(pc.index_in(subject, value_set=self.subject))
        workers = pa.array(self.families.values(), pa.string())
        for filter_ in self._filters(subject):
            found = pc.coalesce(found, workers.take(filter_))
        return found

    def count(self, subject: pa.Array) -> int:
        """How many partitions there were.

        A filter with wildcards stands for those of now that nothing else speaks of; one that matches none of them any more, for
        as many as the others do on average.
        """
        counted = pc.is_in(pa.array(self.families.keys(), pa.string()), value_set=self.subject)
        partitions = families = 0
        for filter_ in self._filters(subject.filter(pc.invert(pc.is_in(subject, value_set=self.subject)))):
            present = filter_.drop_null()
            partitions += len(present)
            families += pc.sum(counted.take(pc.unique(present))).as_py() or 0
        gone = (pc.sum(counted).as_py() or 0) - families
        average = -(-partitions // families) if families else 1
        return len(self) - families + partitions + gone * (average - 1)

    def _filters(self, subject: pa.Array) -> Iterator[pa.Array]:
        """For each kind of family: the place among all of the one that each subject belongs to, or null."""
        names = pa.array(self.families.keys(), pa.string())
        for family in covering(self.families):
            yield pc.index_in(family.filters(subject), value_set=names)


def wild_ones(subject: pa.Array, worker: pa.Array) -> dict[str, str]:
    """The filters with wildcards among these, and whose they are."""
    found = pc.fill_null(wild(subject), fill_value=False)
    return dict(zip(subject.filter(found).to_pylist(), worker.filter(found).to_pylist(), strict=True))


NOTHING = Previous(pa.array([], pa.string()), pa.array([], pa.string()), frozenset())


@dataclass(frozen=True, slots=True)
class WorkerTableRows:
    """The table of workers, in the order of their ranks."""

    workers: Workers
    zones: Mapping[str, int]
    """Their numbers, in the order of the names."""

    @property
    def ranks(self) -> Mapping[str, int]:
        """By name."""
        return {name: rank for rank, name in enumerate(self.workers.names)}
