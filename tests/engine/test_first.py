"""The first test of tests/README.md, word for word."""

from __future__ import annotations

from pathlib import Path

from reconciler.plan.change import Cause
from tests.support.account.wire import Wire
from tests.support.daemon.engine import Engine
from tests.support.values.build import stream


async def test_a_limit_that_somebody_lowered_is_drift(engine: Engine, wire: Wire) -> None:
    declared = stream("S", {"maxMsgs": 1000})
    await engine.apply(declared)
    await wire.expect("STREAM.UPDATE.S", {**(await wire.stream_info("S"))["config"], "max_msgs": 7})
    planned = await engine.plan(declared)
    assert [change.cause for change in planned.plan.changes] == [Cause.DRIFT]


def test_it_stands_in_the_readme() -> None:
    page = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    own = Path(__file__).read_text(encoding="utf-8").partition("async def ")[2].partition("\n\n\n")[0]
    assert own in page
