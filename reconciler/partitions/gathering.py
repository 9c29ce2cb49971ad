"""Everything a plan is made from, read and checked: tables, the plan before, and what the manifests say.

Invariant: nothing is planned before all of it is known to be right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reconciler.errors import UsageError
from reconciler.partitions.output.index import Index, edited, read_index
from reconciler.partitions.output.previous import read_previous
from reconciler.partitions.output.render import ROWS
from reconciler.partitions.plan_file import PlanFile
from reconciler.partitions.planning.keys import Keys
from reconciler.partitions.planning.model import ABSENT, NEW, Ints, Items, PlanningRules, Ranks, Workers
from reconciler.partitions.planning.planner import PartitionPlan, plan_locally
from reconciler.partitions.pools import look_around
from reconciler.partitions.reading.earlier import read_earlier
from reconciler.partitions.reading.inputs import NOTHING, Partitions, Previous
from reconciler.partitions.reading.partitions import read_partitions
from reconciler.partitions.reading.tables import LOCAL_FORMATS, open_table
from reconciler.partitions.reading.workers import read_workers, with_fresh
from reconciler.partitions.spec import PartitionPlanSpec, Table, ppm


class Rows(Protocol):
    """The partitions of a plan, wherever they are."""

    def in_order(self, plan: PartitionPlan) -> Iterator[pa.Table]:
        """All of them by worker and subject (`render.ROWS`); no worker is in two of these tables."""

    def again(self, plan: PartitionPlan, workers: Workers, rules: PlanningRules) -> tuple[Items, PartitionPlan, Ints]:
        """Planned once more from where they are now, for other workers; raises CapExceeded."""


@dataclass(frozen=True, slots=True)
class Before:
    """What is known of the earlier plan as a whole."""

    partitions: int
    workers: frozenset[str]
    source: str
    """From where: the table beside the manifests, the manifests, or nowhere."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """What goes into a plan."""

    workers: Workers
    items: Items
    """The partitions one by one, or those of one worker and reason as one."""
    counts: Ints
    """How many partitions each of these is."""
    rules: PlanningRules
    before: Before
    index: Index
    edited: tuple[str, ...]
    rows: Rows
    shard: int | None = None
    """The most subjects of one consumer, where a worker may have several."""

    def consumers(self, filters: int) -> int:
        """How many consumers a worker has for so many filters."""
        return 1 if self.shard is None else max(1, -(-filters // self.shard))


@dataclass(frozen=True, slots=True)
class Here:
    """Partitions in the memory of this process."""

    partitions: Partitions
    items: Items
    source: pa.Array
    """The name of each partition's worker before; null for what is new."""

    def in_order(self, plan: PartitionPlan) -> Iterator[pa.Table]:
        """All of them in one table."""
        partitions, nothing = self.partitions, pa.nulls(len(self.partitions), pa.string())
        unit = partitions.unit if partitions.unit is not None else nothing
        family = partitions.family if partitions.family is not None else nothing
        columns = [partitions.subject, plan.place, partitions.weight, unit, family, self.items.home, self.source, plan.reason]
        whole = pa.table([pa.array(column) for column in columns], schema=ROWS)
        keys = pa.table({"place": whole.column("place"), "subject": partitions.subject.cast(pa.binary())})
        yield whole.take(pc.sort_indices(keys, sort_keys=[("place", "ascending"), ("subject", "ascending")]))

    def again(self, plan: PartitionPlan, workers: Workers, rules: PlanningRules) -> tuple[Items, PartitionPlan, Ints]:
        """In this process."""
        items = self.items.at(plan.place)
        return items, replace(self, items=items).planned(workers, rules), np.ones(len(items), dtype=np.int64)

    def planned(self, workers: Workers, rules: PlanningRules) -> PartitionPlan:
        """By the local planner."""
        return plan_locally(self.items, workers, rules, self.partitions.unit)


def output_of(plan: PlanFile) -> Path:
    """Where the tree goes."""
    if "://" in plan.spec.output:
        msg = f"output {plan.spec.output}: a tree is exchanged in one step, which an object store cannot do; give a directory"
        raise UsageError(msg)
    return plan.directory / plan.spec.output


