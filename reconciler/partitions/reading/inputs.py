"""What a plan is made of, once it is read and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from reconciler.errors import UsageError
from reconciler.partitions.planning.model import Ints, Ranks, Workers


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

    def __len__(self) -> int:
        return len(self.weight)


@dataclass(frozen=True, slots=True)
class Previous:
    """The plan before this one: who has which subject, and who had a file at all."""

    subject: pa.Array
    worker: pa.Array
    """The names."""
    workers: frozenset[str]
    filling: frozenset[str] = frozenset()
    """Workers that a budget left half filled."""
    source: str = "none"

    def __len__(self) -> int:
        return len(self.subject)


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
