"""Where Spark may be, and where tables may be: a cluster that does not see our files, Connect, Delta and Iceberg.

Every plan begins from the same earlier one and has to come to the bytes of the local planner. All of it are processes of their
own: classic Spark and Connect do not share one, and packages are loaded when a session begins.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reconciler.cli import spark_submit
from reconciler.cli.app import run
from reconciler.cli.saying.terminal import Terminal
from tests.support.cluster.servers import free_ports
from tests.support.pages.following import follow, replaced
from tests.support.partitions import called
from tests.support.partitions import lake as tables
from tests.support.partitions.files import PLAN, Ended
from tests.support.partitions.standalone import (
    APART,
    EXECUTORS,
    LITTLE,
    ROOT,
    Standalone,
    confs,
    environment,
    home,
    ran,
    reconciler,
)
from tests.support.skipped import NO_SPARK

pytestmark = pytest.mark.xdist_group("places of Spark")
PAGE = ROOT / "docs" / "partitions-cluster.md"
FORMATS = "tests/partitions/spark/test_plan_by_spark.py::test_formats_that_only_spark_reads"
SAME = "tests/partitions/spark/test_plan_by_spark.py::test_more_than_local_rows_are_planned_by_spark_slice_by_slice"
LIBRARY = "tests/partitions/spark/test_plan_by_spark.py::test_a_library_call_makes_the_same_plan"
REFUSED = "tests/partitions/spark/test_messages.py::test_a_path_of_this_machine_is_refused_where_executors_are_elsewhere"
PARTITIONS, WORKERS, PREVIOUS = "{format: csv, path: partitions.csv}", "{format: csv, path: workers.csv}", "auto"
PORTS, OPTIONS = (17077, 15002), ("--port ", "spark.connect.grpc.binding.port=")
"""Of the page, and what they stand behind."""
SECONDS = 1800
"""So long may a test take where others keep the machine busy."""


@dataclass(frozen=True)
class Desk:
    """A directory with tables, a plan, and what the plan before has left."""

    root: Path

    @property
    def output(self) -> Path:
        """The generated directory."""
        return self.root / "manifests" / "processor"

    @property
    def plan(self) -> Path:
        """The plan file."""
        return self.root / "plan.yaml"

    def says(self, **tables_of: str) -> None:
        """Writes the plan, with these tables instead of the files."""
        text = PLAN
        for name, old in (("partitions", PARTITIONS), ("workers", WORKERS)):
            text = text.replace(f"{name}: {old}", f"{name}: {tables_of.get(name, old)}")
        self.plan.write_text(f"{text}  previous: {tables_of.get('previous', PREVIOUS)}\n", encoding="utf-8")

    def written(self) -> dict[str, Any]:
        """Manifests and index byte by byte, tables by row, and the report but for the seconds."""
        files = {str(path.relative_to(self.output)): path for path in self.output.rglob("*") if path.is_file()}
        return {name: _content(path) for name, path in files.items()}


def _content(path: Path) -> bytes | pa.Table | dict[str, Any]:
    if path.suffix == ".parquet":
        return pq.read_table(path)
    if path.suffix == ".json":
        return {name: value for name, value in json.loads(path.read_bytes()).items() if name != "seconds"}
    return path.read_bytes()


@dataclass(frozen=True)
class Case:
    """A plan, then other weights and one more worker, and what has to come of it."""

    desk: Desk
    """Before it is planned again."""
    wanted: Mapping[str, Any]
    warehouse: Path

    def copy(self, root: Path, **tables_of: str) -> Desk:
        """A desk that begins there."""
        shutil.copytree(self.desk.root, root)
        desk = Desk(root)
        desk.says(**tables_of)
        return desk

    def delta(self, name: str) -> str:
        """A table of a plan."""
        return f"{{format: delta, path: 'file://{self.warehouse}/delta/{name}'}}"


def locally(desk: Desk) -> None:
    """Plans without Spark."""
    assert run(["partitions", "plan", "-c", str(desk.plan), "--engine", "local"], Terminal({})) == 0


def _tables(root: Path, *, workers: int, heavier: int) -> None:
    rows = [f"dc.tool{number // 4}.chamber{number % 4},{number % 7 + 1 + heavier * (number % 3)}" for number in range(400)]
    _csv(root / "partitions.csv", "subject,weight", rows)
    _csv(root / "workers.csv", "worker,capacity", [f"w-{number},1" for number in range(workers)])


def _csv(path: Path, header: str, rows: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in (header, *rows)), encoding="utf-8")


def _need(lack: str | None) -> None:
    """Skips what this machine cannot run; where nothing may be skipped, fails."""
    if lack is not None:
        pytest.fail(lack) if os.environ.get("CI") else pytest.skip(f"{NO_SPARK}{lack}")


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """A cluster."""
    _need(_missing())
    with Standalone(tmp_path_factory.mktemp("standalone")) as running:
        yield running


def _missing() -> str | None:
    if shutil.which("unshare") is None:
        return "a cluster that does not see our files needs Linux and `unshare`"
    tried = subprocess.run([*APART, "true"], capture_output=True, text=True, check=False)
    if tried.returncode == 0:
        return None
    return f"this user may not unshare ({tried.stderr.strip()}): sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0"


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """400 partitions on ten workers, then on eleven, and all tables of it in the lake."""
    root = tmp_path_factory.mktemp("case")
    desk = Desk(root / "desk")
    desk.root.mkdir()
    _tables(desk.root, workers=10, heavier=0)
    desk.says()
    locally(desk)
    _tables(desk.root, workers=11, heavier=1)
    planned = Desk(root / "planned")
    shutil.copytree(desk.root, planned.root)
    locally(planned)
    before = pq.read_table(desk.output / "_plan" / "assignment.parquet").select(["subject", "worker"]).to_pylist()
    _csv(desk.root / "previous.csv", "subject,worker", [f"{row['subject']},{row['worker']}" for row in before])
    warehouse, scratch = root / "lake", root / "scratch"
    scratch.mkdir()
    files = [desk.root / f"{name}.csv" for name in ("partitions", "workers", "previous")]
    done = ran([sys.executable, "-m", tables.__name__, warehouse, *files], scratch)
    _need(tables.undelivered(done.err) if done.code else None)
    assert done.code == 0, done.err[-4000:]
    return Case(desk, planned.written(), warehouse)


def advised(ended: Ended) -> list[str]:
    """The arguments that an error says to add."""
    assert ended.code == 64, ended
    (found,) = re.findall(r"add (--packages [^,]*)", ended.err, re.MULTILINE)
    return shlex.split(found)


def plan(desk: Desk, *arguments: str, **environ: str) -> Ended:
    """Runs the command at a desk."""
    scratch = desk.root.with_name(f"{desk.root.name}-scratch")
    scratch.mkdir(exist_ok=True)
    return ran(reconciler("partitions", "plan", "-c", desk.plan, *confs(LITTLE), *arguments), scratch, **environ)


def test_packages_that_cannot_be_had_are_told_and_so_is_why_these_tests_are_skipped(tmp_path: Path) -> None:
    """Nobody listens where they would come from."""
    desk = Desk(tmp_path / "desk")
    desk.root.mkdir()
    _tables(desk.root, workers=2, heavier=0)
    desk.says(partitions="{format: delta, path: partitions}")
    package = ["--packages", tables.both()[0][0], "--conf", f"spark.jars.ivy={tmp_path}/ivy"]
    ended = plan(desk, "--master", "local[1]", *package, DEFAULT_ARTIFACT_REPOSITORY="http://127.0.0.1:9/")
    assert ended.code == 1, ended
    assert "DEFAULT_ARTIFACT_REPOSITORY=https://… names a mirror" in ended.err
    assert "Maven Central, which did not answer" in (tables.undelivered(ended.err) or "")


@pytest.mark.thorough(also=FORMATS)
@pytest.mark.timeout(SECONDS)
def test_delta_tables_with_the_package_that_the_error_names(case: Case, tmp_path: Path) -> None:
    tables_of = {name: case.delta(name) for name in ("partitions", "workers", "previous")}
    desk = case.copy(tmp_path / "desk", **tables_of)
    before = desk.written()
    package = advised(plan(desk, "--master", "local[1]"))
    assert desk.written() == before
    ended = plan(desk, "--master", "local[1]", *package)
    assert ended.code == 0, ended
    assert desk.written() == case.wanted


@pytest.mark.thorough(also=FORMATS)
@pytest.mark.timeout(SECONDS)
def test_iceberg_tables_of_a_catalog_with_the_package_that_the_error_names(case: Case, tmp_path: Path) -> None:
    tables_of = {name: f"{{format: iceberg, table: lake.nats.{name}}}" for name in ("partitions", "workers", "previous")}
    desk = case.copy(tmp_path / "desk", **tables_of)
    before = desk.written()
    package = advised(plan(desk, "--master", "local[1]"))
    assert desk.written() == before
    ended = plan(desk, "--master", "local[1]", *package, *confs(tables.catalog(case.warehouse)))
    assert ended.code == 0, ended
    assert desk.written() == case.wanted


@pytest.fixture(scope="module")
def remote(standalone: Standalone, case: Case) -> str:
    """A Connect server on the cluster, which knows Delta and the tables of the case."""
    packages, settings = tables.both()
    return standalone.connect("--packages", ",".join(packages), *confs(settings, tables.catalog(case.warehouse)))


@pytest.mark.thorough(also=SAME)
@pytest.mark.timeout(SECONDS)
def test_spark_submit_plans_on_a_cluster_and_the_client_commits(case: Case, standalone: Standalone) -> None:
    """The executors read Delta below an address that all of them know; they see neither manifests nor workers nor git."""
    mounted = {"spark.hadoop.fs.viewfs.mounttable.lake.link./tables": f"file://{case.warehouse}"}
    desk = case.copy(standalone.client / "submitted", partitions="{format: delta, path: 'viewfs://lake/tables/delta/partitions'}")
    _git(desk, "init", "-q", "-b", "main")
    _git(desk, "add", "manifests")
    _git(desk, "commit", "-qm", "The plan before")
    submit = ["--master", standalone.master, *tables.advised("delta"), *confs(LITTLE, EXECUTORS, mounted), spark_submit.__file__]
    ended = ran([home() / "bin" / "spark-submit", *submit, "-c", desk.plan, "--commit"], standalone.scratch)
    assert ended.code == 0, ended
    assert desk.written() == case.wanted
    assert _git(desk, "log", "-1", "--format=%s").startswith("Plan processor: ")
    assert _git(desk, "status", "--porcelain", "manifests") == ""


@pytest.mark.thorough(also=REFUSED)
@pytest.mark.timeout(SECONDS)
def test_spark_submit_with_a_path_of_this_machine_is_refused_and_a_wrong_promise_is_found_out(
    case: Case, standalone: Standalone
) -> None:
    desk = case.copy(standalone.client / "refused")
    before = desk.written()
    submit = ["--master", standalone.master, *confs(LITTLE, EXECUTORS), spark_submit.__file__]
    command = [str(home() / "bin" / "spark-submit"), *submit, "-c", str(desk.plan)]
    refused = ran(command, standalone.scratch)
    assert refused.code == 4, refused
    assert "partitions.csv is a path of this machine" in refused.out  # of spark-submit, both are stdout
    assert "read" not in refused.out.partition("is a path")[0].partition("is ready")[2]
    promised = ran([*command, "--shared-filesystem"], standalone.scratch)
    assert promised.code == 1, promised
    assert "--shared-filesystem says that every executor sees it" in promised.out
    assert desk.written() == before


@pytest.mark.thorough(also=SAME)
@pytest.mark.timeout(SECONDS)
def test_connect_plans_a_table_of_the_server(case: Case, standalone: Standalone, remote: str) -> None:
    """Workers, index and manifests are the client's; the server and its executors do not see them."""
    desk = case.copy(standalone.client / "connected", partitions="{format: iceberg, table: lake.nats.partitions}")
    ended = ran(reconciler("partitions", "plan", "-c", desk.plan, "--remote", remote), standalone.scratch)
    assert ended.code == 0, ended
    assert desk.written() == case.wanted


