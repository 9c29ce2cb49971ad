"""The bulk view: complete, cheap, and honest about what it did not see."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from reconciler.errors import AccessDenied, NatsError
from reconciler.jetstream.domains import DomainApis
from reconciler.jetstream.read.reader import JetStreamReader
from reconciler.jetstream.writer import JetStreamWriter
from reconciler.model.identity import Key
from reconciler.model.seen.live import Live
from reconciler.model.seen.wanted import EVERYTHING, Wanted
from reconciler.procedures.requests import (
    Absent,
    ConsumerInfo,
    CreateConsumer,
    CreateStream,
    DeleteConsumer,
    DeleteStream,
    Message,
    NextMessage,
    PauseConsumer,
    ResetConsumer,
    StreamInfo,
    UpdateConsumer,
    UpdateStream,
)
from tests.support.account.connecting import Connect
from tests.support.account.wire import Wire
from tests.support.cluster.servers import Cluster
from tests.support.server.process import Server

pytestmark = pytest.mark.differs

NOW = 1_800_000_000 * 10**9
OWNED = {"reconciler.owner": "team", "reconciler.spec": "s"}


def _stream(name: str) -> Key:
    return Key("Stream", name)


async def _apis(connect: Connect, server: Server, **settings: object) -> DomainApis:
    return DomainApis(await connect(server.url, **{"timeout": 2.0, **settings}))


async def _make(wire: Wire, stream: str, consumers: int = 0, **config: object) -> None:
    await wire.expect(f"STREAM.CREATE.{stream}", {"name": stream, "subjects": [f"{stream}.>"], "max_consumers": 5000, **config})
    for start in range(0, consumers, 100):
        names = [f"c{number}" for number in range(start, min(consumers, start + 100))]
        await asyncio.gather(*(_consumer(wire, stream, name) for name in names))


async def _consumer(wire: Wire, stream: str, name: str) -> None:
    config = {"durable_name": name, "ack_policy": "explicit"}
    await wire.expect(f"CONSUMER.CREATE.{stream}.{name}", {"stream_name": stream, "config": config, "action": "create"})


async def _look(apis: DomainApis, wanted: Wanted = EVERYTHING) -> Live:
    return await JetStreamReader(apis, lambda: NOW).snapshot(wanted)


async def test_all_streams_and_consumers_are_seen(server: Server, wire: Wire, connect: Connect) -> None:
    await _make(wire, "A", 600)
    await _make(wire, "B", 3)
    await _make(wire, "EMPTY")
    apis = await _apis(connect, server)
    live = await _look(apis)
    assert set(live.streams) == {_stream("A"), _stream("B"), _stream("EMPTY")}
    assert set(live.consumers_of(_stream("A"))) == {f"c{number}" for number in range(600)}
    assert (len(live.consumers_of(_stream("B"))), len(live.consumers_of(_stream("EMPTY")))) == (3, 0)
    assert (live.unknown, live.observed_at) == ({}, NOW)


async def test_pages_not_resources_cost_requests(server: Server, wire: Wire, connect: Connect) -> None:
    await _make(wire, "A", 600)
    await _make(wire, "B", 3)
    await _make(wire, "EMPTY")
    apis = await _apis(connect, server)
    await _look(apis)
    assert apis("").requests == Counter({"CONSUMER.LIST": 4, "STREAM.LIST": 1, "INFO": 1})


async def test_consumers_only_of_streams_that_matter(server: Server, wire: Wire, connect: Connect) -> None:
    await _make(wire, "DECLARED", 1)
    await _make(wire, "OURS", 1, metadata=OWNED)
    await _make(wire, "OTHER", 1)
    live = await _look(await _apis(connect, server), Wanted(streams=frozenset({_stream("DECLARED")}), owner="team"))
    assert set(live.streams) == {_stream("DECLARED"), _stream("OURS"), _stream("OTHER")}
    assert set(live.consumers) == {_stream("DECLARED"), _stream("OURS")}


async def test_the_server_is_described(any_server: Server, connect: Connect) -> None:
    live = await _look(await _apis(connect, any_server))
    major = int(any_server.version.split(".")[1])
    assert live.server.version == any_server.version
    assert live.server.level == {11: 1, 12: 3, 14: 4, 15: 5}[major]
    assert not live.server.clustered


async def test_a_list_that_may_not_be_read_leaves_its_stream_unknown(tmp_path: Path, connect: Connect) -> None:
    config = """
    accounts { A { jetstream: enabled, users: [
      {user: all, password: x},
      {user: part, password: x, permissions: {publish: {deny: ["$JS.API.CONSUMER.LIST.SECRET"]}}},
      {user: none, password: x, permissions: {publish: {deny: ["$JS.API.STREAM.LIST"]}}} ] } }
    """
    with Server(tmp_path / "denying", config=config) as server:
        async with await Wire.connect(server.url, user="all", password="x") as wire:
            await _make(wire, "SECRET", 1)
            await _make(wire, "OPEN", 1)
        live = await _look(await _apis(connect, server, user="part", password="x"))
        assert list(live.consumers) == [_stream("OPEN")]
        assert "permission denied" in live.unknown[_stream("SECRET")]
        assert live.why_unknown(Key("Consumer", "c0", "SECRET"))
        with pytest.raises(AccessDenied):
            await _look(await _apis(connect, server, user="none", password="x"))


async def test_a_domain_that_does_not_answer_is_unknown_not_empty(server: Server, wire: Wire, connect: Connect) -> None:
    await _make(wire, "HERE")
    live = await _look(await _apis(connect, server), Wanted(domains=frozenset({"", "away"}), everything=True))
    assert list(live.streams) == [_stream("HERE")]
    assert live.why_unknown(Key("Stream", "ANY", "", "away"))
    assert live.why_unknown(_stream("ANY")) is None


async def test_what_lives_in_a_domain_has_keys_of_that_domain(tmp_path: Path, connect: Connect) -> None:
    with Server(tmp_path / "hub", jetstream="domain: hub") as server:
        async with await Wire.connect(server.url) as wire:
            await _make(wire, "A", 2)
        live = await _look(await _apis(connect, server), Wanted(domains=frozenset({"hub"}), everything=True))
    assert live.server.domain == "hub"
    assert live.consumer(Key("Consumer", "c1", "A", "hub")) is not None
    assert live.stream(_stream("A")) is None


async def test_a_frozen_server_is_an_error_not_an_empty_account(server: Server, wire: Wire, connect: Connect) -> None:
    await _make(wire, "HERE")
    apis = await _apis(connect, server, timeout=1.0)
    server.freeze()
    with pytest.raises(NatsError):
        await _look(apis)


async def test_replicas_without_a_leader_are_unknown(cluster: Cluster, connect: Connect) -> None:
    async with await Wire.connect(cluster.url) as wire:
        for stream in ("R1", "R3"):
            await _make(wire, stream, 1, num_replicas=int(stream[1]))
        home = (await wire.stream_info("R1"))["cluster"]["leader"]
    server = next(each for each in cluster.servers if each.name == home)
    other = next(each for each in cluster.servers if each is not server)
    server.stop()
    try:
        apis = await _apis(connect, other, timeout=10.0)
        cluster.wait_ready()
        live = await _look(apis)
        while _stream("R3") not in live.consumers:  # the others elect a new leader; pytest's timeout ends this
            live = await _look(apis)
        assert live.server.clustered
        assert live.why_unknown(_stream("R1"))
        assert live.stream(_stream("R1")) is None
        assert live.consumer(Key("Consumer", "c0", "R3")) is not None
    finally:
        server.start()
        cluster.wait_ready()


async def test_refresh_reads_exactly_the_keys_it_was_given(server: Server, wire: Wire, connect: Connect) -> None:
    await _make(wire, "A", 3)
    await _make(wire, "B", 1)
    apis = await _apis(connect, server)
    reader = JetStreamReader(apis)
    before = await reader.snapshot(EVERYTHING)
    await wire.expect("CONSUMER.DELETE.A.c0")
    await wire.expect("STREAM.DELETE.B")
    await _make(wire, "NEW")
    apis("").requests.clear()
    keys = [Key("Consumer", "c0", "A"), Key("Consumer", "c1", "A"), _stream("B"), _stream("NEW")]
    after = before.patched(await reader.refresh(before, keys))
    assert set(after.streams) == {_stream("A"), _stream("NEW")}
    assert set(after.consumers_of(_stream("A"))) == {"c1", "c2"}
    assert after.unknown == {}
    assert apis("").requests == Counter({"CONSUMER.INFO": 2, "STREAM.INFO": 2})
    assert set(before.consumers_of(_stream("A"))) == {"c0", "c1", "c2"}


async def test_many_keys_of_one_stream_are_refreshed_by_one_list(server: Server, wire: Wire, connect: Connect) -> None:
    await _make(wire, "A", 30)
    apis = await _apis(connect, server)
    reader = JetStreamReader(apis)
    live = await reader.snapshot(EVERYTHING)
    await wire.expect("CONSUMER.DELETE.A.c7")
    apis("").requests.clear()
    after = live.patched(await reader.refresh(live, [Key("Consumer", f"c{number}", "A") for number in range(30)]))
    assert len(after.consumers_of(_stream("A"))) == 29
    assert apis("").requests == Counter({"CONSUMER.LIST": 1})


async def test_silence_during_a_refresh_removes_nothing(server: Server, wire: Wire, connect: Connect) -> None:
    await _make(wire, "A", 2)
    reader = JetStreamReader(await _apis(connect, server, timeout=1.0))
    live = await reader.snapshot(EVERYTHING)
    server.freeze()
    after = live.patched(await reader.refresh(live, [Key("Consumer", "c0", "A"), _stream("A")]))
    server.thaw()
    assert (set(after.streams), set(after.consumers_of(_stream("A")))) == ({_stream("A")}, {"c0", "c1"})
    assert after.why_unknown(_stream("A"))


async def test_reads_say_absent_only_when_the_server_does(server: Server, wire: Wire, connect: Connect) -> None:
    await _make(wire, "A", 1)
    await wire.publish("A.x", 3)
    reader = JetStreamReader(await _apis(connect, server, timeout=1.0))
    assert await reader.read(StreamInfo(_stream("NONE"))) == Absent()
    assert await reader.read(ConsumerInfo(Key("Consumer", "none", "A"))) == Absent()
    assert await reader.read(ConsumerInfo(Key("Consumer", "none", "NONE"))) == Absent()
    assert await reader.read(NextMessage(_stream("A"), "A.y", 1)) == Absent()
    found = await reader.read(NextMessage(_stream("A"), "A.x", 2))
    assert isinstance(found, Message)
    assert found.seq == 2
    info = await reader.read(StreamInfo(_stream("A"), "A.>"))
    assert isinstance(info, dict)
    assert info["state"]["subjects"] == {"A.x": 3}
    server.freeze()
    with pytest.raises(NatsError):
        await reader.read(StreamInfo(_stream("NONE")))


async def test_each_write_is_one_changing_request(server: Server, wire: Wire, connect: Connect) -> None:
    writer = JetStreamWriter(await _apis(connect, server))
    consumer = Key("Consumer", "c", "A")
    async with wire.audit() as audit:
        await writer.write(CreateStream(_stream("A"), b'{"name":"A","subjects":["a"]}'))
        await writer.write(UpdateStream(_stream("A"), b'{"name":"A","subjects":["a","b"]}'))
        config = b'{"durable_name":"c","ack_policy":"explicit"%s}'
        await writer.write(CreateConsumer(consumer, config % b""))
        await writer.write(UpdateConsumer(consumer, config % b',"description":"new"'), level=1)
        await writer.write(PauseConsumer(consumer, "2100-01-01T00:00:00Z"))
        await writer.write(PauseConsumer(consumer, ""))
        await writer.write(ResetConsumer(consumer, 1))
        await writer.write(DeleteConsumer(consumer))
        await writer.write(DeleteStream(_stream("A")))
    operations = "STREAM.CREATE.A STREAM.UPDATE.A CONSUMER.CREATE.A.c CONSUMER.CREATE.A.c CONSUMER.PAUSE.A.c CONSUMER.PAUSE.A.c "
    operations += "CONSUMER.DELETE.A.c STREAM.DELETE.A"  # the server does not report RESET
    assert sorted(audit.writes("reconciler")) == sorted(f"$JS.API.{operation}" for operation in operations.split())
