"""`partitions plan --engine spark` on a desk of files: the same manifests, refusals and faults as without Spark."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reconciler.model.subjects import is_literal
from reconciler.partitions.families import Family, covering, filters
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
    known = {name: value for name, value in report.items() if name not in ("files", "consumers")}
    assert plan.report["pools"]["processor"] == known
    assert plan.moves.count() == 100


def test_families_are_the_same_filters(desk: Desk) -> None:
    desk.families("dc.{tool}.>", "a$b.(c).*", more=["maxSubjects: 9", "gates: {maxMovedFraction: 1}"])
    rows_of = [f"dc.tool{n // 4}.chamber{n % 4},{1 + n % 3},area{n // 8}" for n in range(80)]
    rows_of += ["a$b.(c).x,1,", "a$b.(c).y,2,", "dc.tool90.>,4,", "other,1,"]
    desk.table("partitions.csv", "subject,weight,unit", rows_of)
    desk("--engine", "spark")
    assert b'"dc.tool3.>"' in b"".join(desk.manifests().values())
    assert b'"a$b.(c).*"' in b"".join(desk.manifests().values())
    desk.table("partitions.csv", "subject,weight,unit", [*rows_of, "dc.tool3.new,1,area1", "dc.tool91.a,1,"])
    desk.workers("w-a", "w-b", "w-d", "w-e")
    both(desk)
    (desk.output / "_plan" / "assignment.parquet").unlink()  # so only the manifests say what was
    desk.plan("gates: {maxMovedFraction: 1}")
    desk.table("partitions.csv", "subject,weight,unit", [*rows_of[:80], "dc.tool3.new,1,area1"])
    both(desk)
    family = rows(desk)[0].column("family")
    assert family.null_count == len(family)


def test_wrong_families_are_counted_alike(desk: Desk) -> None:
    desk.families("dc.{tool}.>", other="dc.other.1")
    faults = ["dc.t1.a,1,u", "dc.t1.b,1,v", "dc.t2.a,1,", "dc.*.x,1,", "dc.>,1,", "dc.t3.*,1,", "a b.c,1,", "dc.t2.b,1,w"]
    desk.table("partitions.csv", "subject,weight,unit", faults)
    local = findings(desk("--engine", "local", code=4).err)
    codes = ("bad-subject", "torn-family", "undeclared-wildcard")
    assert [code for code in codes if any(code in line for line in local)] == [*codes]
    assert findings(desk("--engine", "spark", code=4).err) == local
    desk.table("partitions.csv", "subject,weight,unit", ["dc.other.2,1,"])
    local = findings(desk("--engine", "local", code=3).err)
    assert "collision: dc.other.> also belong to WorkerPool/other" in local[-1]
    assert findings(desk("--engine", "spark", code=3).err) == local


def test_the_library_knows_families_by_its_own_assignment(desk: Desk, spark: SparkSession) -> None:
    from reconciler.partitions.spark.library import plan_partitions  # noqa: PLC0415 - only where pyspark is

    read = spark.read.option("header", "true")
    spec = {"pool": "processor", "stream": "DC", "families": ["dc.{tool}.>"], "maxSubjects": 6}
    desk.partitions(96)
    tables = [read.csv(f"file://{desk.root}/{name}.csv") for name in ("partitions", "workers")]
    first = plan_partitions(tables[0], tables[1], None, spec)
    part = first.report["pools"]["processor"]
    assert (part["partitions"], part["families"]) == (96, {"count": 24, "partitions": 96})
    assert part["subjects"] == {"max": 6, "cap": 6}
    grown = tables[0].unionByName(spark.createDataFrame([("dc.tool3.new", "0.001")], ["subject", "weight"]))
    again = plan_partitions(grown, tables[1], first.assignment, spec).report["pools"]["processor"]["moved"]
    assert (again["count"], again["new"]) == (0, 0)
    (owner,) = {row["worker"] for row in first.assignment.filter("family = 'dc.tool3.>'").toArrow().to_pylist()}
    left = plan_partitions(grown, tables[1].filter(f"worker <> '{owner}'"), first.assignment, {**spec, "maxSubjects": 8})
    moves = {row["subject"]: row["from"] for row in left.moves.toArrow().to_pylist()}
    assert moves["dc.tool3.new"] == moves["dc.tool3.chamber0"] == owner
    assert set(moves.values()) == {owner}


def test_a_subject_has_the_same_family_everywhere(spark: SparkSession) -> None:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - only where pyspark is

    from reconciler.partitions.spark.families import covering_all, filter_of  # noqa: PLC0415 - only where pyspark is

    dice = np.random.default_rng(7)
    tokens = ["a", "b", "a$1", "(b)", "c\\1", "ü{", "{x}", "{y}", "*"]
    patterns = {".".join([*dice.choice(tokens, dice.integers(1, 4)), *([">"] if dice.random() < 0.5 else [])]) for _ in range(90)}
    values = ["a", "b", "c", "a$1", "(b)", "c\\1", "ü{", "*", ">", "*a", ">b", "\U0001f600", "a\nb"]
    subjects = pa.array(sorted({".".join(dice.choice(values, dice.integers(1, 5))) for _ in range(600)}), pa.string())
    declared = [[Family(pattern)] for pattern in sorted(patterns)]
    table = spark.createDataFrame(pa.table({"subject": subjects}))
    columns = [filter_of(F.col("subject"), family).alias(str(at)) for at, family in enumerate(declared)]
    found = table.select("subject", *columns).toArrow().sort_by("subject")
    assert found.column("subject").to_pylist() == sorted(subjects.to_pylist(), key=str.encode)
    ordered = found.column("subject").combine_chunks().cast(pa.string())
    for at, family in enumerate(declared):
        assert found.column(str(at)).to_pylist() == filters(ordered, family).to_pylist(), family[0].pattern
    assert covering_all(table) == covering([subject for subject in subjects.to_pylist() if not is_literal(subject)])
