"""What is said where Java, pyspark or a package is missing."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.errors import InvalidInput, ReconcilerError, UsageError
from reconciler.partitions.plan_file import read_plan
from reconciler.partitions.spark import ending, session
from tests.support.partitions.files import PLAN


def java(directory: Path, version: str) -> Path:
    """A Java that says its version and can do nothing else."""
    program = directory / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2020-01-01' >&2\n", encoding="utf-8")
    program.chmod(0o755)
    return directory


def test_all_tests_that_share_the_session_are_run_by_one_process(request: pytest.FixtureRequest) -> None:
    name = request.node.nodeid
    assert name.endswith("@spark") or "PYTEST_XDIST_WORKER" not in os.environ


def test_no_java(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"Java 17 or newer and there is none.*apt-get install.*brew install"):
        session.need_java({"PATH": str(tmp_path)})


@pytest.mark.parametrize(("version", "shown"), [("1.8.0_392", "Java 8"), ("11.0.2", "Java 11")])
def test_an_old_java(tmp_path: Path, version: str, shown: str) -> None:
    with pytest.raises(UsageError, match=f"is {shown}"):
        session.need_java({"JAVA_HOME": str(java(tmp_path, version))})


def test_a_java_that_will_do(tmp_path: Path) -> None:
    session.need_java({"JAVA_HOME": str(java(tmp_path, "21.0.1"))})


def test_no_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match=r"pip install 'jetstream-reconciler\[spark\]'"):
        session.need_pyspark()


def test_a_heap_with_which_spark_does_not_start() -> None:
    error = RuntimeError("calling None.X.\n: org.x.SparkIllegal: [INVALID_DRIVER_MEMORY] System memory 1 must be 2.")
    said = session.not_started(error, session.SparkOptions())
    assert said.endswith("System memory 1 must be 2. --conf spark.driver.memory=1g gives it more")


@pytest.mark.parametrize("given", [None, "-Xss4m -XX:-ExitOnOutOfMemoryError"])
def test_what_is_said_to_java_is_added_to(given: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "SPARK_SUBMIT_OPTS"
    if given is None:
        monkeypatch.delenv(name, raising=False)
    else:
        monkeypatch.setenv(name, given)
    with ending.ending_without_memory():
        said = os.environ[name]
    assert said.startswith("-XX:+ExitOnOutOfMemoryError ")
    assert said.endswith(given or ""), "what comes last wins"
    assert os.environ.get(name) == given


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (3, r"used up its memory \(spark.driver.memory: 2g\) and has ended: give it more \(--conf spark.driver.memory="),
        (-9, r"Spark has ended by itself \(killed by signal 9\)"),
        (1, r"Spark has ended by itself \(exit 1\)"),
    ],
)
def test_a_spark_that_has_ended(code: int, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark import SparkContext  # noqa: PLC0415 - only where pyspark is

    monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=SimpleNamespace(wait=lambda _: code)))
    with pytest.raises(ReconcilerError, match=said), ending.alive({"spark.driver.memory": "2g"}):
        raise ConnectionRefusedError


def test_a_format_that_the_session_does_not_know() -> None:
    said = session.explained(RuntimeError("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: delta"), "delta")
    assert "add --packages io.delta:delta-spark_4.1_2.13:4.1.0 --conf spark.sql.extensions=" in str(said)


@pytest.mark.parametrize("lacks", ["[DATA_SOURCE_NOT_FOUND] delta", "[REQUIRES_SINGLE_PART_NAMESPACE] but got `lake`.`nats`."])
def test_a_format_that_has_no_package_for_the_spark_at_hand(lacks: str) -> None:
    newer: Any = SimpleNamespace(version="4.3.0", conf={})
    said = str(session.explained(RuntimeError(lacks), "delta", newer))
    assert "no package of it is known for Spark 4.3.0; what fits: Spark 4.1.4 (pip install 'pyspark[connect]==4.1.4'" in said
    assert "4.3_2.13" not in said


@pytest.mark.parametrize(
    "error",
    [
        "An error occurred while calling o9.load.\n: java.lang.NoSuchMethodError: 'void org.apache.spark.LogicalRDD.<init>()'",
        "<_MultiThreadedRendezvous of RPC:\n\tdetails = \"'void org.apache.spark.sql.execution.LogicalRDD.<init>()'\"",
    ],
    ids=["classic", "connect"],
)
def test_a_package_that_does_not_fit(error: str) -> None:
    said = str(session.explained(RuntimeError(error), "delta"))
    assert "does not fit Spark 4.1.4" in said
    assert "io.delta:delta-spark_4.1_2.13:4.1.0" in said


@pytest.mark.parametrize(
    "error",
    [
        "An error occurred while calling o9.load.\n: org.example.Lost: it is gone\n\tat x",
        'terminated with:\n\tdetails = "org.example.Lost: it is gone"\n>',
    ],
    ids=["classic", "connect"],
)
def test_what_spark_says_is_shown_and_not_that_it_was_called(error: str) -> None:
    assert session.first_line(RuntimeError(error)) == "org.example.Lost: it is gone"


def test_a_catalog_that_the_session_does_not_know() -> None:
    error = RuntimeError(
        "[REQUIRES_SINGLE_PART_NAMESPACE] spark_catalog requires a single-part namespace, but got `lake`.`nats`."
    )
    said = str(session.explained(error, "iceberg"))
    assert "has no catalog lake: add --packages org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:" in said
    assert "--conf spark.sql.catalog.lake=org.apache.iceberg.spark.SparkCatalog, and where it is" in said


@pytest.mark.parametrize("given", ["partitions.parquet", "/data/partitions.parquet", "file:///data/partitions.parquet"])
def test_a_path_of_this_machine_is_refused_where_executors_are_elsewhere(tmp_path: Path, given: str) -> None:
    from reconciler.partitions.spark.columns.tables import TableSource  # noqa: PLC0415 - only where pyspark is

    (tmp_path / "plan.yaml").write_text(PLAN.replace("csv, path: partitions.csv", f"parquet, path: '{given}'"), encoding="utf-8")
    plan = read_plan(str(tmp_path / "plan.yaml"))
    reader: Any = SimpleNamespace(options=lambda: reader, format=lambda _: reader, load=None)
    cluster: Any = SimpleNamespace(conf={"spark.master": "spark://host:7077"}, read=reader)
    with pytest.raises(InvalidInput, match=r"is a path of this machine.*--shared-filesystem"):
        TableSource(cluster, plan).open("partitions", plan.spec.partitions)


TOLD = ("PYSPARK_SUBMIT_ARGS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
SHUFFLE, CODE, JAVA = "spark.sql.shuffle.partitions", "spark.sql.codegen.cache.maxEntries", "spark.driver.extraJavaOptions"


@pytest.fixture
def nothing_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has set anything for Spark or Java."""
    for name in ("PYSPARK_GATEWAY_PORT", "SPARK_CONF_DIR", "SPARK_HOME", *TOLD):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("nothing_outside")
