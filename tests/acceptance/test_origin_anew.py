"""An origin that somebody deletes is made anew, and all that it gets from then on is copied, whatever the server still knows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.account.wire import Wire
from tests.support.clock.until import until
from tests.support.daemon.command import Command
from tests.support.daemon.process import daemon, settled
from tests.support.server.process import Server
from tests.support.values.catalogues import stream, write

BEFORE, AFTER = 20, 35


@pytest.mark.slow
@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
@pytest.mark.parametrize("version", ["2.14.6", "2.15.1"])
async def test_what_a_new_origin_gets_is_copied(tmp_path: Path, version: str, restarted: bool) -> None:
    source = {"name": "S", "consumer": {"name": "c", "serverManaged": True}}
    manifests = write(tmp_path / "all.yaml", [stream("S", "s.>"), {**stream("A"), "spec": {"sources": [source]}}])
    with Server(tmp_path / "server", version=version) as server:
        command = Command(tmp_path, server.url)
        async with daemon(command, tmp_path / "log", "-f", manifests, "--interval", "5s") as running:
            await running.until(settled)
            async with await Wire.connect(server.url) as wire:
                await wire.publish("s.x", BEFORE)
                await until(lambda: copied(wire, BEFORE), 30.0)
            if restarted:
                server.restart()
            async with await Wire.connect(server.url) as wire:
                await until(lambda: there(wire, "S"), 30.0)
                await wire.expect("STREAM.DELETE.S")
                await until(lambda: there(wire, "S"), 30.0)
                await wire.publish("s.x", AFTER, first=100)
                await until(lambda: copied(wire, BEFORE + AFTER), 60.0)
                numbers = [int(text) for text in await wire.payloads("A")]
                assert numbers == [*range(BEFORE), *range(100, 100 + AFTER)]


async def copied(wire: Wire, count: int) -> bool:
    return len(await wire.payloads("A")) >= count


async def there(wire: Wire, name: str) -> bool:
    return "error" not in await wire.call(f"STREAM.INFO.{name}")
