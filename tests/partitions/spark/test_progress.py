"""What somebody at a terminal sees of what Spark is doing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("spark")


def test_tasks_that_are_done_are_told_of_all(spark: SparkSession) -> None:
    from reconciler.partitions.spark.progress import watched  # noqa: PLC0415 - only where pyspark is

    told: list[tuple[int, int]] = []
    with watched(spark, lambda done, of: told.append((done, of))):
        while not told:
            spark.range(0, 100_000_000, 1, 40).selectExpr("bit_xor(xxhash64(id))").collect()
    assert all(0 <= done <= of for done, of in told)
    assert max(of for _, of in told) >= 40
    known = len(told)
    spark.range(0, 100_000_000, 1, 40).selectExpr("bit_xor(xxhash64(id))").collect()
    assert len(told) == known


def test_nobody_who_does_not_look_is_told(spark: SparkSession) -> None:
    from reconciler.partitions.spark.progress import watched  # noqa: PLC0415 - only where pyspark is

    with watched(spark, None):
        assert spark.range(3).count() == 3
