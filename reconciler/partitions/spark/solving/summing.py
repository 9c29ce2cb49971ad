"""A finished plan as sums: what has the same worker and reason is one row, giants are rows of their own.

That is all that reports and gates ask for, and no more rows than three for each worker and reason.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from reconciler.partitions.planning.keys import Keys
from reconciler.partitions.planning.model import ABSENT, NEW, Ints, Items, MoveReason
from reconciler.partitions.planning.planner import PartitionPlan
from reconciler.partitions.spark.columns.frames import TEXT, among, rows_of, small
from reconciler.partitions.spark.planner import PlannedPartitions, PlanSummary
from reconciler.partitions.spark.solving.families import filters
from reconciler.partitions.spark.solving.items import item_key

_NUMBERS = ("count", "filters", "w")


def summed(planned: PlannedPartitions) -> tuple[Items, PartitionPlan, Ints]:
    """The only problem of a plan as the local planner would have it row by row, and how many partitions each row is."""
    (outcome,) = planned.outcomes
    giants = _giants(planned.rows, outcome)
    sums = {(row["place"], row["reason"], row["stays"]): np.array([row[name] for name in _NUMBERS]) for row in planned.sums}
    for giant in giants:
        sums[giant["place"], giant["reason"], giant["stays"]] -= [giant[name] for name in _NUMBERS]
    rows = [(row["subject"], row["place"], row["reason"], row["stays"], *(row[name] for name in _NUMBERS)) for row in giants]
    rows += [("", *of, *several.tolist()) for of, several in sums.items()]
    place, reason, stays, count, used, weight = np.array([row[1:] for row in rows], dtype=np.int64).reshape(-1, 6).T
    home = np.where(stays, place, np.where(reason == MoveReason.NEW, NEW, ABSENT)).astype(np.int32)
    nowhere = np.full(len(rows), -1, dtype=np.int32)
    plan = PartitionPlan(
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
    return Items(Keys([row[0] for row in rows]), weight, used, home, nowhere, nowhere), plan, count


def _giants(rows: DataFrame, outcome: PlanSummary) -> list[dict[str, Any]]:
    if not outcome.giants:
        return []
    keys = small(rows.sparkSession, {"key": (TEXT, list(outcome.giants))})
    at_hosts = among(rows, "place", outcome.hosts).withColumn("key", item_key()).join(keys, "key", "left_semi")
    of_one = (F.lit(1).alias("count"), filters(rows).alias("filters"), (F.col("place") == F.col("home")).alias("stays"))
    return rows_of(at_hosts.select("subject", "place", "reason", "w", *of_one))
