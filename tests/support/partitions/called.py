"""The planner as a library, called on a Connect server: prints what came of it as one JSON document.

python -m tests.support.partitions.called sc://127.0.0.1:15002
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def called(partitions: DataFrame, workers: DataFrame, previous: DataFrame | None) -> dict[str, Any]:
    """Rows in a fixed order, and the report."""
    from reconciler.partitions.spark.library import plan_partitions  # noqa: PLC0415 - only where pyspark is

    plan = plan_partitions(partitions, workers, previous, {"pool": "processor", "stream": "DC"})
    rows = {"assignment": plan.assignment, "moves": plan.moves}
    found = {name: sorted(frame.toArrow().to_pylist(), key=lambda row: str(row["subject"])) for name, frame in rows.items()}
    return found | {"report": plan.report}


if __name__ == "__main__":
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
    json.dump(called(*(spark.table(f"lake.nats.{name}") for name in ("partitions", "workers", "previous"))), sys.stdout)
    spark.stop()
