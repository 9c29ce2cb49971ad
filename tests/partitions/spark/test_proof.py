"""What Spark has planned is proven from its own rows: a plan that breaks a rule is never handed on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from reconciler.partitions.planning.model import NEW, MoveReason, PlanningRules, Workers
from reconciler.partitions.planning.planner import BrokenPlan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("spark")

AROUND = Workers(("a", "b", "c", "d"), (1,) * 4, (2, 2, 2, 2), (True, True, True, False), (0, 0, 1, 1), (False,) * 4)
PLAN: dict[str, dict[str, int]] = {
    "pinned": {"home": 0, "pin": 0, "zone": 0, "place": 0},
    "stays": {"home": 1, "pin": -1, "zone": 0, "place": 1},
    "drained": {"home": 3, "pin": -1, "zone": 1, "place": 2},
    "new": {"home": NEW, "pin": -1, "zone": 1, "place": 2},
}
"""By subject."""


def proven(spark: SparkSession, rows: list[tuple[str, dict[str, int]]], budget: int | None = None) -> Any:
    """What the proof says of these rows, when it was asked for those of PLAN."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - only where pyspark is

    from reconciler.partitions.spark.solving.proving import Asked, prove  # noqa: PLC0415 - the same

    asked = spark.createDataFrame([(subject,) for subject in PLAN], "subject string")
    (known,) = asked.agg(F.bit_xor(F.xxhash64("subject")).alias("hashes")).toArrow().to_pylist()
    columns: dict[str, Any] = {"subject": [subject for subject, _ in rows], "problem": [0] * len(rows), "w": [1] * len(rows)}
    columns |= {name: pa.array([row[name] for _, row in rows], pa.int32()) for name in ("home", "pin", "zone", "place")}
    columns |= {"item_home": columns["home"], "reason": [int(MoveReason.STAYS)] * len(rows)}
    rules = PlanningRules(100_000, 50_000, fill=True, budget=budget, zones="hard")
    found = prove(spark.createDataFrame(pa.table(columns)), [(AROUND, rules, 0)], [Asked(4, known["hashes"], True)], units=False)
    return dict(found.counts)


def changed(subject: str, **values: int) -> list[tuple[str, dict[str, int]]]:
    """The plan, but for one partition."""
    return [*({**PLAN, subject: {**PLAN[subject], **values}}).items()]


def test_a_good_plan_is_counted(spark: SparkSession) -> None:
    assert proven(spark, [*PLAN.items()]) == {0: 1, 1: 1, 2: 2}
    assert proven(spark, changed("drained", place=3), budget=0) == {0: 1, 1: 1, 2: 1, 3: 1}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([*PLAN.items()][1:], "a partition that is lost, or there twice"),
        ([*PLAN.items(), ("stays", PLAN["stays"])], "a partition that is lost, or there twice"),
        ([*[*PLAN.items()][:3], ("another", PLAN["new"])], "a partition that is lost, or there twice"),
        (changed("new", place=-1), "a partition without a worker"),
        (changed("new", place=4), "a partition without a worker"),
        (changed("pinned", place=1), "a pin that is not kept"),
        (changed("stays", place=2), "a partition outside of its zone"),
        (changed("stays", zone=1, place=2), "more subjects than a worker may have"),
        (changed("new", place=3), "a draining worker that receives"),
        (changed("drained", place=3), "a draining worker that keeps something"),
    ],
)
def test_a_plan_that_breaks_a_rule_is_refused(spark: SparkSession, rows: list[tuple[str, dict[str, int]]], said: str) -> None:
    with pytest.raises(BrokenPlan, match=said):
        proven(spark, rows)
