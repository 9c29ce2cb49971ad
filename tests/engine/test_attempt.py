"""One change of one request: what makes it wrong by now, and what silence is found to have been."""

from __future__ import annotations

import orjson
import pytest

from reconciler.engine.apply.attempt import SingleRequests
from reconciler.engine.planning import Planned
from reconciler.engine.writing.judging import PlannedJudge as Judging
from reconciler.errors import Moved
from reconciler.plan.scene import Scene
from reconciler.procedures.requests import UpdateConsumer
from tests.support.account.wire import Wire
from tests.support.clock.until import until
from tests.support.daemon.engine import Engine
from tests.support.values.build import consumer, marked, stream

WORK = stream("WORK", {"subjects": ["work.>"]})


async def _advance(engine: Engine, planned: Planned, silence: bool = False) -> None:
    """One try of the only change of a plan; with a silence, as if it had been sent before."""
    (change,) = planned.plan.changes
    scene = Scene(planned.desired, planned.live, planned.rules, planned.memory)
    if silence:
        engine.ports.writes._silent.add(change.key.live_key)
    await SingleRequests(engine.ports.writes, scene, lambda _: engine.lease).carry_out(change)


async def test_what_nobody_answered_and_is_not_there_is_sent_again(engine: Engine, wire: Wire) -> None:
    await _advance(engine, await engine.plan(WORK), silence=True)
    assert (await wire.stream_info("WORK"))["config"]["subjects"] == ["work.>"]


async def test_what_nobody_answered_and_is_there_is_not_sent_again(engine: Engine, wire: Wire) -> None:
    planned = await engine.plan(WORK)
    await wire.expect("STREAM.CREATE.WORK", orjson.loads(planned.plan.changes[0].config))
    async with wire.audit() as audit:
        await _advance(engine, planned, silence=True)
    assert audit.writes("reconciler") == []


async def test_what_somebody_else_made_meanwhile_is_not_taken_for_what_nobody_answered(engine: Engine, wire: Wire) -> None:
    planned = await engine.plan(WORK)
    await wire.expect("STREAM.CREATE.WORK", marked(WORK, owner="somebody"))
    with pytest.raises(Moved, match="created by somebody else"):
        await _advance(engine, planned, silence=True)


async def test_a_limit_does_not_fall_below_what_was_published_since_it_was_planned(engine: Engine, wire: Wire) -> None:
    await engine.apply(WORK)
    planned = await engine.plan(stream("WORK", {"subjects": ["work.>"], "maxMsgs": 2}))
    await wire.publish("work.x", 3)
    with pytest.raises(Moved, match="maxMsgs 2 is below the 3 messages stored"):
        await _advance(engine, planned)
    assert (await wire.stream_info("WORK"))["state"]["messages"] == 3


async def test_what_was_made_anew_as_it_was_is_not_what_was_judged(engine: Engine, wire: Wire) -> None:
    await engine.apply(WORK)
    planned = await engine.plan(stream("WORK", {"subjects": ["work.>"], "description": "another"}))
    config = (await wire.stream_info("WORK"))["config"]
    await wire.expect("STREAM.DELETE.WORK")
    await wire.expect("STREAM.CREATE.WORK", config)
    with pytest.raises(Moved, match="removed and made anew"):
        await _advance(engine, planned)


async def test_what_somebody_has_configured_since_is_not_taken_back_unseen(engine: Engine, wire: Wire) -> None:
    await engine.apply(WORK)
    planned = await engine.plan(stream("WORK", {"subjects": ["work.>"], "description": "another"}))
    config = (await wire.stream_info("WORK"))["config"]
    await wire.expect("STREAM.UPDATE.WORK", config | {"max_msgs": 1000})
    with pytest.raises(Moved, match="its configuration changed"):
        await _advance(engine, planned)
    assert (await wire.stream_info("WORK"))["config"]["max_msgs"] == 1000


async def test_a_consumer_with_more_to_do_than_was_judged_is_judged_again(engine: Engine, wire: Wire) -> None:
    await engine.apply(WORK, consumer("WORK", "c"))
    planned = await engine.plan(WORK, consumer("WORK", "c", {"maxDeliver": 5}))
    change = planned.plan.changes[0]
    scene = Scene(planned.desired, planned.live, planned.rules, planned.memory)
    judge = Judging(engine.ports.reader, scene, change)
    write = UpdateConsumer(change.key, change.config)
    assert await judge._look(write) is None, "the very same, which was judged"
    await wire.publish("work.x")

    async def counted() -> bool:
        return bool((await wire.consumer_info("WORK", "c"))["num_pending"])

    await until(counted, 10.0)
    live = await judge._look(write)
    assert live is not None
    seen = live.consumer(change.key)
    assert seen is not None
    assert seen.info["num_pending"] == 1
    assert await judge.judged(write) == write
