"""The process that a session of Spark lives in while it is measured: what nobody can do without, and the planner, in turns.

    python -m tools.bench.partitions.spark_process DIRECTORY ROUNDS MEMORY

Prints what it found as JSON. The first plans are those of a virtual machine that has seen smaller ones already.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from reconciler.partitions.spark.library import PlannedTables, plan_partitions
from reconciler.partitions.spark.session import SparkOptions, open_session
from tools.bench.partitions.processes import processor_seconds

_PATIENCE = 600.0
"""Seconds for Spark to notice that nobody needs a plan any more."""
_SPEC = {"pool": "pool", "stream": "DC", "maxSubjects": 10_000_000}


class Turns:
    """The tables of one directory, planned and not planned."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark, self.directory = spark, directory
        self.workers = self._table("before-workers").count()
        self.report: dict[str, Any] = {}

    def plain_cold(self) -> None:
        """Read, by subject, by worker and sorted, written."""
        self._plain(self._table("before").repartition("subject"))

    def plain_rebalance(self) -> None:
        """The same, with the earlier plan; both tables are shuffled, as with tables too large to be sent to every executor."""
        before = self._table("assignment").select("subject", "unit")
        self._plain(self._table("after").join(before.hint("merge"), "subject", "left"))

    def cold(self) -> None:
        """A plan from nothing; the next ones begin with it."""
        self._written(plan_partitions(self._table("before"), self._table("before-workers"), None, _SPEC), "assignment")

    def rebalance(self) -> None:
        """A plan after a day."""
        plan = plan_partitions(self._table("after"), self._table("after-workers"), self._table("assignment"), _SPEC)
        self._written(plan, "later")
        self._write(plan.moves, "moves")
        self.report = plan.report

    def _plain(self, rows: DataFrame) -> None:
        number = F.expr(f"pmod(xxhash64(subject), {self.workers})")
        named = rows.withColumn("worker", F.concat(F.lit("worker-"), F.lpad(number.cast("string"), 5, "0")))
        self._write(_by_worker(named), "plain")

    def _written(self, plan: PlannedTables, name: str) -> None:
        self._write(_by_worker(plan.assignment), name)

    def _table(self, name: str) -> DataFrame:
        return self.spark.read.parquet(self._path(name))

    def _write(self, rows: DataFrame, name: str) -> None:
        rows.write.mode("overwrite").parquet(self._path(name))

    def _path(self, name: str) -> str:
        return f"file://{self.directory}/{name}.parquet"


def _by_worker(rows: DataFrame) -> DataFrame:
    return rows.repartition("worker").sortWithinPartitions("worker", "subject")


def main(directory: Path, rounds: int, memory: str) -> dict[str, Any]:
    """Seconds and seconds of processors, of every turn."""
    local = {"spark.driver.memory": memory, "spark.local.dir": str(directory / "local"), "spark.ui.showConsoleProgress": "false"}
    spark, _ = open_session(SparkOptions(master="local[2]", conf=local))
    warming = Turns(spark, directory / "small")
    for work in (warming.plain_cold, warming.cold, warming.plain_rebalance, warming.rebalance):
        work()
    turns = Turns(spark, directory)
    found: dict[str, list[tuple[float, float]]] = {}
    for _ in range(rounds):
        for work in (turns.plain_cold, turns.cold, turns.plain_rebalance, turns.rebalance):
            _forgotten(spark)
            found.setdefault(work.__name__, []).append(_taken(work))
    spark.stop()
    return {"taken": found, "report": turns.report}


def _forgotten(spark: SparkSession) -> None:
    """Nothing that an earlier turn kept is in the way: a command plans once, and begins with memory that is empty."""
    until = time.monotonic() + _PATIENCE
    while True:
        gc.collect()
        spark._jvm.System.gc()  # noqa: SLF001 - Python has no name for it
        if not spark.sparkContext._jsc.getPersistentRDDs():  # noqa: SLF001
            return
        if time.monotonic() > until:
            msg = f"what a plan kept is still there after {_PATIENCE:.0f} seconds"
            raise RuntimeError(msg)
        time.sleep(0.5)


def _taken(work: Callable[[], None]) -> tuple[float, float]:
    started, processor = time.perf_counter(), processor_seconds()
    work()
    return time.perf_counter() - started, processor_seconds() - processor


if __name__ == "__main__":
    sys.stdout.buffer.write(orjson.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])))
