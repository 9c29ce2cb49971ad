"""`partitions plan --engine spark` on a desk of files: the same manifests, reports and refusals as without Spark."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from reconciler.cli.app import run
from reconciler.cli.saying.terminal import Terminal
from reconciler.model.subjects import is_literal
from reconciler.partitions.families import Family, covering, filters
from tests.support.partitions.both import Both
from tests.support.partitions.files import Desk
from tests.support.partitions.files import desk as made

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Desk:
    """100 equal partitions on four workers, planned by nobody yet."""
    return made(tmp_path, capsys)


@pytest.fixture
def both(desk: Desk) -> Both:
    """Both planners on it."""
    return Both(desk)


def test_more_than_local_rows_are_planned_by_spark_slice_by_slice(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker is gone, one drains, one is new, one is larger, one has a giant; nothing of a plan is fetched as a whole."""
    from pyspark.sql.classic.dataframe import DataFrame  # noqa: PLC0415 - only where pyspark is

    from reconciler.partitions.spark.columns import rows  # noqa: PLC0415 - likewise

    desk = both.desk
    names = [f"w-{number:02}" for number in range(40)]
    weights: dict[str, object] = {f"dc.tool{number}.x": number % 7 + 1 for number in range(800)}
    desk.partitions(weights)
    desk.workers(*names)
    desk("--engine", "local")
    desk.partitions({**weights, "dc.giant": 900, "dc.new": "1e-6"})
    desk.workers(
        *(f"{name},{2 if name == 'w-07' else 1},{'draining' if name == 'w-03' else ''}" for name in names[2:]),
        "w-x,1,",
        header="worker,capacity,state",
    )
    fetched: list[int] = []

    def to_arrow(frame: Any) -> pa.Table:
        table = plain(frame)
        fetched.append(len(table))
        return table

    plain = DataFrame.toArrow
    monkeypatch.setattr(DataFrame, "toArrow", to_arrow)
    monkeypatch.setattr(rows, "SLICE", 100)
    both.plan()
    assert max(fetched) < 200
    assert sum(count > 50 for count in fetched) > 6


@pytest.mark.thorough(also="tests/partitions/spark/test_same_plan.py::test_many_odd_tables_get_the_plans_of_the_local_planner")
def test_units_zones_pins_and_a_budget_go_through_files(both: Both) -> None:
    desk = both.desk
    header = "subject,weight,unit,zone,pin"
    table = [
        f"dc.t{n}.x,{n % 5 + 1},{f'u{n % 9}.{n % 2}' if n % 3 else ''},{'east' if n % 2 else 'west'},{'w-a' if n == 33 else ''}"
        for n in range(120)
    ]
    desk.table("partitions.csv", header, table)
    desk.workers("w-a,east,", "w-b,east,", "w-c,west,", "w-d,west,", header="worker,zone,state")
    desk("--engine", "local")
    desk.workers("w-a,east,", "w-b,east,draining", "w-c,west,", "w-d,west,", "w-e,east,", header="worker,zone,state")
    desk.plan("balance: {maxMoved: 0.05}")
    both.plan()


def test_formats_that_only_spark_reads(both: Both, spark: SparkSession) -> None:
    desk = both.desk
    desk("--engine", "local")
    wanted = desk.manifests()
    shutil.rmtree(desk.output)
    read = spark.read.option("header", "true")
    read.csv(f"file://{desk.root}/partitions.csv").write.json(f"file://{desk.root}/partitions")
    read.csv(f"file://{desk.root}/workers.csv").write.orc(f"file://{desk.root}/workers")
    formats = {
        "{format: csv, path: partitions.csv}": "{format: json, path: partitions}",
        "{format: csv, path: workers.csv}": "{format: orc, path: workers}",
    }
    desk.plan(instead=formats)
    desk("--engine", "local", code=64)
    desk()
    assert desk.manifests() == wanted


def test_every_gate_refuses_alike(both: Both) -> None:
    desk = both.desk
    desk("--engine", "local")
    desk.partitions(70)
    desk.workers("w-a", "w-b", "w-e", "w-f", "w-g")
    desk.plan("gates: {minWorkers: 6, maxManifestBytes: 100}")
    path = desk.output / "w-w-b.yaml"
    path.write_bytes(path.read_bytes() + b"# mine\n")
    said = both.refused(code=3)
    gates = ("maxMovedFraction", "maxWorkersRemovedFraction", "maxInputShrink", "minWorkers", "maxManifestBytes", "edited")
    assert [gate for gate in gates if f"{gate}: " not in said] == []
    both.plan(*(part for gate in gates for part in ("--force", gate)))


def test_what_cannot_be_planned_is_refused_alike(both: Both) -> None:
    desk = both.desk
    desk.families(other='dc.tool1.chamber2, dc.tool2.*, "dc.tool3.>", dc.else')
    assert "collision: dc.tool1.chamber2, dc.tool2.chamber0" in both.refused(code=3)
    desk.plan("maxSubjects: 20")
    assert "maxSubjects: 100 subjects, room for 80 on 4 active workers" in both.refused(code=3)
    desk.table("partitions.csv", "subject,weight,pin", [f"s.{number},1,w-a" for number in range(8)])
    desk.plan("maxSubjects: 4")
    assert "8 subjects are pinned to w-a, which may have 4: s.0, s.1, s.2, s.3, s.4, …" in both.refused(code=3)
    desk.partitions(0)
    assert "zeroPartitions" in both.refused(code=3)


