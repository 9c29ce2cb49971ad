"""One change of one request: what makes it wrong by now, and what silence is found to have been."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from reconciler.engine import Planned
from reconciler.engine.attempt import Attempt, SingleRequests, differences
from reconciler.engine.sending import Sender
from reconciler.engine.throttle import Throttle
from reconciler.errors import Moved, NoAnswer
from reconciler.plan.scene import Scene
from tests.support.account.wire import Wire
from tests.support.daemon.engine import Engine
from tests.support.values.build import OLD, consumer, consumer_info, marked, stream, stream_info

WORK = stream("WORK", {"subjects": ["work.>"]})
SILENCE = NoAnswer("nothing came back in time")


async def _advance(engine: Engine, planned: Planned, silence: NoAnswer | None = None) -> None:
    """One try of the only change of a plan; with a silence, as if it had been sent before."""
    (change,) = planned.plan.changes
    scene = Scene(planned.desired, planned.live, planned.rules, planned.memory)
    sender = Sender(engine.ports, Throttle(0, engine.ports.clock), scene.normal)
    await SingleRequests(engine.ports.reader, sender, scene).advance(Attempt(change, silence=silence))


@pytest.mark.parametrize(
    ("before", "now", "found"),
    [
        ({}, {}, []),
        ({}, {"created": "2026-02-01T00:00:00Z"}, ["it was removed and made anew"]),
        ({"messages": 0}, {"messages": 3}, ["it has 3 messages now"]),
        ({"messages": 1}, {"messages": 3}, []),
        ({"consumer_count": 1}, {"consumer_count": 2}, ["it has 2 consumers now"]),
    ],
)
def test_a_stream_is_removed_as_it_was_judged(before: dict[str, Any], now: dict[str, Any], found: list[str]) -> None:
    def info(state: dict[str, Any]) -> dict[str, Any]:
        created = {"created": state.get("created", OLD)}
        return stream_info(marked(WORK), **{name: value for name, value in state.items() if name != "created"}) | created

    assert list(differences(info(before), info(now))) == found


@pytest.mark.parametrize("left", ["num_pending", "num_ack_pending"])
def test_a_consumer_that_has_work_by_now_is_not_removed(left: str) -> None:
    idle = consumer_info("WORK", marked(consumer("WORK", "w")))
    assert list(differences(idle, idle)) == []
    assert len(list(differences(idle, idle | {left: 1}))) == 1


async def test_what_nobody_answered_and_is_not_there_is_sent_again(engine: Engine, wire: Wire) -> None:
    await _advance(engine, await engine.plan(WORK), SILENCE)
    assert (await wire.stream_info("WORK"))["config"]["subjects"] == ["work.>"]


async def test_what_nobody_answered_and_is_there_is_not_sent_again(engine: Engine, wire: Wire) -> None:
    planned = await engine.plan(WORK)
    await wire.expect("STREAM.CREATE.WORK", orjson.loads(planned.plan.changes[0].config))
    async with wire.audit() as audit:
        await _advance(engine, planned, SILENCE)
    assert audit.writes("reconciler") == []


async def test_what_somebody_else_made_meanwhile_is_not_taken_for_what_nobody_answered(engine: Engine, wire: Wire) -> None:
    planned = await engine.plan(WORK)
    await wire.expect("STREAM.CREATE.WORK", marked(WORK, owner="somebody"))
    with pytest.raises(Moved, match="created by somebody else"):
        await _advance(engine, planned, SILENCE)


async def test_a_limit_does_not_fall_below_what_was_published_since_it_was_planned(engine: Engine, wire: Wire) -> None:
    await engine.apply(WORK)
    planned = await engine.plan(stream("WORK", {"subjects": ["work.>"], "maxMsgs": 2}))
    await wire.publish("work.x", 3)
    with pytest.raises(Moved, match="maxMsgs 2 is below the 3 messages stored"):
        await _advance(engine, planned)
    assert (await wire.stream_info("WORK"))["state"]["messages"] == 3
