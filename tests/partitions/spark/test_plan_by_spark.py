"""`partitions plan --engine spark` on a desk of files: the same manifests, refusals and faults as without Spark."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.partitions.files import Desk
from tests.support.partitions.files import desk as made

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Desk:
    """100 equal partitions on four workers, planned by nobody yet."""
    return made(tmp_path, capsys)


def both(desk: Desk) -> None:
    """Plans with Spark and without, from the same earlier plan: what is written is the same."""
    before = desk.root / "before"
    if desk.output.exists():
        shutil.copytree(desk.output, before)
    desk("--engine", "local")
    local, tables = desk.manifests(), rows(desk)
    shutil.rmtree(desk.output)
    if before.exists():
        shutil.move(before, desk.output)
    desk("--engine", "spark")
    assert desk.manifests() == local
    assert rows(desk) == tables


def rows(desk: Desk) -> list[pa.Table]:
    """Assignment and moves."""
    return [pq.read_table(desk.output / "_plan" / f"{name}.parquet") for name in ("assignment", "moves")]


def findings(said: str) -> list[str]:
    """Without the lines that end with how long a step took."""
    lines = said.replace("file://", "").splitlines()
    found = [line for line in lines if not re.search(r"\(\d+\.\d\ds\)$", line)]
    assert found
    return found


def test_the_same_files_come_out_and_a_new_worker_is_filled(desk: Desk) -> None:
    desk.partitions({f"dc.tool{number}": number % 7 + 1 for number in range(100)})
    both(desk)
    desk.workers("w-a", "w-b", "w-c", "w-d", "w-e")
    both(desk)


def test_bad_rows_are_counted_alike(desk: Desk) -> None:
    desk.partitions({"a.b": 1, "a..c": 1, "a.*": 2, "a.d": 0, "a.e": "nan", "a.f": "1e400", "a.g": "1e-3"})
    local = findings(desk("--engine", "local", code=4).err)
    assert findings(desk("--engine", "spark", code=4).err) == local
    desk.table("partitions.csv", "subject,weight", ["a.b,1", "a.b,2", "a.c,1", "a.c,1", "a.d,1"])
    local = findings(desk("--engine", "local", code=4).err)
    assert findings(desk("--engine", "spark", code=4).err) == local
    assert not desk.output.exists()


@pytest.mark.parametrize("format_", ["json", "orc"])
def test_formats_that_only_spark_reads(desk: Desk, spark: SparkSession, format_: str) -> None:
    desk("--engine", "local")
    wanted = desk.manifests()
    shutil.rmtree(desk.output)
    table = spark.read.option("header", "true").csv(f"file://{desk.root}/partitions.csv")
    table.write.format(format_).save(f"file://{desk.root}/other")
    desk.plan(instead={"{format: csv, path: partitions.csv}": f"{{format: {format_}, path: other}}"})
    desk()
    assert desk.manifests() == wanted


def test_more_than_local_rows_are_planned_by_spark(desk: Desk) -> None:
    desk("--engine", "local")
    wanted = desk.manifests()
    shutil.rmtree(desk.output)
    desk.plan("localRows: 10")
    desk("--engine", "local", code=64)
    desk()
    assert desk.manifests() == wanted


def test_a_library_call_makes_the_same_plan(desk: Desk, spark: SparkSession) -> None:
    from reconciler.partitions.spark.library import plan_partitions  # noqa: PLC0415 - only where pyspark is

    report = desk.report("--engine", "local")["pools"]["processor"]
    read = spark.read.option("header", "true")
    tables = [read.csv(f"file://{desk.root}/{name}.csv") for name in ("partitions", "workers")]
    plan = plan_partitions(tables[0], tables[1], None, {"pool": "processor", "stream": "DC"})
    found = sorted(
        plan.assignment.toArrow().select(["worker", "subject"]).to_pylist(), key=lambda row: (row["worker"], row["subject"])
    )
    assert found == rows(desk)[0].select(["worker", "subject"]).to_pylist()
    of_manifests = {"consumers", "families", "files"}
    assert plan.report["pools"]["processor"] == {name: value for name, value in report.items() if name not in of_manifests}
    assert plan.moves.count() == 100