@pytest.mark.thorough(also="tests/partitions/spark/test_plan_by_spark.py::test_what_cannot_be_planned_is_refused_alike")
def test_units_that_fit_into_no_zone_are_refused_alike(both: Both) -> None:
    desk = both.desk
    desk.table("partitions.csv", "subject,weight,unit,zone", [f"s.{n},1,u{n // 3},east" for n in range(24)])
    desk.workers("w-a,east", "w-b,west", "w-c,north", header="worker,zone")
    desk.plan("zones: soft", "maxSubjects: 8")
    assert "4 of 6 units of 3 subjects that need a zone fit" in both.refused(code=3)


@pytest.mark.xdist_group("spark")  # both sessions have as much to do
def test_explain_says_the_same(both: Both, tmp_path: Path) -> None:
    desk = both.desk
    desk("--engine", "local")
    desk.workers("w-a", "w-b", "w-c", "w-d", "w-e")
    said = []
    for engine in ("local", "spark"):
        ended = desk("--engine", engine, "--svg", str(tmp_path / f"{engine}.svg"), command="explain")
        said.append((ended.out, (tmp_path / f"{engine}.svg").read_text()))
    assert said[0] == said[1]
    assert "one more worker: moves" in said[0][0]
    assert "dc.tool0.chamber0 on " in desk("--engine", "spark", "--subject", "dc.tool0.chamber0", command="explain").out


def test_a_library_call_makes_the_same_plan(both: Both, spark: SparkSession) -> None:
    from reconciler.partitions.spark.library import plan_partitions  # noqa: PLC0415 - only where pyspark is

    desk = both.desk
    report = desk.report("--engine", "local")["pools"]["processor"]
    read = spark.read.option("header", "true")
    tables = [read.csv(f"file://{desk.root}/{name}.csv") for name in ("partitions", "workers")]
    plan = plan_partitions(tables[0], tables[1], None, {"pool": "processor", "stream": "DC"})
    found = sorted(
        plan.assignment.toArrow().select(["worker", "subject"]).to_pylist(), key=lambda row: (row["worker"], row["subject"])
    )
    assert found == both.tables()[0].select(["worker", "subject"]).to_pylist()
    known = {name: value for name, value in report.items() if name not in ("files", "consumers")}
    assert plan.report["pools"]["processor"] == known
    assert plan.moves.count() == 100


def test_what_spark_writes_is_valid(both: Both) -> None:
    both.desk("--engine", "spark", "--dry-run")
    assert not both.desk.output.exists()
    both.desk("--engine", "spark")
    assert run(["validate", "-f", str(both.desk.root)], Terminal({})) == 0


def test_families_are_the_same_filters(both: Both) -> None:
    desk = both.desk
    desk.families("dc.{tool}.>", "a$b.(c).*", more=["maxSubjects: 9", "gates: {maxMovedFraction: 1}"])
    rows_of = [f"dc.tool{n // 4}.chamber{n % 4},{1 + n % 3},area{n // 8}" for n in range(80)]
    rows_of += ["a$b.(c).x,1,", "a$b.(c).y,2,", "dc.tool90.>,4,", "other,1,"]
    desk.table("partitions.csv", "subject,weight,unit", rows_of)
    desk("--engine", "spark")
    assert b'"dc.tool3.>"' in b"".join(desk.manifests().values())
    assert b'"a$b.(c).*"' in b"".join(desk.manifests().values())
    desk.table("partitions.csv", "subject,weight,unit", [*rows_of, "dc.tool3.new,1,area1", "dc.tool91.a,1,"])
    desk.workers("w-a", "w-b", "w-d", "w-e")
    both.plan()
    (desk.output / "_plan" / "assignment.parquet").unlink()  # so only the manifests say what was
    desk.plan("gates: {maxMovedFraction: 1}")
    desk.table("partitions.csv", "subject,weight,unit", [*rows_of[:80], "dc.tool3.new,1,area1"])
    both.plan()
    family = both.tables()[0].column("family")
    assert family.null_count == len(family)


def test_wrong_families_are_counted_alike(both: Both) -> None:
    desk = both.desk
    desk.families("dc.{tool}.>", other="dc.other.1")
    faults = ["dc.t1.a,1,u", "dc.t1.b,1,v", "dc.t2.a,1,", "dc.*.x,1,", "dc.>,1,", "dc.t3.*,1,", "a b.c,1,", "dc.t2.b,1,w"]
    desk.table("partitions.csv", "subject,weight,unit", faults)
    said = both.refused(code=4)
    codes = ("bad-subject", "torn-family", "undeclared-wildcard")
    assert [code for code in codes if f": {code}: " in said] == [*codes]
    desk.table("partitions.csv", "subject,weight,unit", ["dc.other.2,1,"])
    assert "collision: dc.other.> also belong to WorkerPool/other" in both.refused(code=3)


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

    from reconciler.partitions.spark.solving.families import covering_all, filter_of  # noqa: PLC0415 - only where pyspark is

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
