"""A plan file, planned by Spark: what comes back is what the local planner would have said, row by row.

Tables are read by the executors; workers, index, earlier manifests and everything below the output by this process alone.

Invariant: nothing is planned before all of it is known to be right, and never more than a slice of the plan is in this process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from reconciler.errors import ReconcilerError
from reconciler.partitions.families import Family, covering
from reconciler.partitions.gathering import Before, Gathered, output_of, rules_for, tables_of, told
from reconciler.partitions.output.index import Index, edited, read_index
from reconciler.partitions.output.previous import read_previous
from reconciler.partitions.plan_file import PlanFile
from reconciler.partitions.planning.model import ABSENT, Workers
from reconciler.partitions.planning.planner import PartitionPlan
from reconciler.partitions.pools import look_around
from reconciler.partitions.reading.earlier import read_earlier
from reconciler.partitions.reading.inputs import NOTHING, Previous
from reconciler.partitions.reading.partitions import used_columns
from reconciler.partitions.reading.tables import LOCAL_FORMATS, TableFiles, open_table
from reconciler.partitions.reading.workers import read_workers, with_fresh
from reconciler.partitions.spark.columns.checking import Earlier, check_partitions
from reconciler.partitions.spark.columns.frames import sent
from reconciler.partitions.spark.columns.rows import Gone, There
from reconciler.partitions.spark.columns.tables import BROKEN, TableSource
from reconciler.partitions.spark.ending import alive, answers, stop
from reconciler.partitions.spark.planner import plan as plan_rows
from reconciler.partitions.spark.progress import Tell, watched
from reconciler.partitions.spark.session import SparkOptions, explained, failed, not_started, open_session
from reconciler.partitions.spark.solving.colliding import refuse_collisions
from reconciler.partitions.spark.solving.problems import PoolProblem
from reconciler.partitions.spark.solving.summing import summed
from reconciler.partitions.spec import Table

Lap = Callable[[str, str], None]


@contextmanager
def planned_by_spark(
    plan: PlanFile, options: SparkOptions, listening: tuple[Lap, Tell | None]
) -> Iterator[tuple[Gathered, PartitionPlan]]:
    """Reads, checks and plans; raises InvalidInput, Refused or CapExceeded. The rows are there as long as the block lasts."""
    lap, tell = listening
    try:
        spark, ours = open_session(options)
    except answers() as error:
        raise ReconcilerError(not_started(error, options)) from error
    lap("session", f"Spark {spark.version} is ready")
    try:
        with alive(options.conf), watched(spark, tell):
            yield _planned(plan, TableSource(spark, plan, options.shared_filesystem), lap)
    except answers() as error:
        known = explained(error, plan.spec.partitions.format, spark)
        raise known or ReconcilerError(failed(error, options)) from error
    finally:
        if ours:
            stop(spark)


def _planned(plan: PlanFile, source: TableSource, lap: Lap) -> tuple[Gathered, PartitionPlan]:
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
    lap("previous", told(previous))
    before = Before(len(previous), previous.workers, previous.source)
    earlier, gone = _earlier(source.spark, workers, previous)
    families_before = previous if previous.families else None
    del previous  # Spark has its rows now
    pa.default_memory_pool().release_unused()
    frame = source.open("partitions", spec.partitions)
    columns = tuple(column for column in frame.columns if column != BROKEN)
    used = used_columns(TableFiles(plan, "partitions", spec.partitions, (), columns), spec)
    checked = check_partitions(frame, used, spec, found, earlier)
    families = [Family(pattern) for pattern in spec.families]
    refuse_collisions(checked.rows, families, neighbours)
    if families_before is not None:
        before = replace(before, partitions=families_before.count(_column(checked.rows, "subject")))
    lap("read", f"read {checked.count:,} partitions and {len(workers)} workers")
    rules = rules_for(spec, checked.weight)
    made = plan_rows(checked.rows, [PoolProblem(workers, rules)], units=checked.units)
    (outcome,) = made.outcomes
    if outcome.error is not None:
        raise outcome.error
    items, sums, counts = summed(made)
    lap("plan", "planned")
    there = There(made, workers, gone, families, checked.units)
    return Gathered(workers, items, counts, rules, before, index, tuple(changed), there, neighbours.shard), sums


def _read_here(name: str, table: Table) -> bool:
    """Whether this process reads a table without Spark."""
    return name != "partitions" and table.format in LOCAL_FORMATS and table.path is not None and "://" not in table.path


def _small_table(plan: PlanFile, source: TableSource, name: str, table: Table) -> TableFiles:
    """Read by this process, where it can."""
    return open_table(plan, name, table) if _read_here(name, table) else source.collected(name, table)


def _previous(plan: PlanFile, source: TableSource, index: Index, changed: list[str]) -> Previous:
    given = plan.spec.previous
    if given == "none":
        return NOTHING
    if given == "auto":
        return read_previous(output_of(plan), index, changed)
    names = (given.columns.subject or "subject", given.columns.worker or "worker")
    return read_earlier(_small_table(plan, source, "previous", given), names)


def _earlier(spark: SparkSession, workers: Workers, previous: Previous) -> tuple[Earlier | None, Gone | None]:
    """Who had what, as ranks: subjects, and filters with wildcards; and what those had who are gone."""
    if not len(previous):
        return None, None
    filters = pa.array(previous.families.keys(), pa.string())
    more = pc.invert(pc.is_in(filters, value_set=previous.subject))
    of_families = pa.array(previous.families.values(), pa.string()).filter(more)
    gone = sorted(previous.workers - {*workers.names})
    names = pa.array([*workers.names, *gone], pa.string())
    rank = pc.index_in(pa.chunked_array([previous.worker, of_families]), value_set=names)
    subject = pa.chunked_array([previous.subject, filters.filter(more)])
    rows = sent(spark, pa.table({"subject": subject, "rank": rank}))
    there = F.when(F.col("rank") < len(workers), F.col("rank")).otherwise(F.lit(ABSENT))
    families = covering(previous.families)
    was = rows.select("subject", (F.col("rank") - len(workers)).alias("was")).filter("was >= 0")
    return Earlier(rows.select("subject", there.alias("home")), families), Gone(was, gone, families) if gone else None


def _column(rows: DataFrame, name: str) -> pa.Array:
    return rows.select(name).toArrow().column(name).combine_chunks().cast(pa.string())