def gather(plan: PlanFile, lap: Callable[[str, str], None]) -> tuple[Gathered, Here]:
    """Reads it all, also the partitions; `lap` is told when a part is done."""
    spec, output = plan.spec, output_of(plan)
    for name, table in tables_of(spec):
        _local_only(name, table)
    neighbours = look_around(plan)
    found = read_workers(open_table(plan, "workers", spec.workers), spec)
    partitions = read_partitions(open_table(plan, "partitions", spec.partitions), spec, found)
    neighbours.refuse_collisions(partitions.filter)
    lap("read", f"read {len(partitions):,} partitions and {len(found.workers)} workers")
    index = read_index(output, spec.pool)
    changed = edited(output, index)
    previous = _previous(plan, output, index, changed)
    lap("previous", told(previous))
    workers = with_fresh(found, previous.workers, previous.filling)
    home, source = _homes(partitions, workers, previous)
    items = Items(Keys(partitions.subject), partitions.weight, partitions.filters, home, partitions.pin, partitions.zone)
    rules = rules_for(spec, int(partitions.weight.sum()))
    before = Before(previous.count(partitions.subject), previous.workers, previous.source)
    here, ones = Here(partitions, items, source), np.ones(len(items), dtype=np.int64)
    return Gathered(workers, items, ones, rules, before, index, tuple(changed), here, neighbours.shard), here


def told(previous: Previous) -> str:
    """What there was, in words."""
    if not previous.workers:
        return "there is no plan before this one"
    return f"read the plan before: {len(previous):,} partitions on {len(previous.workers)} workers ({previous.source})"


def tables_of(spec: PartitionPlanSpec) -> list[tuple[str, Table]]:
    """Every table that the plan names."""
    found: list[tuple[str, Table]] = [("partitions", spec.partitions), ("workers", spec.workers)]
    return found if isinstance(spec.previous, str) else [*found, ("previous", spec.previous)]


def only_for_spark(spec: PartitionPlanSpec) -> bool:
    """Whether some table is of a kind that this process does not read."""
    return any(table.format not in LOCAL_FORMATS or "://" in (table.path or "") for _, table in tables_of(spec))


def _local_only(name: str, table: Table) -> None:
    if table.format not in LOCAL_FORMATS:
        msg = (
            f"{name}: format {table.format} is read by Spark, {' and '.join(LOCAL_FORMATS)} by every planner: "
            "pip install 'jetstream-reconciler[spark]'"
        )
        raise UsageError(msg)


def rules_for(spec: PartitionPlanSpec, weight: int) -> PlanningRules:
    """What the plan has to keep to, for partitions of so much weight."""
    balance = spec.balance
    budget = None if balance.max_moved is None else weight * ppm(balance.max_moved) // 1_000_000
    return PlanningRules(ppm(balance.trigger), ppm(balance.target), balance.fill_new == "average", budget, spec.zones)


def _previous(plan: PlanFile, output: Path, index: Index, changed: list[str]) -> Previous:
    given = plan.spec.previous
    if given == "none":
        return NOTHING
    if given == "auto":
        return read_previous(output, index, changed)
    _local_only("previous", given)
    return read_earlier(
        open_table(plan, "previous", given), (given.columns.subject or "subject", given.columns.worker or "worker")
    )


def _homes(partitions: Partitions, workers: Workers, previous: Previous) -> tuple[Ranks, pa.Array]:
    """The rank of each partition's worker before, and its name."""
    if not len(previous):
        return np.full(len(partitions), NEW, dtype=np.int32), pa.nulls(len(partitions), pa.string())
    source = previous.worker_of(partitions.subject)
    ranks = pc.index_in(source, value_set=pa.array(workers.names, pa.string()))
    home: Ranks = pc.fill_null(ranks, ABSENT).to_numpy(zero_copy_only=False).astype(np.int32)
    home[source.is_null().to_numpy(zero_copy_only=False)] = NEW
    return home, source
