"""A plan as a function of DataFrames: for notebooks, and for jobs that keep their tables elsewhere.

    from reconciler.partitions.spark.library import plan_partitions
    plan = plan_partitions(partitions, workers, previous, {"pool": "processor", "stream": "DC"})
    plan.assignment.write.mode("overwrite").saveAsTable("processor_assignment")

Invariant: nothing is written, and only sums per worker, heavy partitions and the table of workers reach the driver.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from reconciler.errors import InvalidInput, Problem, Refused
from reconciler.manifests.findings import from_validation
from reconciler.partitions import report as reports
from reconciler.partitions.gathering import rules_for
from reconciler.partitions.plan_file import PlanFile
from reconciler.partitions.planning.keys import Keys
from reconciler.partitions.planning.model import ABSENT, NEW, Items, Reason, Workers
from reconciler.partitions.planning.planner import Plan as LocalPlan
from reconciler.partitions.reading.partitions import used_columns
from reconciler.partitions.reading.tables import TableFiles
from reconciler.partitions.reading.workers import read_workers, with_fresh
from reconciler.partitions.spark.checking import Checked, check_partitions
from reconciler.partitions.spark.conditions import text_of
from reconciler.partitions.spark.frames import INT, TEXT, among, rows_of, small
from reconciler.partitions.spark.items import item_key
from reconciler.partitions.spark.planner import Outcome, Planned, plan
from reconciler.partitions.spark.planner import Problem as Pool
from reconciler.partitions.spark.tables import Collected
from reconciler.partitions.spec import PartitionPlanSpec, Table


@dataclass(frozen=True, slots=True)
class Plan:
    """What became of the tables."""

    assignment: DataFrame
    """subject, worker, weight (in millionths), unit."""
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
) -> Plan:
    """Plans; raises InvalidInput for what is wrong with the tables, Refused when the workers cannot hold so many subjects.

    Args:
        partitions: Columns as in a plan.yaml: subject, weight, and unit, zone, pin where there are some.
        workers: worker, and capacity, maxSubjects, zone, state where there are some.
        previous: subject and worker of the plan before; None plans from nothing.
        spec: The `spec` of a plan.yaml; its tables and its output are not needed.
    """
    rules_of = spec if isinstance(spec, PartitionPlanSpec) else _spec(spec)
    found = read_workers(_frame("workers", rules_of.workers, workers), rules_of)
    before, known = _before(previous)
    around = with_fresh(found, known, frozenset())
    used = used_columns(_frame("partitions", rules_of.partitions, partitions), rules_of)
    earlier = None if before is None else _homes(before, around)
    checked = check_partitions(partitions, used, rules_of, found, earlier)
    made = plan(checked.rows, [Pool(around, rules_for(rules_of, checked.weight))], units=checked.units)
    (outcome,) = made.outcomes
    if outcome.error is not None:
        raise Refused((f"maxSubjects: {outcome.error}",)) from outcome.error
    named = made.rows.join(
        small(partitions.sparkSession, {"place": (INT, list(range(len(around)))), "worker": (TEXT, list(around.names))}), "place"
    )
    assignment = named.select("subject", "worker", F.col("w").alias("weight"), "unit")
    moves = _moves(named, around, before)
    return Plan(assignment, moves, _report(rules_of, made, around, checked))


def _spec(given: Mapping[str, Any]) -> PartitionPlanSpec:
    nowhere = {"format": "dataframe", "path": "-"}
    whole = {"output": "nowhere", **given}
    for name in ("partitions", "workers"):
        whole[name] = {**nowhere, **whole.get(name, {})}
    try:
        return PartitionPlanSpec.model_validate(whole)
    except ValidationError as error:
        found = from_validation(error, PartitionPlanSpec, ())
        problems = (Problem("spec", 1, 1, one.code, f"{'.'.join(map(str, one.path))}: {one.message}") for one in found)
        raise InvalidInput(tuple(problems)) from error


def _frame(name: str, table: Table, frame: DataFrame) -> TableFiles:
    nobody: Any = PlanFile(name, Path(), None, None)  # type: ignore[arg-type]  # no file: `problem` does not ask it
    return _Frame(nobody, name, table, (), tuple(frame.columns), frame)


def _before(previous: DataFrame | None) -> tuple[DataFrame | None, frozenset[str]]:
    """The earlier plan, and its workers."""
    if previous is None:
        return None, frozenset()
    missing = [name for name in ("subject", "worker") if name not in previous.columns]
    if missing:
        raise InvalidInput((Problem("previous", 1, 1, "unknown-column", f"there is no column {', '.join(missing)}"),))
    clean = previous.select(*(text_of(previous, name, "previous").alias(name) for name in ("subject", "worker")))
    workers = frozenset(row["worker"] for row in rows_of(clean.select("worker").distinct()))
    return clean, workers


def _homes(before: DataFrame, workers: Workers) -> DataFrame:
    ranks = small(before.sparkSession, {"worker": (TEXT, list(workers.names)), "home": (INT, list(range(len(workers))))})
    known = before.join(ranks, "worker", "left")
    return known.select("subject", F.coalesce("home", F.lit(ABSENT)).cast("int").alias("home"))


def _moves(named: DataFrame, workers: Workers, before: DataFrame | None) -> DataFrame:
    """What is elsewhere than before; the earlier plan is asked only for workers that are not in the table any more."""
    spark = named.sparkSession
    names = small(spark, {"home": (INT, list(range(len(workers)))), "known": (TEXT, list(workers.names))})
    moved = named.filter((F.col("place") != F.col("home")) | (F.col("home") == NEW)).join(names, "home", "left")
    if before is not None:
        gone = before.join(names.withColumnRenamed("known", "worker"), "worker", "left_anti")
        moved = moved.join(gone.withColumnRenamed("worker", "gone"), "subject", "left")
        moved = moved.withColumn("known", F.coalesce("known", "gone"))
    why = F.element_at(F.array(*(F.lit(reason.name.lower()) for reason in Reason)), F.col("reason") + 1)
    return moved.select(
        "subject", F.col("known").alias("from"), F.col("worker").alias("to"), F.col("w").alias("weight"), why.alias("reason")
    )


def _report(spec: PartitionPlanSpec, planned: Planned, workers: Workers, checked: Checked) -> dict[str, Any]:
    """From sums by worker and reason, and the giants one by one."""
    (outcome,) = planned.outcomes
    giants = _giants(planned.rows, outcome)
    sums = {(row["place"], row["reason"], row["stays"]): [row["count"], row["w"]] for row in planned.sums}
    for giant in giants:
        rest = sums[giant["place"], giant["reason"], giant["place"] == giant["home"]]
        rest[0] -= 1
        rest[1] -= giant["w"]
    rows = [(row["subject"], row["place"], row["reason"], row["place"] == row["home"], 1, row["w"]) for row in giants]
    rows += [("", *of, count, weight) for of, (count, weight) in sums.items()]
    place, reason, stays, count, weight = np.array([row[1:] for row in rows], dtype=np.int64).reshape(-1, 5).T
    home = np.where(stays, place, ABSENT).astype(np.int32)
    nowhere = np.full(len(rows), -1, dtype=np.int32)
    items = Items(Keys([row[0] for row in rows]), weight, count, home, nowhere, nowhere)
    made = LocalPlan(
        place.astype(np.int32),
        reason.astype(np.int8),
        dict(outcome.share),
        np.arange(len(giants), dtype=np.int32),
        outcome.hosts,
        outcome.bounds,
        outcome.held_by,
        outcome.waiting,
        outcome.filling,
    )
    filling = [workers.names[rank] for rank in sorted(outcome.filling)]
    more = {"staged": {"waiting": reports.in_units(outcome.waiting), "filling": filling}, "inputs": {"partitions": checked.count}}
    return reports.document(spec.pool, reports.pool_part(items, workers, made), more)


def _giants(rows: DataFrame, outcome: Outcome) -> list[dict[str, Any]]:
    if not outcome.giants:
        return []
    keys = small(rows.sparkSession, {"key": (TEXT, list(outcome.giants))})
    at_hosts = among(rows, "place", outcome.hosts).withColumn("key", item_key())
    return rows_of(at_hosts.join(keys, "key", "left_semi").select("subject", "home", "place", "reason", "w"))
