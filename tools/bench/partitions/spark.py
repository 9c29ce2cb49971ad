"""The planner on Spark beside the work that no planner on Spark can do without, in one session and in turns.

That work is: reading the partitions (for a rebalance joined with the earlier plan), one shuffle by subject, one by worker with a
sort, and writing the rows. The planner writes the same rows, and after a rebalance the moves as well.

What is compared is processor time: two turns of a minute each do not find a machine that is equally busy with other things.

The session has a process of its own (`spark_process`), and so has the command, because memory is that of a whole tree of
processes. Without Java or pyspark, a line says what is missing.
"""

from __future__ import annotations

import importlib.util
import os
import statistics
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reconciler.errors import UsageError
from reconciler.partitions.output.render import ROWS
from reconciler.partitions.planning.model import Workers
from reconciler.partitions.spark.session import need_java
from tools.bench.measure import Measure, rounded, tell
from tools.bench.partitions.cases import UNIT, day, items
from tools.bench.partitions.processes import Ended, watched
from tools.bench.partitions.quality import LOAD_LIMIT, MOVES_LIMIT
from tools.bench.partitions.speed import LIMITED_AT, MEMORY_LIMIT, Planned, manifests

REBALANCE_LIMIT, COLD_LIMIT = 3.5, 4.0
"""Why these: docs/decisions/0014-what-a-plan-on-spark-costs.md."""
_SMALL = (20_000, 40)
"""What a session plans first, so that it is warm."""
_HEAP = "2g"
_PLAN = """apiVersion: reconciler/v1
kind: PartitionPlan
metadata: {{name: pool}}
spec:
  pool: pool
  stream: DC
  partitions: {{format: parquet, path: {side}.parquet}}
  workers: {{format: parquet, path: {side}-workers.parquet}}
  output: manifests
  maxSubjects: 10000000
"""


def on_spark(scratch: Path, sizes: tuple[tuple[int, int], ...], rounds: int) -> Iterator[Measure]:
    """A session and the command, for each size."""
    lack = missing()
    if lack:
        yield Measure(measure="planning with Spark", value=0.0, unit="s", ratio=0.0, detail={"skipped": lack})
        return
    for partitions, workers in sizes:
        name = f"{partitions:,} partitions on {workers:,} workers"
        here = scratch / str(partitions)
        tell(f"planning {name} with Spark, beside its plain work, {rounds} times")
        around = _tables(here, partitions, workers)
        _tables(here / "small", *_SMALL)
        yield from _session(here, name, rounds, limited=partitions >= LIMITED_AT)
        if partitions == sizes[0][0]:
            tell("writing the manifests of a plan made by Spark")
            rows = _rows(here, around)
            planned = Planned(rows, partial(_in_order, rows), around)
            yield manifests(here / "manifests", f"{partitions:,} partitions planned by Spark", planned, rounds)
        tell(f"planning {name} with Spark by the command")
        yield from _command(here, name)


def missing() -> str:
    """What Spark needs and this machine lacks."""
    if importlib.util.find_spec("pyspark") is None:
        return "pyspark is not installed: make spark"
    try:
        need_java()
    except UsageError as error:
        return str(error)
    return ""


def _tables(directory: Path, partitions: int, workers: int) -> Workers:
    """A day, as files; the workers at its end."""
    directory.mkdir(parents=True)
    case = day(partitions, workers)
    for name, side in (("before", case.before), ("after", case.after)):
        subjects = items(side.weights).keys.column
        rows = pa.table({"subject": subjects, "weight": pa.array(side.weights / UNIT)})
        pq.write_table(rows, directory / f"{name}.parquet", row_group_size=LIMITED_AT)
        pq.write_table(_workers(side.workers), directory / f"{name}-workers.parquet")
    return case.after.workers


def _workers(found: Workers) -> pa.Table:
    state = ["active" if active else "draining" for active in found.active]
    return pa.table({"worker": found.names, "capacity": [capacity / UNIT for capacity in found.capacity], "state": state})


