"""A consumer that loses its filters delivers everything: what is published after the apply, and on interest it is kept.

A server lets a consumer go deaf whose filters are all taken away by an update, and on interest it drops what it publishes from
then on. So no such update may be sent.
"""

from __future__ import annotations

import json

import pytest

from reconciler.engine.apply.outcome import Verdict
from tests.support.account.wire import Wire
from tests.support.daemon.engine import Start
from tests.support.server.process import Server
from tests.support.values.build import consumer, stream

pytestmark = pytest.mark.differs

SUBJECTS = ("s.a", "s.b", "s.c")
EACH = 5


async def delivered(wire: Wire, name: str) -> list[str]:
    """The ids of everything that this reader of S gets, in that order."""
    inbox = wire.client.new_inbox()
    replies = await wire.client.subscribe(inbox)
    body = json.dumps({"batch": 100, "no_wait": True}).encode()
    await wire.client.publish(f"$JS.API.CONSUMER.MSG.NEXT.S.{name}", body, reply=inbox)
    found = []
    while (message := await replies.next_msg(timeout=10)).reply.startswith("$JS.ACK"):
        found.append(message.data.decode())
        await message.respond(b"+ACK")
    await replies.unsubscribe()
    return found


async def published(wire: Wire, first: int) -> list[str]:
    """A few messages on each subject, each acknowledged by S; their ids."""
    ids = [f"{subject}-{number}" for number in range(first, first + EACH) for subject in SUBJECTS]
    for one in ids:
        answer = json.loads((await wire.client.request(one.partition("-")[0], one.encode(), timeout=5)).data)
        assert answer["stream"] == "S"
    return ids


@pytest.mark.matrix
@pytest.mark.parametrize("retention", ["limits", "interest"])
@pytest.mark.parametrize("filters", [["s.a"], ["s.a", "s.b"]], ids=["one", "two"])
async def test_a_consumer_without_its_filters_gets_everything(
    any_server: Server, start: Start, retention: str, filters: list[str]
) -> None:
    engine = await start(any_server)
    origin = stream("S", {"subjects": ["s.>"], "retention": retention})
    await engine.apply(origin, consumer("S", "c", {"filterSubjects": filters}))
    for number in range(2):  # and once more with nothing to do
        applied = await engine.apply(origin, consumer("S", "c"))
        assert applied.verdict is Verdict.IN_PLACE
        async with await Wire.connect(any_server.url) as wire:
            assert await published(wire, number * EACH) == await delivered(wire, "c")
    assert (await engine.plan(origin, consumer("S", "c"))).plan.changes == ()


@pytest.mark.matrix
@pytest.mark.parametrize("retention", ["limits", "interest"])
async def test_filters_that_come_back_are_the_only_ones(any_server: Server, start: Start, retention: str) -> None:
    engine = await start(any_server)
    origin = stream("S", {"subjects": ["s.>"], "retention": retention})
    for spec in ({"filterSubjects": ["s.a"]}, {}, {"filterSubjects": ["s.b"]}):
        assert (await engine.apply(origin, consumer("S", "c", spec))).verdict is Verdict.IN_PLACE
    async with await Wire.connect(any_server.url) as wire:
        ids = await published(wire, 0)
        assert [one for one in ids if one.startswith("s.b")] == await delivered(wire, "c")
