"""`reconciler unused`: durables that nobody uses, and the way to be rid of them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.account.wire import Wire
from tests.support.daemon.command import Command
from tests.support.server.process import Server
from tests.support.values.manifests import written

STREAM = "kind: Stream\nmetadata: {name: S}\nspec: {subjects: [s.>], retention: interest}"


def consumer(name: str, more: str = "") -> str:
    """A durable."""
    return f"kind: Consumer\nmetadata: {{name: {name}}}\nspec: {{stream: S{more}}}"


@pytest.fixture
def command(server: Server, offline: Command) -> Command:
    """The command, at that server."""
    return Command(offline.home, server.url)


async def test_what_nobody_uses_is_listed_and_goes_by_its_name(server: Server, command: Command, tmp_path: Path) -> None:
    file = written(tmp_path, STREAM, *map(consumer, ("idle", "read", "waited")))
    command("apply", "-f", file, "--yes")
    async with await Wire.connect(server.url) as wire:
        await wire.expect("CONSUMER.CREATE.S.foreign", made("foreign"))
        await wire.expect("CONSUMER.CREATE.S", made(""))  # not a durable
        await wire.publish("s.x", 3)
        await asyncio.sleep(2.2)
        pull = wire.client.jetstream()
        for message in await (await pull.pull_subscribe_bind("read", "S")).fetch(2):
            await message.ack_sync()
        waiting = asyncio.create_task((await pull.pull_subscribe_bind("waited", "S")).fetch(10, timeout=20))
        await asyncio.sleep(0.2)
        found = command("unused", "--for", "2s", "-o", "json").json
        assert [(one["key"], one["owner"], one["pending"], one["keepsMessages"]) for one in found["consumers"]] == [
            ("Consumer/S/idle", "default", 3, True),
            ("Consumer/S/foreign", None, 3, True),
        ]
        said = command("unused", "--for", "2s").out
        assert "Consumer/S/idle     never used, made " in said
        assert {one["lastUsed"] for one in found["consumers"]} == {None}
        assert "owner default, acknowledged to 0, 3 messages wait for it, which its stream keeps for it" in said
        assert "2 unused for 2s or longer" in said
        waiting.cancel()
        gone = [consumer(name, ", state: absent") for name in ("idle", "foreign")]
        allowed = [text.replace("metadata: {", "metadata: {annotations: {reconciler/allow: data-loss}, ") for text in gone]
        command("apply", "--adopt", "-f", written(tmp_path, *allowed, name="gone.yaml"), "--yes")
        assert command("unused", "--for", "2s", "-o", "json").json["consumers"] == []
    server.restart()
    said = command("unused", "--for", "2s").out
    assert "Consumer/S/read" in said
    assert "used before its server was started last, made " in said


def made(name: str) -> dict[str, object]:
    """Somebody else's."""
    durable = {"durable_name": name} if name else {"inactive_threshold": 60 * 10**9}
    return {"stream_name": "S", "config": {"ack_policy": "explicit", **durable}, "action": "create"}


def test_a_policy_says_how_long_that_is(command: Command, tmp_path: Path) -> None:
    rules = "kind: Policy\nmetadata: {name: rules}\nspec: {consumers: {unusedAfter: 7d}}"
    file = written(tmp_path, STREAM, consumer("c"), rules)
    command("apply", "-f", file, "--yes")
    assert command("unused", file, "-o", "json").json["for"] == "7d"
    assert command("unused").out == "0 unused for 30d or longer\n"
    assert "--for" in command("unused", "--for", "soon", code=64).err
