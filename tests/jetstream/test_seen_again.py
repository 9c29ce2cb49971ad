"""A reader recognises what it saw before by its bytes; that must never hide a change."""

from __future__ import annotations

import orjson

from reconciler.jetstream.domains import DomainApis
from reconciler.jetstream.read.reader import JetStreamReader
from reconciler.model.identity import Key
from reconciler.model.seen.live import Live, LiveConsumer
from reconciler.model.seen.wanted import EVERYTHING
from reconciler.procedures.requests import Absent
from tests.support.account.connecting import Connect
from tests.support.account.wire import Wire
from tests.support.server.process import Server

STREAM = Key("Stream", "S")
NAMES = [f"c{number}" for number in range(6)]


async def _put(wire: Wire, name: str, action: str = "create", **fields: object) -> None:
    config = {"durable_name": name, "ack_policy": "explicit", **fields}
    await wire.expect(f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": config, "action": action})


def _meanings(live: Live) -> dict[str, tuple[str, str, bool]]:
    return {name: (seen.digest, seen.owner, seen.special) for name, seen in live.consumers_of(STREAM).items()}


def _consumer(live: Live, name: str) -> LiveConsumer:
    found = live.consumer(Key("Consumer", name, "S"))
    assert found is not None
    return found


async def test_a_later_look_says_what_a_first_look_says(any_server: Server, connect: Connect) -> None:
    apis = DomainApis(await connect(any_server.url, timeout=2.0))
    reader = JetStreamReader(apis)
    async with await Wire.connect(any_server.url) as wire:
        await wire.expect("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
        for name in NAMES:
            await _put(wire, name)
        before = await reader.snapshot(EVERYTHING)
        assert all(seen.state for seen in before.consumers_of(STREAM).values()), "this server's answers are never recognised"
        await wire.publish("s.x")
        await _put(wire, "c1", "update", description="drifted")
        await _put(wire, "c2", "update", metadata={"reconciler.owner": "other"})
        await wire.expect("CONSUMER.DELETE.S.c3")
        await wire.expect("CONSUMER.DELETE.S.c4")
        await _put(wire, "c4", max_deliver=3)
        later = await reader.snapshot(EVERYTHING)
        first = await JetStreamReader(apis).snapshot(EVERYTHING)
    assert _meanings(later) == _meanings(first)
    changed = {name for name, meaning in _meanings(later).items() if meaning != _meanings(before)[name]}
    assert changed == {"c1", "c2", "c4"}
    assert _consumer(later, "c5").info["num_pending"] == 1
    assert "c3" not in later.consumers_of(STREAM)


async def test_only_what_says_the_very_same_passes_for_unchanged(any_server: Server, connect: Connect) -> None:
    """Its clock, and what a server notes beside a configuration, may differ; a metadata field of the same name may not."""
    apis = DomainApis(await connect(any_server.url, timeout=2.0))
    reader = JetStreamReader(apis)
    ours = {"reconciler.owner": "default", "ts": "1", "type": "1"}
    async with await Wire.connect(any_server.url) as wire:
        await wire.expect("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
        for name in NAMES:
            await _put(wire, name, metadata=ours)
        before = await reader.snapshot(EVERYTHING)
        for name in NAMES:
            assert await reader.changed(Key("Consumer", name, "S"), _consumer(before, name)) is None, "it never passes"
        await _put(wire, "c0", "update", metadata=ours | {"ts": "2"})
        await _put(wire, "c1", "update", metadata=ours | {"type": "2"})
        await _put(wire, "c2", "update", metadata=ours, description='says "_nats.ver":"1",')
        await wire.expect("CONSUMER.DELETE.S.c3")
        await wire.expect("CONSUMER.DELETE.S.c4")
        await _put(wire, "c4", metadata=ours)
        found = {name: await reader.changed(Key("Consumer", name, "S"), _consumer(before, name)) for name in NAMES}
        assert {name for name, fact in found.items() if fact is None} == {"c5"}
        assert isinstance(found["c3"], Absent)
        assert isinstance(found["c2"], dict)
        await _put(wire, "c2", "update", metadata=ours, description='says "_nats.ver":"2",')
        assert not _consumer(await reader.snapshot(EVERYTHING), "c2").shown_by(orjson.dumps(found["c2"]))
        await wire.publish("s.x")
        assert isinstance(await reader.changed(Key("Consumer", "c5", "S"), _consumer(before, "c5")), dict)