@pytest.mark.thorough(also=REFUSED)
@pytest.mark.timeout(SECONDS)
def test_connect_with_a_path_of_this_machine_is_refused_and_a_wrong_promise_is_found_out(
    case: Case, standalone: Standalone, remote: str
) -> None:
    """The server would look for a file of its own by that name; said to share our files, it does not find it."""
    desk = case.copy(standalone.client / "apart")
    before = desk.written()
    command = reconciler("partitions", "plan", "-c", desk.plan, "--engine", "spark", "--remote", remote)
    refused = ran(command, standalone.scratch)
    assert refused.code == 4, refused
    assert "partitions.csv is a path of this machine" in refused.err
    promised = ran([*command, "--shared-filesystem"], standalone.scratch)
    assert promised.code == 4, promised
    assert "PATH_NOT_FOUND" in promised.err
    assert desk.written() == before


@pytest.mark.thorough(also=SAME)
@pytest.mark.timeout(SECONDS)
def test_connect_reads_what_is_shared(case: Case, standalone: Standalone, remote: str) -> None:
    desk = case.copy(standalone.client / "shared", **{name: case.delta(name) for name in ("partitions", "workers", "previous")})
    command = reconciler("partitions", "plan", "-c", desk.plan, "--remote", remote, "--shared-filesystem")
    ended = ran(command, standalone.scratch)
    assert ended.code == 0, ended
    assert desk.written() == case.wanted


