"""One Spark for all tests of the planner on it, where there are Java 17 and pyspark; else they are skipped, counted and named."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from reconciler.errors import UsageError
from reconciler.partitions.spark.session import need_java
from tests.support.skipped import NO_SPARK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent


def missing() -> str | None:
    """What these tests need and this machine lacks, with the command that brings it."""
    try:
        need_java()
    except UsageError as error:
        return str(error)
    return "pyspark is not installed: make spark" if importlib.util.find_spec("pyspark") is None else None


@pytest.hookimpl(tryfirst=True)  # xdist looks for groups when its turn comes
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of them in one process, which shares one session."""
    lack = missing()
    for item in items:
        if HERE not in item.path.parents:
            continue
        item.add_marker(pytest.mark.xdist_group("spark"))
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(300))
        item.add_marker(
            pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::FutureWarning")
        )
        if lack is not None and not os.environ.get("CI"):
            item.add_marker(pytest.mark.skip(reason=f"{NO_SPARK}{lack}"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on one core."""
    lack = missing()
    if lack is not None:
        pytest.fail(lack)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    from pyspark.sql import SparkSession  # noqa: PLC0415 - only where it is installed

    directory = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.local.dir": str(directory / "local"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    }
    builder = SparkSession.builder.master("local[1]").appName("tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