@pytest.mark.parametrize(
    ("master", "parts"),
    [("local", 8), ("local[2]", 16), ("local[2, 4]", 16), (None, min(200, 8 * (os.cpu_count() or 1))), ("local[64]", 200)],
)
def test_a_spark_of_one_process_has_as_many_parts_as_its_cores_need(master: str | None, parts: int) -> None:
    found = session.for_one_machine(session.SparkOptions(master=master))
    assert found == {SHUFFLE: str(parts), CODE: "2000", JAVA: "-XX:+UseParallelGC"}


@pytest.mark.usefixtures("nothing_outside")
def test_what_is_set_for_a_spark_of_one_process_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = session.SparkOptions(master="local[2]", conf={SHUFFLE: "7", JAVA: "-Xss4m"})
    assert session.for_one_machine(given) == {CODE: "2000"}
    (tmp_path / "spark-defaults.conf").write_text(f"{SHUFFLE} 7\nspark.driver.defaultJavaOptions -XX:+UseZGC\n", encoding="utf-8")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert session.for_one_machine(session.SparkOptions(master="local[2]")) == {CODE: "2000"}
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert session.for_one_machine(session.SparkOptions(master="local[2]")) == {}


@pytest.mark.usefixtures("nothing_outside")
@pytest.mark.parametrize("where", TOLD)
def test_a_java_that_was_given_a_collector_gets_no_second_one(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(where, "-XX:+UseSerialGC")
    assert JAVA not in session.for_one_machine(session.SparkOptions(master="local[2]"))
