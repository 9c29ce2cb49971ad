"""A plan as a function of DataFrames: for notebooks, and for jobs that keep their tables elsewhere.

    from reconciler.partitions.spark.library import plan_partitions
    plan = plan_partitions(partitions, workers, previous, {"pool": "processor", "stream": "DC"})
    plan.assignment.write.mode("overwrite").saveAsTable("processor_assignment")

Invariant: nothing is written, and only sums per worker, heavy partitions and the table of workers reach the driver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from reconciler.errors import InvalidInput, Problem, Refused
from reconciler.manifests.findings import from_validation
from reconciler.partitions import report as reports
from reconciler.partitions.families import Family, problems
from reconciler.partitions.gathering import rules_for
from reconciler.partitions.plan_file import PlanFile
from reconciler.partitions.planning.model import ABSENT, NEW, MoveReason, Workers
from reconciler.partitions.reading.partitions import used_columns
from reconciler.partitions.reading.tables import TableFiles
from reconciler.partitions.reading.workers import read_workers, with_fresh
from reconciler.partitions.spark.columns.checking import Checked, Earlier, check_partitions
from reconciler.partitions.spark.columns.conditions import text_of
from reconciler.partitions.spark.columns.frames import INT, TEXT, rows_of, small
from reconciler.partitions.spark.columns.tables import Collected
from reconciler.partitions.spark.planner import PlannedPartitions, plan
from reconciler.partitions.spark.solving.families import covering_all, filter_of, is_wild, told_by
from reconciler.partitions.spark.solving.problems import PoolProblem as Pool
from reconciler.partitions.spark.solving.summing import summed
from reconciler.partitions.spec import PartitionPlanSpec, Table


@dataclass(frozen=True, slots=True)
class PlannedTables:
    """What became of the tables."""

    assignment: DataFrame
    """subject, worker, weight (in millionths), unit, and family: the filter that a subject is read through, or null."""
    moves: DataFrame
    """subject, from, to, weight, reason: what is elsewhere than before, and what is new."""
    report: dict[str, Any]
    """As `_plan/report.json` has it, without what is about files and gates."""


@dataclass(frozen=True)
class _Frame(Collected):
    """A table that no file describes."""

    def problem(self, code: str, message: str, *path: str | int) -> Problem:
        """A fault, by the name of the table."""
        return Problem(self.name, 1, 1, code, ": ".join((".".join(map(str, path)), message)) if path else message)


def plan_partitions(
    partitions: DataFrame, workers: DataFrame, previous: DataFrame | None, spec: PartitionPlanSpec | Mapping[str, Any]
) -> PlannedTables:
    """Plans; raises InvalidInput for what is wrong with the tables, Refused when the workers cannot hold so many subjects.

    Args:
        partitions: Columns as in a plan.yaml: subject, weight, and unit, zone, pin where there are some.
        workers: worker, and capacity, maxSubjects, zone, state where there are some.
        previous: subject and worker of the plan before, and family where there are some; None plans from nothing.
        spec: The `spec` of a plan.yaml; its tables and its output are not needed. That no other pool reads what a family
            matches is not looked at: manifests are not known here.
    """
    rules_of = spec if isinstance(spec, PartitionPlanSpec) else _spec(spec)
    found = read_workers(_frame("workers", rules_of.workers, workers), rules_of)
    before, known, known_families = _before(previous)
    around = with_fresh(found, known, frozenset())
    used = used_columns(_frame("partitions", rules_of.partitions, partitions), rules_of)
    earlier = None if before is None else Earlier(_homes(before, around), known_families)
    checked = check_partitions(partitions, used, rules_of, found, earlier)
    made = plan(checked.rows, [Pool(around, rules_for(rules_of, checked.weight))], units=checked.units)
    (outcome,) = made.outcomes
    if outcome.error is not None:
        raise Refused((f"maxSubjects: {outcome.error}",)) from outcome.error
    named = made.rows.join(
        small(partitions.sparkSession, {"place": (INT, list(range(len(around)))), "worker": (TEXT, list(around.names))}), "place"
    )
    family = filter_of(F.col("subject"), [Family(pattern) for pattern in rules_of.families])
    assignment = named.select("subject", "worker", F.col("w").alias("weight"), "unit", family.alias("family"))
    moves = _moves(named, around, before, known_families)
    report = _report(rules_of, made, around, checked)
    report["pools"][rules_of.pool]["families"] = _families(assignment) if rules_of.families else {"count": 0, "partitions": 0}
    return PlannedTables(assignment, moves, report)


def _spec(given: Mapping[str, Any]) -> PartitionPlanSpec:
    nowhere = {"format": "dataframe", "path": "-"}
    whole = {"output": "nowhere", **given}
    for name in ("partitions", "workers"):
        whole[name] = {**nowhere, **whole.get(name, {})}
    try:
        spec = PartitionPlanSpec.model_validate(whole)
    except ValidationError as error:
        found = from_validation(error, PartitionPlanSpec, ())
        faults = (Problem("spec", 1, 1, one.code, f"{'.'.join(map(str, one.path))}: {one.message}") for one in found)
        raise InvalidInput(tuple(faults)) from error
    wrong = [(spec.families[place], message) for place, message in problems(spec.families)]
    if wrong:
        raise InvalidInput(tuple(Problem("spec", 1, 1, "bad-family", f"families: {one} {message}") for one, message in wrong))
    return spec


def _frame(name: str, table: Table, frame: DataFrame) -> TableFiles:
    nobody: Any = PlanFile(name, Path(), None, None)  # type: ignore[arg-type]  # no file: `problem` does not ask it
    return _Frame(nobody, name, table, (), tuple(frame.columns), frame)


def _before(previous: DataFrame | None) -> tuple[DataFrame | None, frozenset[str], Sequence[Family]]:
    """The earlier plan with the filters of its families, its workers, and which families those are."""
    if previous is None:
        return None, frozenset(), ()
    missing = [name for name in ("subject", "worker") if name not in previous.columns]
    if missing:
        raise InvalidInput((Problem("previous", 1, 1, "unknown-column", f"there is no column {', '.join(missing)}"),))
    family = text_of(previous, "family", "previous") if "family" in previous.columns else F.lit(None).cast("string")
    whole = previous.select(
        *(text_of(previous, name, "previous").alias(name) for name in ("subject", "worker")), family.alias("family")
    )
    clean = whole.select("subject", "worker")
    wild = F.count_if(is_wild(F.col("subject"))).alias("wild")
    known = rows_of(whole.groupBy("worker").agg(wild, F.count("family").alias("families")))
    if any(row["families"] for row in known):
        of_filters = whole.filter("family IS NOT NULL").select(F.col("family").alias("subject"), "worker").distinct()
        clean = clean.unionByName(of_filters.join(clean, "subject", "left_anti"))
    families = covering_all(clean) if any(row["wild"] or row["families"] for row in known) else ()
    return clean, frozenset(row["worker"] for row in known), families


def _homes(before: DataFrame, workers: Workers) -> DataFrame:
    ranks = small(before.sparkSession, {"worker": (TEXT, list(workers.names)), "home": (INT, list(range(len(workers))))})
    known = before.join(ranks, "worker", "left")
    return known.select("subject", F.coalesce("home", F.lit(ABSENT)).cast("int").alias("home"))


def _moves(named: DataFrame, workers: Workers, before: DataFrame | None, families: Sequence[Family]) -> DataFrame:
    """What is elsewhere than before; the earlier plan is asked only for workers that are not in the table any more."""
    spark = named.sparkSession
    names = small(spark, {"home": (INT, list(range(len(workers)))), "known": (TEXT, list(workers.names))})
    moved = named.filter((F.col("place") != F.col("home")) | (F.col("home") == NEW)).join(names, "home", "left")
    if before is not None:
        gone = before.join(names.withColumnRenamed("known", "worker"), "worker", "left_anti").withColumnRenamed("worker", "gone")
        moved = told_by(moved.join(gone, "subject", "left"), gone, families, "gone")
        moved = moved.withColumn("known", F.coalesce("known", "gone"))
    why = F.element_at(F.array(*(F.lit(reason.name.lower()) for reason in MoveReason)), F.col("reason") + 1)
    return moved.select(
        "subject", F.col("known").alias("from"), F.col("worker").alias("to"), F.col("w").alias("weight"), why.alias("reason")
    )


def _families(assignment: DataFrame) -> dict[str, int]:
    """How many there are, and of how many partitions."""
    (found,) = rows_of(assignment.agg(F.countDistinct("family").alias("count"), F.count("family").alias("partitions")))
    return found


def _report(spec: PartitionPlanSpec, planned: PlannedPartitions, workers: Workers, checked: Checked) -> dict[str, Any]:
    (outcome,) = planned.outcomes
    items, made, counts = summed(planned)
    filling = [workers.names[rank] for rank in sorted(outcome.filling)]
    more = {"staged": {"waiting": reports.in_units(outcome.waiting), "filling": filling}, "inputs": {"partitions": checked.count}}
    return reports.document(spec.pool, reports.pool_part(items, workers, made, counts), more)
