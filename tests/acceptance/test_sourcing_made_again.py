"""A managed durable is deleted right after the migration to it, before anything came through it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.account.wire import Wire
from tests.support.clock.until import until
from tests.support.daemon.command import Command
from tests.support.daemon.process import daemon, settled
from tests.support.server.process import Server
from tests.support.values.catalogues import consumer, stream, write

BEFORE, AFTER = 20, 10


@pytest.mark.slow
@pytest.mark.parametrize("version", ["2.14.6", "2.15.1"])
async def test_what_was_copied_before_does_not_come_again(tmp_path: Path, version: str) -> None:
    manifests = write(tmp_path / "all.yaml", documents())
    with Server(tmp_path / "server", version=version) as server:
        async with (
            daemon(Command(tmp_path, server.url), tmp_path / "log", "-f", manifests) as running,
            await Wire.connect(server.url) as wire,
        ):
            await running.until(settled)
            await wire.publish("s.x", BEFORE)
            await until(lambda: has(wire, BEFORE), 30.0)
            write(manifests, documents(consumer={"name": "c", "serverManaged": True}))
            await running.post("/-/reload")
            await until(lambda: made(wire), 30.0)
            await running.until(settled)
            born = (await wire.consumer_info("S", "c"))["created"]
            await wire.expect("CONSUMER.DELETE.S.c")
            await until(lambda: made(wire, after=born), 30.0)
            await running.until(settled)
            await wire.publish("s.x", AFTER, first=BEFORE)
            await until(lambda: has(wire, BEFORE + AFTER), 60.0)
            assert sorted(map(int, await wire.payloads("A"))) == list(range(BEFORE + AFTER))


def documents(**entry: Any) -> list[dict[str, Any]]:
    """A copies S."""
    return [stream("S", "s.>"), {**stream("A"), "spec": {"sources": [{"name": "S", **entry}]}}]


async def made(wire: Wire, after: str = "") -> bool:
    """Whether the durable is there, and runs."""
    info = await wire.call("CONSUMER.INFO.S.c")
    return "config" in info and info["created"] > after and not info.get("paused") and bool(info.get("push_bound"))


async def has(wire: Wire, count: int) -> bool:
    """Whether so many messages, or more, are in A."""
    return int((await wire.stream_info("A"))["state"]["messages"]) >= count


async def test_what_comes_up_on_the_way_is_told_and_is_not_called_in_place(cli: Command, wire: Wire, tmp_path: Path) -> None:
    """An origin is deleted with the durable on it: what becomes of what copies it shows once the origin is there again."""
    manifests = write(tmp_path / "all.yaml", documents(consumer={"name": "c", "serverManaged": True}))
    cli("apply", "-f", manifests, "--yes")
    await wire.publish("s.x", BEFORE)
    await until(lambda: has(wire, BEFORE), 30.0)
    await wire.expect("STREAM.DELETE.S")
    ended = cli("apply", "-f", manifests, "--yes", code=5)
    assert "not as declared by now, and not in the plan that was shown: Stream/A; plan and apply once more" in ended.err
    cli("apply", "-f", manifests, "--yes")
    await wire.publish("s.x", AFTER, first=BEFORE)
    await until(lambda: has(wire, BEFORE + AFTER), 60.0)
    assert sorted(map(int, await wire.payloads("A"))) == list(range(BEFORE + AFTER))


DURABLE = {"ackPolicy": "flow_control", "deliverSubject": "dlv.u"}
THROUGH = {"consumer": {"name": "u", "deliverSubject": "dlv.u"}}


@pytest.mark.slow
@pytest.mark.differs
async def test_what_stands_in_for_a_declared_durable_is_read_and_stays(
    any_server: Server, offline: Command, tmp_path: Path
) -> None:
    """Somebody else's origin is deleted, with the durable on it, and made anew: fewer messages, under sequences that A knows."""
    aggregate = documents(**THROUGH)[1]
    manifests = write(tmp_path / "all.yaml", [aggregate, consumer("S", "u", **DURABLE)])
    async with await Wire.connect(any_server.url) as wire:
        await wire.expect("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
        command = Command(offline.home, any_server.url)
        async with daemon(command, tmp_path / "log", "-f", manifests, "--policy", "sync") as running:
            await running.until(settled)
            await wire.publish("s.x", BEFORE)
            await until(lambda: has(wire, BEFORE), 30.0)
            await wire.expect("STREAM.DELETE.S")
            await wire.expect("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
            await wire.publish("s.x", AFTER, first=BEFORE)
            await until(lambda: has(wire, BEFORE + AFTER), 60.0)
            await running.until(settled)
            (read,) = (await wire.stream_info("A"))["config"]["sources"]
            assert (await wire.expect("CONSUMER.NAMES.S"))["consumers"] == [read["consumer"]["name"]]
            assert sorted(map(int, await wire.payloads("A"))) == list(range(BEFORE + AFTER))