def _session(directory: Path, name: str, rounds: int, *, limited: bool) -> Iterator[Measure]:
    module = "tools.bench.partitions.spark_process"
    ended = watched([sys.executable, "-m", module, str(directory), str(rounds), _HEAP])
    found: dict[str, Any] = orjson.loads(ended.output)
    for what, limit in (("cold", COLD_LIMIT), ("rebalance", REBALANCE_LIMIT)):
        ours, plain = found["taken"][what], found["taken"][f"plain_{what}"]
        of_seconds, ratios = ([one[at] / other[at] for one, other in zip(ours, plain, strict=True)] for at in (0, 1))
        ratio = statistics.median(ratios)
        yield Measure(
            measure=f"planning with Spark, {name}, {what}, by plain work",
            value=rounded(statistics.median(seconds for seconds, _ in ours)),
            unit="s",
            ratio=rounded(ratio),
            limit=limit if limited else None,
            ok=ratio <= limit or not limited,
            detail={
                "plain": rounded(statistics.median(seconds for seconds, _ in plain)),
                "ratio_of_seconds": rounded(statistics.median(of_seconds)),
                "processor_seconds": rounded(statistics.median(seconds for _, seconds in ours)),
                "plain_processor_seconds": rounded(statistics.median(seconds for _, seconds in plain)),
                "ratios": [rounded(min(ratios)), rounded(max(ratios))],
            },
        )
    yield from _quality(found["report"]["pools"]["pool"], name)
    yield _memory(f"a session of Spark with {name}", ended.peak)


def _quality(part: dict[str, Any], name: str) -> Iterator[Measure]:
    moved, load = part["moved"], part["load"]
    yield Measure(
        measure=f"partition moves, by Spark, {name}, a day of changes",
        value=rounded(moved["fraction"]),
        unit="of the weight",
        ratio=round(moved["ratio"], 4),
        limit=MOVES_LIMIT,
        ok=moved["ratio"] <= MOVES_LIMIT,
        detail={"moved_count": moved["count"], "bound": moved["lowerBound"]},
    )
    yield Measure(
        measure=f"partition load, by Spark, {name}, a day of changes",
        value=round(load["maxOverLevel"], 4),
        unit="of the share",
        ratio=round(load["maxOverLevel"], 4),
        limit=LOAD_LIMIT,
        ok=load["maxOverLevel"] <= LOAD_LIMIT,
        detail={"giants": len(load["giants"]), "held_by": part["heldBy"]},
    )


def _rows(directory: Path, around: Workers) -> pa.Table:
    """A plan that Spark has made, in the order of its partitions."""
    found = pq.read_table(directory / "later.parquet").sort_by("subject")
    place = pc.index_in(found.column("worker"), value_set=pa.array(around.names, pa.string()))
    columns = {name: found.column(name) for name in ("subject", "weight", "unit", "family")} | {"place": place}
    return pa.table({name: columns.get(name, pa.nulls(len(found), ROWS.field(name).type)) for name in ROWS.names}, schema=ROWS)


def _in_order(rows: pa.Table) -> pa.Table:
    """By worker and subject."""
    return rows.take(pc.sort_indices(rows, sort_keys=[("place", "ascending"), ("subject", "ascending")]))


def _command(directory: Path, name: str) -> Iterator[Measure]:
    """From tables to a tree of manifests, and after a day from that tree to the next."""
    plan = directory / "plan.yaml"
    for side, what in (("before", "cold"), ("after", "rebalance")):
        plan.write_text(_PLAN.format(side=side), encoding="utf-8")
        started = time.perf_counter()
        ended = _planned(directory, plan)
        yield Measure(
            measure=f"the command with Spark, {name}, {what}", value=rounded(time.perf_counter() - started), unit="s", ratio=0.0
        )
        yield _memory(f"the command with Spark, {name}, {what}", ended.peak)


def _planned(directory: Path, plan: Path) -> Ended:
    conf = {"spark.driver.memory": _HEAP, "spark.local.dir": str(directory / "local")}
    settings = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    command = [sys.executable, "-m", "reconciler", "partitions", "plan", "-c", str(plan), "--engine", "spark"]
    return watched([*command, "--master", "local[2]", *settings], {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"})


def _memory(name: str, peak: float) -> Measure:
    return Measure(
        measure=f"memory of {name}",
        value=rounded(peak),
        unit="MB",
        ratio=rounded(peak / MEMORY_LIMIT),
        limit=MEMORY_LIMIT,
        ok=peak <= MEMORY_LIMIT,
    )