@pytest.mark.thorough(also=LIBRARY)
@pytest.mark.timeout(SECONDS)
def test_the_library_call_on_connect(case: Case, standalone: Standalone, remote: str) -> None:
    ended = ran([sys.executable, "-m", called.__name__, remote], standalone.scratch)
    assert ended.code == 0, ended
    for name in ("assignment", "moves"):
        found = ended.json[name]
        wanted = case.wanted[f"_plan/{name}.parquet"].select(list(found[0])).to_pylist()
        assert found == sorted(wanted, key=lambda row: str(row["subject"]))
    assert {"subject", "worker", "weight", "unit"} <= set(ended.json["assignment"][0])
    report, of_manifests = case.wanted["_plan/report.json"]["pools"]["processor"], {"consumers", "families", "files"}
    assert (
        ended.json["report"]["pools"]["processor"].items()
        >= {name: value for name, value in report.items() if name not in of_manifests}.items()
    )


@pytest.mark.thorough(also=SAME)
@pytest.mark.timeout(SECONDS)
@pytest.mark.usefixtures("case")
def test_what_the_page_of_clusters_shows_is_what_happens(tmp_path: Path) -> None:
    here, scratch = tmp_path / "here", tmp_path / "scratch"
    here.mkdir()
    scratch.mkdir()
    environ = environment(scratch) | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "160"}
    del environ["PYSPARK_PYTHON"]
    addresses = {f"127.0.0.1:{port}": f"127.0.0.1:{free}" for port, free in zip(PORTS, free_ports(len(PORTS)), strict=True)}
    text = PAGE.read_text(encoding="utf-8")
    ports = {f"{option}{address[10:]}": f"{option}{other[10:]}" for address, other in addresses.items() for option in OPTIONS}
    follow(replaced(text, addresses | ports), here, environ)


def _git(desk: Desk, *arguments: str) -> str:
    who = ["-c", "user.name=me", "-c", "user.email=me@example.org"]
    return subprocess.run(["git", "-C", str(desk.root), *who, *arguments], check=True, capture_output=True, text=True).stdout
