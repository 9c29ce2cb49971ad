"""What tells the bucket of a lease that was deleted from one that never was."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.jetstream.domains import DomainApis
from reconciler.jetstream.leading.traces import Trace, traces_of
from reconciler.jetstream.transport.connection import Connection
from reconciler.model.identity import Key
from tests.support.account.connecting import Connect
from tests.support.account.wire import Wire
from tests.support.server.leaves import hub_and_leaves
from tests.support.server.process import Server

BUCKET = "KV_reconciler-prod"
OURS = {"reconciler.owner": "prod"}
THEIRS = {"reconciler.owner": "another"}


async def found(connection: Connection, *streams: Key) -> Trace:
    """What shows that the owner `prod`, who declares something on these streams, has led before."""
    return await traces_of("prod", DomainApis(connection), lambda: streams, beside=BUCKET)()


async def _make(wire: Wire, stream: str, metadata: dict[str, str], of_consumer: dict[str, str]) -> None:
    """A stream with a consumer."""
    await wire.expect(f"STREAM.CREATE.{stream}", {"name": stream, "subjects": [stream], "metadata": metadata})
    consumer = {"durable_name": "c", "ack_policy": "explicit", "metadata": of_consumer}
    await wire.expect(f"CONSUMER.CREATE.{stream}.c", {"stream_name": stream, "action": "create", "config": consumer})


@pytest.mark.parametrize("where", ["stream", "consumer"])
async def test_a_mark_of_the_owner_is_one_and_no_mark_of_another(
    server: Server, wire: Wire, connect: Connect, where: str
) -> None:
    connection, declared = await connect(server.url), Key("Stream", "C")
    await _make(wire, "A", {}, {})
    await _make(wire, "B", THEIRS, THEIRS)
    assert await found(connection, declared, Key("Stream", "B")) is Trace.NONE
    await _make(wire, "C", *((OURS, {}) if where == "stream" else (THEIRS, OURS)))
    assert await found(connection, declared) is Trace.MARK


async def test_what_cannot_be_looked_at_may_hide_one_but_for_the_bucket_itself(tmp_path: Path, connect: Connect) -> None:
    user = '{{user: {0}, password: {0}, permissions: {{publish: {{deny: ["{1}"]}}}}}}'
    users = f"{user.format('b', '$JS.API.CONSUMER.LIST.>')}, {user.format('c', '$JS.API.STREAM.LIST')}"
    with Server(tmp_path / "s", config=f"authorization {{ users: [{{user: a, password: a}}, {users}] }}") as server:
        async with await Wire.connect(server.url, user="a", password="a") as wire:
            partly, nothing = [await connect(server.url.replace("nats://", f"nats://{one}:{one}@")) for one in "bc"]
            streams = (Key("Stream", BUCKET), Key("Stream", "SECRET"))
            await _make(wire, BUCKET, {}, {})
            assert await found(partly, *streams) is Trace.NONE
            assert await found(nothing, *streams) is Trace.HIDDEN
            await _make(wire, "SECRET", {}, {})
            assert await found(partly, *streams) is Trace.HIDDEN


async def test_a_domain_in_which_something_is_declared_is_looked_at_and_one_that_is_cut_off_may_hide_one(
    tmp_path: Path, connect: Connect
) -> None:
    async with hub_and_leaves(tmp_path, "leaf") as hub:
        leaf, connection = hub.leaves["leaf"], await connect(hub.server.url, timeout=2.0)
        there = Key("Stream", "A", "", "leaf")
        await _make(leaf.wire, "A", THEIRS, {})
        assert await found(connection, there) is Trace.NONE
        await _make(leaf.wire, "B", OURS, {})
        assert await found(connection) is Trace.NONE
        assert await found(connection, there) is Trace.MARK
        await leaf.wire.expect("STREAM.DELETE.B")
        leaf.link.cut()
        assert await found(connection, Key("Stream", "S"), there) is Trace.HIDDEN
