"""A plan file, planned by Spark: what comes back is what the local planner would have said, row by row.

Tables are read by the executors; workers, index, earlier manifests and everything below the output by this process alone.

Invariant: nothing is planned before all of it is known to be right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from reconciler.errors import ReconcilerError, UsageError
from reconciler.partitions.gathering import Gathered, before, output_of, rules_for, tables_of
from reconciler.partitions.output.index import Index, edited, read_index
from reconciler.partitions.output.previous import read_previous
from reconciler.partitions.plan_file import PlanFile
from reconciler.partitions.planning.keys import Keys
from reconciler.partitions.planning.model import ABSENT, Items, Workers
from reconciler.partitions.planning.planner import Plan, check
from reconciler.partitions.pools import look_around
from reconciler.partitions.reading.earlier import read_earlier
from reconciler.partitions.reading.inputs import NOTHING, Partitions, Previous
from reconciler.partitions.reading.partitions import used_columns
from reconciler.partitions.reading.tables import LOCAL_FORMATS, TableFiles, open_table
from reconciler.partitions.reading.workers import read_workers, with_fresh
from reconciler.partitions.spark.checking import Checked, check_partitions
from reconciler.partitions.spark.frames import sent
from reconciler.partitions.spark.planner import Outcome, Problem
from reconciler.partitions.spark.planner import plan as plan_rows
from reconciler.partitions.spark.session import SparkOptions, explained, failed, not_started, open_session
from reconciler.partitions.spark.tables import BROKEN, Source, java_error
from reconciler.partitions.spec import Table

Lap = Callable[[str, str], None]
_Number = TypeVar("_Number", bound=np.generic)


def planned_by_spark(plan: PlanFile, options: SparkOptions, lap: Lap) -> tuple[Gathered, Plan]:
    """Reads, checks and plans; raises InvalidInput, Refused or CapExceeded."""
    try:
        spark, ours = open_session(options)
    except PySparkException as error:
        raise ReconcilerError(not_started(error, options)) from error
    lap("session", f"Spark {spark.version} is ready")
    try:
        return _planned(plan, Source(spark, plan, options.shared_filesystem), lap)
    except (PySparkException, java_error()) as error:
        known = explained(error, plan.spec.partitions.format, spark)
        raise known or ReconcilerError(failed(error, options)) from error
    finally:
        if ours:
            spark.stop()


def _planned(plan: PlanFile, source: Source, lap: Lap) -> tuple[Gathered, Plan]:
    spec, output = plan.spec, output_of(plan)
    for name, table in tables_of(spec):
        if not _read_here(name, table):
            source.need_shared(name, table)
    neighbours = look_around(plan)
    found = read_workers(_small_table(plan, source, "workers", spec.workers), spec)
    index = read_index(output, spec.pool)
    changed = edited(output, index)
    previous = _previous(plan, source, index, changed)
    workers = with_fresh(found, previous.workers, previous.filling)
    if spec.families or previous.families:
        msg = "families are planned in this process only, so far: --engine local, with spec.localRows raised where that is needed"
        raise UsageError(msg)
    lap("previous", before(previous))
    frame = source.open("partitions", spec.partitions)
    columns = tuple(column for column in frame.columns if column != BROKEN)
    used = used_columns(TableFiles(plan, "partitions", spec.partitions, (), columns), spec)
    checked = check_partitions(frame, used, spec, found, _earlier(source.spark, workers, previous))
    lap("read", f"read {checked.count:,} partitions and {len(workers)} workers")
    rules = rules_for(spec, checked.weight)
    made = plan_rows(checked.rows, [Problem(workers, rules)], units=checked.units)
    (outcome,) = made.outcomes
    if outcome.error is not None:
        raise outcome.error
    lap("plan", "planned")
    columns_of = made.rows.select("subject", "unit", "w", "home", "pin", "zone", "place", "reason").toArrow().combine_chunks()
    lap("fetch", "fetched the plan")
    partitions = _partitions(columns_of, checked)
    neighbours.refuse_collisions(partitions.filter)
    source_of = previous.worker.take(pc.index_in(partitions.subject, value_set=previous.subject))
    home = _ints(columns_of, "home", np.int32)
    items = Items(Keys(partitions.subject), partitions.weight, partitions.filters, home, partitions.pin, partitions.zone)
    gathered = Gathered(partitions, workers, items, rules, previous, source_of, index, tuple(changed), neighbours.shard)
    result = _plan(columns_of, outcome)
    check(items, workers, rules, result, partitions.unit)
    return gathered, result


def _read_here(name: str, table: Table) -> bool:
    """Whether this process reads a table without Spark."""
    return name != "partitions" and table.format in LOCAL_FORMATS and table.path is not None and "://" not in table.path


def _small_table(plan: PlanFile, source: Source, name: str, table: Table) -> TableFiles:
    """Read by this process, where it can."""
    return open_table(plan, name, table) if _read_here(name, table) else source.collected(name, table)


def _previous(plan: PlanFile, source: Source, index: Index, changed: list[str]) -> Previous:
    given = plan.spec.previous
    if given == "none":
        return NOTHING
    if given == "auto":
        return read_previous(output_of(plan), index, changed)
    names = (given.columns.subject or "subject", given.columns.worker or "worker")
    return read_earlier(_small_table(plan, source, "previous", given), names)


def _earlier(spark: SparkSession, workers: Workers, previous: Previous) -> DataFrame | None:
    """Who had what, as ranks."""
    if not len(previous):
        return None
    ranks = pc.index_in(previous.worker, value_set=pa.array(workers.names, pa.string()))
    table = pa.table({"subject": previous.subject, "home": pc.fill_null(ranks, ABSENT).cast(pa.int32())})
    return sent(spark, table)


def _partitions(columns: pa.Table, checked: Checked) -> Partitions:
    unit = _column(columns, "unit") if checked.units else None
    pin, zone = _ints(columns, "pin", np.int32), _ints(columns, "zone", np.int32)
    return Partitions(_column(columns, "subject"), _ints(columns, "w", np.int64), pin, zone, unit)


def _plan(columns: pa.Table, outcome: Outcome) -> Plan:
    giants = pa.array(outcome.giants, pa.string())
    unit, subject = _column(columns, "unit"), _column(columns, "subject")
    key = pc.coalesce(pc.binary_join_element_wise(pa.scalar(" "), unit, "", null_handling="emit_null"), subject)
    return Plan(
        _ints(columns, "place", np.int32),
        _ints(columns, "reason", np.int8),
        dict(outcome.share),
        np.flatnonzero(pc.is_in(key, value_set=giants).to_numpy(zero_copy_only=False)).astype(np.int32),
        outcome.hosts,
        outcome.bounds,
        outcome.held_by,
        outcome.waiting,
        outcome.filling,
    )


def _column(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name).combine_chunks()
    array = (
        column
        if isinstance(column, pa.Array)
        else pa.concat_arrays(column.chunks)
        if column.num_chunks
        else pa.array([], pa.string())
    )
    return array.cast(pa.string())


def _ints(table: pa.Table, name: str, kind: type[_Number]) -> npt.NDArray[_Number]:
    found: npt.NDArray[_Number] = table.column(name).to_numpy().astype(kind)
    return found
