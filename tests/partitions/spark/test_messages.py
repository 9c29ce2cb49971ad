"""What is said where Java, pyspark or a package is missing."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.errors import InvalidInput, UsageError
from reconciler.partitions.plan_file import read_plan
from reconciler.partitions.spark import session
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
    from reconciler.partitions.spark.tables import Source  # noqa: PLC0415 - only where pyspark is

    (tmp_path / "plan.yaml").write_text(PLAN.replace("csv, path: partitions.csv", f"parquet, path: '{given}'"), encoding="utf-8")
    plan = read_plan(str(tmp_path / "plan.yaml"))
    reader: Any = SimpleNamespace(options=lambda: reader, format=lambda _: reader, load=None)
    cluster: Any = SimpleNamespace(conf={"spark.master": "spark://host:7077"}, read=reader)
    with pytest.raises(InvalidInput, match=r"is a path of this machine.*--shared-filesystem"):
        Source(cluster, plan).open("partitions", plan.spec.partitions)
