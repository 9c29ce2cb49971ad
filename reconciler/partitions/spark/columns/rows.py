"""The rows of a finished plan, brought to this process slice by slice, in the order of worker and subject.

Invariant: a slice is half a million rows, or what a worker may have; the plan as a whole is never here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from reconciler.partitions.families import Family, filters
from reconciler.partitions.output.render import ROWS
from reconciler.partitions.planning.model import ABSENT, NEW, Ints, Items, PlanningRules, Workers
from reconciler.partitions.planning.planner import BrokenPlan, PartitionPlan
from reconciler.partitions.spark.planner import PlannedPartitions, plan
from reconciler.partitions.spark.solving.families import told_by
from reconciler.partitions.spark.solving.items import LEAF
from reconciler.partitions.spark.solving.problems import PoolProblem
from reconciler.partitions.spark.solving.summing import summed

SLICE = 500_000
_IN_PART = 250_000
"""Rows that are sorted by one task."""


@dataclass(frozen=True, slots=True)
class Gone:
    """What workers had that are not in the table any more."""

    homes: DataFrame
    """subject, or a filter with wildcards, and was: the place of the worker among their names."""
    names: Sequence[str]
    families: Sequence[Family]
    """Those of all such filters."""


@dataclass(frozen=True, slots=True)
class There:
    """Partitions that Spark has."""

    made: PlannedPartitions
    workers: Workers
    gone: Gone | None
    families: Sequence[Family]
    units: bool

    def in_order(self, _plan: PartitionPlan) -> Iterator[pa.Table]:
        """All of them, slice by slice."""
        slices = list(_slices(self.made.counts))
        if not slices:
            yield ROWS.empty_table()
            return
        ordered = self._ordered(len(slices))
        try:
            for first, last in slices:
                rows = ordered.filter(F.col("place").between(first, last)) if len(slices) > 1 else ordered
                yield self._named(self._checked(rows.toArrow(), range(first, last + 1)))
        finally:
            ordered.unpersist()

    def again(self, _plan: PartitionPlan, workers: Workers, rules: PlanningRules) -> tuple[Items, PartitionPlan, Ints]:
        """By Spark as well."""
        counted = ("f",) if "f" in self.made.rows.columns else ()
        leaves = self.made.rows.withColumn("home", F.col("place")).select(*LEAF, *counted)
        made = plan(leaves, [PoolProblem(workers, rules)], units=self.units)
        (outcome,) = made.outcomes
        if outcome.error is not None:
            raise outcome.error
        return summed(made)

    def _ordered(self, slices: int) -> DataFrame:
        """Sorted, and cut where slices are: reading one of them does not read the others."""
        rows = self.made.rows
        if self.gone is None:
            rows = rows.withColumn("was", F.lit(None).cast("int"))
        else:
            rows = told_by(rows.join(self.gone.homes, "subject", "left"), self.gone.homes, self.gone.families, "was")
        rows = rows.select("subject", "place", "w", "unit", "home", "was", "reason")
        if slices == 1:
            return rows.orderBy("place", "subject")
        parts = max(slices, sum(self.made.counts.values()) // _IN_PART)
        return rows.repartitionByRange(parts, "place").sortWithinPartitions("place", "subject").persist()

    def _checked(self, rows: pa.Table, ranks: range) -> pa.Table:
        """As many as the sums say, in order, none of them twice."""
        place = _ints(rows, "place")
        counted = np.bincount(place - ranks.start, minlength=len(ranks)).tolist()
        subject = rows.column("subject").cast(pa.binary())
        rising = (np.diff(place) > 0) | pc.greater(subject[1:], subject[:-1]).to_numpy()
        if counted != [self.made.counts.get(rank, 0) for rank in ranks] or not rising.all():
            msg = "rows that came in another order or number than they were asked for"
            raise BrokenPlan(msg)
        return rows

    def _named(self, rows: pa.Table) -> pa.Table:
        """As `render.ROWS`; the worker before by its name."""
        home, was = _ints(rows, "home"), rows.column("was").fill_null(0).to_numpy()
        names = pa.array([*self.workers.names, *(self.gone.names if self.gone is not None else ())], pa.string())
        source = names.take(pa.array(np.where(home == ABSENT, len(self.workers) + was, home), mask=home == NEW))
        subject = rows.column("subject").combine_chunks()
        family = filters(subject, self.families)
        columns = [rows.column(name) for name in ("place", "w", "unit")]
        return pa.table(
            [subject, *columns, family, rows.column("home"), source, rows.column("reason").cast(pa.int8())], schema=ROWS
        )


def _slices(counts: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    """The first and the last worker of each."""
    first, last, rows = -1, -1, 0
    for rank in sorted(counts):
        if rows and rows + counts[rank] > SLICE:
            yield first, last
            first, rows = rank, 0
        first = rank if first < 0 else first
        last, rows = rank, rows + counts[rank]
    if rows:
        yield first, last


def _ints(rows: pa.Table, name: str) -> npt.NDArray[np.int64]:
    found: npt.NDArray[np.int64] = rows.column(name).to_numpy().astype(np.int64)
    return found
