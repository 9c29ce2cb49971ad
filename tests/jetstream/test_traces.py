"""What tells the bucket of a lease that was deleted from one that never was."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.jetstream.connection import Connection
from reconciler.jetstream.domains import DomainApis
from reconciler.jetstream.traces import traces_of
from tests.support.account.connecting import Connect
from tests.support.account.wire import Wire
from tests.support.server.leaves import hub_and_leaves
from tests.support.server.process import Server

BUCKET = "KV_reconciler-prod"
OURS = {"reconciler.owner": "prod"}
THEIRS = {"reconciler.owner": "another"}


async def led(connection: Connection, *domains: str) -> bool:
    """Whether anything shows that the owner `prod` has led before."""
    return await traces_of("prod", DomainApis(connection), lambda: domains, beside=BUCKET)()


async def _make(wire: Wire, stream: str, metadata: dict[str, str], of_consumer: dict[str, str]) -> None:
    """A stream with a consumer."""
    await wire.expect(f"STREAM.CREATE.{stream}", {"name": stream, "subjects": [stream], "metadata": metadata})
    consumer = {"durable_name": "c", "ack_policy": "explicit", "metadata": of_consumer}
    await wire.expect(f"CONSUMER.CREATE.{stream}.c", {"stream_name": stream, "action": "create", "config": consumer})


@pytest.mark.parametrize("where", ["stream", "consumer"])
async def test_any_mark_of_the_owner_is_one_and_no_mark_of_another(
    server: Server, wire: Wire, connect: Connect, where: str
) -> None:
    connection = await connect(server.url)
    await _make(wire, "A", {}, {})
    await _make(wire, "B", THEIRS, THEIRS)
    assert not await led(connection)
    await _make(wire, "C", *((OURS, {}) if where == "stream" else (THEIRS, OURS)))
    assert await led(connection)


async def test_what_cannot_be_looked_at_may_be_one_but_for_the_bucket_itself(tmp_path: Path, connect: Connect) -> None:
    denied = '{publish: {deny: ["$JS.API.CONSUMER.LIST.>"]}}'
    config = f"authorization {{ users: [{{user: a, password: a}}, {{user: b, password: b, permissions: {denied}}}] }}"
    with Server(tmp_path / "s", config=config) as server:
        async with await Wire.connect(server.url, user="a", password="a") as wire:
            connection = await connect(server.url.replace("nats://", "nats://b:b@"))
            await _make(wire, BUCKET, {}, {})
            assert not await led(connection)
            await _make(wire, "SECRET", {}, {})
            assert await led(connection)


async def test_a_domain_that_it_writes_to_is_looked_at_and_one_that_is_cut_off_may_have_one(
    tmp_path: Path, connect: Connect
) -> None:
    async with hub_and_leaves(tmp_path, "leaf") as hub:
        leaf, connection = hub.leaves["leaf"], await connect(hub.server.url, timeout=2.0)
        await _make(leaf.wire, "A", THEIRS, {})
        assert not await led(connection, "leaf")
        await _make(leaf.wire, "B", OURS, {})
        assert not await led(connection)
        assert await led(connection, "leaf")
        await leaf.wire.expect("STREAM.DELETE.B")
        leaf.link.cut()
        assert await led(connection, "leaf")
