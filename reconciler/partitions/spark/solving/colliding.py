"""Filters of the plan that another pool of the stream has (`pools.Neighbours`): Spark looks for what may meet one of theirs.

Invariant: where nothing collides, nothing but the families of the plan reaches this process.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from reconciler.model.subjects import is_literal
from reconciler.partitions.families import Family
from reconciler.partitions.pools import OtherPools
from reconciler.partitions.spark.columns.frames import TEXT, small
from reconciler.partitions.spark.solving.families import filter_of, is_wild

_WILD = {"*": r"[^.]+", ">": r".+"}


def refuse_collisions(rows: DataFrame, families: Sequence[Family], neighbours: OtherPools) -> None:
    """Raises Refused when a filter of the plan meets one of theirs."""
    theirs = sorted({name for name, _ in neighbours.subjects})
    if not theirs:
        return
    literal = [name for name in theirs if is_literal(name)]
    of_theirs = small(rows.sparkSession, {"filter": (TEXT, literal), "theirs": (TEXT, literal)})
    meets = F.col("theirs").isNotNull() | is_wild(F.col("filter"))
    for wide in set(theirs) - set(literal):
        meets = meets | F.col("filter").rlike(_expression(wide))
    filters = rows.select(F.coalesce(filter_of(F.col("subject"), families), F.col("subject")).alias("filter"))
    found = filters.join(of_theirs, "filter", "left").filter(meets).select("filter").distinct()
    neighbours.refuse_collisions(found.toArrow().column("filter").combine_chunks().cast(pa.string()))


def _expression(wide: str) -> str:
    tokens = (_WILD.get(token) or re.escape(token) for token in wide.split("."))
    return rf"\A{re.escape('.').join(tokens)}\z"
