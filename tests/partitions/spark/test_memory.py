"""A Spark with hardly any memory, which is started by the command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.partitions.files import Desk, Ended
from tests.support.partitions.files import desk as made
from tests.support.partitions.standalone import LITTLE, confs, ran, reconciler

pytestmark = pytest.mark.xdist_group("places of Spark")
HEAP = {"spark.driver.memory": "190m", "spark.testing.memory": str(600 * 1024 * 1024)}
"""Spark refuses to start with less than 450 MB, unless it believes that it has more."""
IN_QUERY = {"spark.sql.execution.arrow.localRelationThreshold": "48MB"}
"""What Spark does with a table that is sent, if nobody says otherwise: its scheduler dies of it, and everybody waits."""


@pytest.fixture
def planned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """Plans a few partitions after a plan of many, which are sent to Spark."""
    desk: Desk = made(tmp_path, capsys)
    desk.table("previous.csv", "subject,worker", [f"dc.tool{number // 4}.chamber{number % 4},w-a" for number in range(300_000)])
    desk.plan("previous: {format: csv, path: previous.csv}", "gates: {maxInputShrink: 1, maxMovedFraction: 1}")

    def run(*settings: dict[str, str]) -> Ended:
        asked = reconciler("partitions", "plan", "-c", tmp_path / "plan.yaml", "--engine", "spark", "--master", "local[1]")
        return ran([*asked, *confs(LITTLE, HEAP, *settings)], tmp_path)

    return run


def test_a_spark_without_memory_ends_and_says_what_gives_it_more(planned: Callable[..., Ended]) -> None:
    ended = planned(IN_QUERY)
    assert (ended.code, ended.out) == (1, ""), ended
    said = "error: Spark has used up its memory (spark.driver.memory: 190m) and has ended"
    assert ended.err.splitlines()[-1] == f"{said}: give it more (--conf spark.driver.memory=SIZE)"


@pytest.mark.thorough(also="tests/partitions/spark/test_memory.py::test_a_spark_without_memory_ends_and_says_what_gives_it_more")
def test_what_is_sent_to_spark_takes_little_of_its_memory(planned: Callable[..., Ended]) -> None:
    ended = planned()
    assert ended.code == 0, ended
    assert ended.out.startswith("processor: 100 partitions on 4 workers")
