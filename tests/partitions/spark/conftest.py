"""A Spark for the tests of the planner on it, where there are Java 17 and pyspark; else they are skipped, counted and named."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from reconciler.errors import UsageError
from reconciler.partitions.spark.ending import ending_without_memory
from reconciler.partitions.spark.session import need_java
from tests.support.skipped import NO_SPARK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent
BESIDE = "test_plan_by_spark.py"
"""Half of the time is here: a second session beside the first costs three seconds, and uses the second processor."""
QUIET = "-XX:-UsePerfData"
"""No file in /tmp, wherever that is."""
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Small tables are read and planned a few times: compiling them well takes longer than running them."""
PATIENCE = 900
"""Seconds: all that the tests of this process do is in one, and others may be using the processors."""


def missing() -> str | None:
    """What these tests need and this machine lacks, with the command that brings it."""
    try:
        need_java()
    except UsageError as error:
        return str(error)
    return "pyspark is not installed: make spark" if importlib.util.find_spec("pyspark") is None else None


@pytest.hookimpl(tryfirst=True)  # before xdist looks at the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All that share a session in one process; the others, which start processes of their own, in another."""
    lack = missing()
    for item in items:
        if HERE not in item.path.parents:
            continue
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group("plans of Spark" if item.path.name == BESIDE else "spark"))
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(PATIENCE))
        item.add_marker(
            pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::FutureWarning")
        )
        if lack is not None and not os.environ.get("CI"):
            item.add_marker(pytest.mark.skip(reason=f"{NO_SPARK}{lack}"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on one core, whose JVM has ended and left no file when the tests are over."""
    lack = missing()
    if lack is not None:
        pytest.fail(lack)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["SPARK_LAUNCHER_OPTS"] = QUIET
    from pyspark.sql import SparkSession  # noqa: PLC0415 - only where it is installed

    directory = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "1g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"{QUIET} {SHORT_LIVED} -Djava.io.tmpdir={directory}",
        "spark.sql.codegen.cache.maxEntries": "2000",
        "spark.sql.shuffle.partitions": "2",
        "spark.local.dir": str(directory / "local"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    }
    builder = SparkSession.builder.master("local[1]").appName("tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    with ending_without_memory():
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    gateway = session.sparkContext._gateway
    yield session
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # it ends with its parent, which is what it takes this for
    gateway.proc.wait()
