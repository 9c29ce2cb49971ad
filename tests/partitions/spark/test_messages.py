"""What is said where Java, pyspark or a package is missing."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from reconciler.errors import UsageError
from reconciler.partitions.spark import session


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
    assert "--packages io.delta:delta-spark_4.1_2.13:4.1.0 --conf spark.sql.extensions=" in str(said)


def test_a_package_that_does_not_fit() -> None:
    said = str(session.explained(RuntimeError("java.lang.NoSuchMethodError: LogicalRDD"), "delta"))
    assert "does not fit Spark 4.1.4" in said
    assert "io.delta:delta-spark_4.1_2.13:4.1.0" in said
