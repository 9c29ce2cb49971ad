"""The answer to a write shows as much as asking would, or nothing at all."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
import pytest_asyncio

from reconciler.engine.writing.echo import differs, patch_of, patch_of_fact
from reconciler.jetstream.domains import DomainApis
from reconciler.jetstream.read.reader import JetStreamReader
from reconciler.jetstream.transport.connection import Connection
from reconciler.jetstream.transport.settings import ConnectionSettings
from reconciler.jetstream.writer import JetStreamWriter
from reconciler.model.identity import Key
from reconciler.model.seen.live import Live, LiveConsumer, LiveStream
from reconciler.model.seen.wanted import EVERYTHING
from reconciler.procedures.requests import (
    Absent,
    CreateConsumer,
    CreateStream,
    DeleteConsumer,
    DeleteStream,
    Message,
    PauseConsumer,
    ResetConsumer,
    Unanswered,
    UpdateConsumer,
    UpdateStream,
    Write,
    changed_by,
)
from tests.support.account.wire import Wire
from tests.support.cluster.servers import Cluster
from tests.support.server.process import Server
from tests.support.values.build import NOW, consumer, consumer_info, marked, stream

pytestmark = pytest.mark.differs

LATER = "2100-01-01T00:00:00Z"
CLOCK = {"ts", "last_ts", "cluster", "type", "total", "offset", "limit", "did_create", "reset_seq"}
"""What says when and of whom it was asked, not what is there; INFO has `cluster` where other answers leave it out."""


class Scribe:
    """Writes, and keeps up with what is live by the answers alone."""

    def __init__(self, connection: Connection) -> None:
        apis = DomainApis(connection)
        self._writer, self._reader = JetStreamWriter(apis), JetStreamReader(apis)
        self._at = NOW

    async def look(self) -> Live:
        """What is live, asked for."""
        return await self._reader.snapshot(EVERYTHING)

    async def write(self, live: Live, write: Write) -> Live | None:
        """The live state as the answer shows it; None when it shows nothing."""
        self._at += 1
        patch = patch_of(write, await self._writer.write(write), self._at)
        return live.patched(patch) if patch else None


@pytest_asyncio.fixture
async def scribe(any_server: Server) -> Any:
    """On each version under test in turn."""
    async with await Connection.open(ConnectionSettings(servers=(any_server.url,), timeout=5.0)) as connection:
        yield Scribe(connection)


def _wire(config: dict[str, Any]) -> bytes:
    return orjson.dumps(config)


def _same(one: LiveStream | LiveConsumer | None, other: LiveStream | LiveConsumer | None) -> bool:
    """Whether a plan sees the same in both."""
    if one is None or other is None:
        return one is other
    facts = [(seen.digest, seen.owner, seen.spec, seen.special, seen.name, seen.marker) for seen in (one, other)]
    limits = [getattr(seen, "limits", None) for seen in (one, other)]
    states = [{name: _stripped(value) for name, value in seen.info.items() if name not in CLOCK} for seen in (one, other)]
    return facts[0] == facts[1] and limits[0] == limits[1] and states[0] == states[1]


def _stripped(value: Any) -> Any:
    """Without the versions that only some answers name."""
    if isinstance(value, dict):
        return {name: _stripped(part) for name, part in value.items() if name not in {"_nats.ver", "_nats.level"}}
    return value


async def _told(scribe: Scribe, live: Live, write: Write) -> Live:
    """The live state after a write, whose answer shows as much of what was written as asking does."""
    told = await scribe.write(live, write)
    assert told is not None
    there, key = await scribe.look(), changed_by(write)
    assert _same(told.seen(key), there.seen(key))
    assert (told.streams.keys(), told.unknown) == (there.streams.keys(), {})
    assert told.consumers_of(key).keys() == there.consumers_of(key).keys()
    return told


ORDERS = stream("ORDERS", {"subjects": ["o.>"]})
WIDER = stream("ORDERS", {"subjects": ["o.>", "p.>"], "consumerLimits": {"maxAckPending": 500}})
BILLING = consumer("ORDERS", "billing", {"filterSubjects": ["o.>"]})
SLOWER = consumer("ORDERS", "billing", {"filterSubjects": ["o.>"], "ackWait": 45 * 10**9, "maxAckPending": 400})


async def test_answers_to_creates_updates_and_deletes_show_all_there_is(scribe: Scribe, any_server: Server) -> None:
    async with await Wire.connect(any_server.url) as wire:
        live = await _told(scribe, await scribe.look(), CreateStream(ORDERS.key, _wire(marked(ORDERS))))
        await wire.publish("o.a", 3)
        live = await _told(scribe, live, CreateConsumer(BILLING.key, _wire(marked(BILLING))))
        info = live.consumers_of(ORDERS.key)["billing"].info
        assert (info["num_pending"], info["ack_floor"]["stream_seq"]) == (3, 0)
        live = await _told(scribe, live, UpdateConsumer(BILLING.key, _wire(marked(SLOWER))))
        live = await _told(scribe, live, UpdateStream(ORDERS.key, _wire(marked(WIDER))))
        live = await _told(scribe, live, DeleteConsumer(BILLING.key))
        live = await _told(scribe, live, DeleteStream(ORDERS.key))
    assert (live.streams, live.consumers) == ({}, {})


async def test_of_a_pause_only_the_pause_is_told_so_nothing_is_shown(scribe: Scribe) -> None:
    live = await scribe.look()
    for write in (CreateStream(ORDERS.key, _wire(marked(ORDERS))), CreateConsumer(BILLING.key, _wire(marked(BILLING)))):
        assert await scribe.write(live, write)
    assert await scribe.write(live, PauseConsumer(BILLING.key, LATER)) is None
    assert await scribe.write(live, PauseConsumer(BILLING.key, "")) is None


async def test_the_answer_to_a_reset_shows_where_the_consumer_is_now(server: Server) -> None:
    async with (
        await Connection.open(ConnectionSettings(servers=(server.url,), timeout=5.0)) as connection,
        await Wire.connect(server.url) as wire,
    ):
        scribe = Scribe(connection)
        live = await scribe.look()
        for write in (CreateStream(ORDERS.key, _wire(marked(ORDERS))), CreateConsumer(BILLING.key, _wire(marked(BILLING)))):
            live = await _told(scribe, live, write)
        await wire.publish("o.a", 5)
        live = await scribe.look()
        live = await _told(scribe, live, ResetConsumer(BILLING.key, 3))
        found = live.consumer(BILLING.key)
        assert found is not None
        assert found.info["num_pending"] == 3


async def test_a_cluster_answers_with_as_much(cluster: Cluster) -> None:
    replicated, reader = stream("ECHO", {"subjects": ["e.>"], "replicas": 3}), consumer("ECHO", "reader")
    async with await Connection.open(ConnectionSettings(servers=tuple(cluster.url.split(",")), timeout=10.0)) as connection:
        scribe = Scribe(connection)
        live = await scribe.look()
        for write in (CreateStream(replicated.key, _wire(marked(replicated))), CreateConsumer(reader.key, _wire(marked(reader)))):
            live = await _told(scribe, live, write)
        live = await _told(scribe, live, DeleteConsumer(reader.key))
        await _told(scribe, live, DeleteStream(replicated.key))


async def test_an_answer_that_shows_what_was_there_before_shows_nothing(any_server: Server) -> None:
    settings = ConnectionSettings(servers=(any_server.url,), timeout=5.0)
    async with await Connection.open(settings) as connection:
        scribe = Scribe(connection)
        live = await scribe.look()
        for write in (CreateStream(ORDERS.key, _wire(marked(ORDERS))), CreateConsumer(BILLING.key, _wire(marked(BILLING)))):
            assert await scribe.write(live, write)
    any_server.stop()
    any_server.start()
    async with await Connection.open(settings) as connection:
        scribe = Scribe(connection)
        live = await scribe.look()
        assert await scribe.write(live, UpdateConsumer(BILLING.key, _wire(marked(SLOWER)))) is None
        found = (await scribe.look()).consumer(BILLING.key)
        assert found is not None
        assert found.spec == SLOWER.digest


def test_what_was_asked_is_shown_as_it_was_said() -> None:
    assert patch_of_fact(ORDERS.key, Unanswered("silence"), NOW) is None
    assert patch_of_fact(ORDERS.key, Message(1, LATER), NOW) is None
    bucket, gone = Key("KeyValue", "b"), patch_of_fact(Key("KeyValue", "b"), Absent(), NOW)
    assert gone is not None
    assert (gone.streams, gone.at) == ({bucket.stream_key: None}, NOW)


@pytest.mark.parametrize(
    ("echoed", "shown"),
    [
        (marked(BILLING), True),
        (marked(BILLING, owner="somebody"), False),
        (marked(BILLING, max_ack_pending=7), False),
        (marked(SLOWER), False),
    ],
    ids=["what was sent", "another marker", "another configuration", "what was there before"],
)
def test_only_an_answer_that_repeats_what_was_sent_is_believed(echoed: dict[str, Any], shown: bool) -> None:
    for write in (CreateConsumer(BILLING.key, _wire(marked(BILLING))), UpdateConsumer(BILLING.key, _wire(marked(BILLING)))):
        assert (patch_of(write, consumer_info("ORDERS", echoed), NOW) is not None) is shown


@pytest.mark.parametrize(
    ("changed", "noticed"),
    [
        ({}, False),
        ({"num_replicas": 0, "metadata": {**marked(BILLING)["metadata"], "_nats.ver": "2.15.1"}}, False),
        ({"durable_name": "another"}, True),
        ({"durable_name": None}, True),
        ({"metadata": {}}, True),
        ({"metadata": None}, True),
        ({"metadata": {**marked(BILLING)["metadata"], "reconciler.spec": "another"}}, True),
    ],
    ids=["nothing", "what servers add", "a field", "a field is gone", "no metadata", "none at all", "another mark"],
)
def test_an_answer_without_all_that_was_sent_is_noticed(changed: dict[str, Any], noticed: bool) -> None:
    sent = marked(BILLING)
    echoed = {name: value for name, value in {**sent, **changed}.items() if value is not None}
    for write in (CreateConsumer(BILLING.key, _wire(sent)), UpdateConsumer(BILLING.key, _wire(sent))):
        assert differs(write, {"config": echoed}) is noticed
    assert not differs(DeleteConsumer(BILLING.key), {"success": True})


@pytest.mark.parametrize("write", [DeleteConsumer(BILLING.key), DeleteStream(ORDERS.key)])
def test_a_delete_that_did_not_succeed_shows_nothing(write: Write) -> None:
    assert patch_of(write, {"success": False}, NOW) is None
    assert patch_of(write, {}, NOW) is None
