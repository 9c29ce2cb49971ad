"""Signals to a running daemon: it ends in time and in order wherever it stands, and leaves the lease to the next one.

Invariant: whatever becomes of the server meanwhile, SIGTERM ends the process with 0 within ten seconds.
"""

from __future__ import annotations

import asyncio
import base64
import signal
import time
from pathlib import Path

import pytest

from tests.support.account.lasting import Lasting
from tests.support.account.wire import Wire, eventually
from tests.support.clock.until import until
from tests.support.cluster.servers import free_ports
from tests.support.daemon.command import Command
from tests.support.daemon.process import Daemon, daemon, settled
from tests.support.server.process import Server
from tests.support.server.proxy import Proxy, Verdict
from tests.support.values.catalogues import everything, stream, write

ENDS = 25.0
"""Before a cluster would kill it (30 s)."""
AT_ONCE = 9.0
"""Until another process writes, its own start and the machine's other work included; less than a lease that has to run out."""
TURNS = 8
MANY = 2000
SLACK = 200
"""Writes that may be sent between a signal and its arrival."""


async def ends_in_order(running: Daemon) -> float:
    """Sends SIGTERM; the seconds until its end."""
    begun = time.monotonic()
    running.send(signal.SIGTERM)
    await asyncio.sleep(0.2)
    if not running.ended:
        assert (await running.get("/readyz"))[0] in {503, 0}
    assert await running.ends() == 0, running.log()[-3000:]
    took = time.monotonic() - begun
    assert took < ENDS
    return took


async def there(wire: Wire, name: str) -> bool:
    """Whether this stream exists."""
    return "error" not in await wire.call(f"STREAM.INFO.{name}")


async def lease_is_free(wire: Wire) -> bool:
    """Whether nobody holds the lease."""
    answer = await wire.call("STREAM.MSG.GET.KV_reconciler-default", {"last_by_subj": "$KV.reconciler-default.writer"})
    return "message" not in answer or b"KV-Operation: DEL" in base64.b64decode(answer["message"].get("hdrs", ""))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
async def test_it_ends_at_once_and_the_next_one_writes_at_once(
    cli: Command, wire: Wire, tmp_path: Path, number: signal.Signals
) -> None:
    path = write(tmp_path / "all.yaml", Lasting().documents)
    async with (
        daemon(cli, tmp_path / "first.log", "-f", path) as first,
        daemon(cli, tmp_path / "second.log", "-f", path) as second,
    ):
        await first.until(settled)
        await second.until(lambda document: document["leading"] is False and document["ready"])
        first.send(number)
        assert await first.ends(AT_ONCE) == 0
        await second.until(settled, AT_ONCE)
        await wire.expect("STREAM.DELETE.MEMORY")
        await until(lambda: there(wire, "MEMORY"), AT_ONCE)
        assert not second.lines("lease.taken_over")


async def test_it_ends_in_time_while_the_server_is_frozen(cli: Command, server: Server, tmp_path: Path) -> None:
    path = write(tmp_path / "all.yaml", Lasting().documents)
    async with daemon(cli, tmp_path / "log", "-f", path) as running:
        await running.until(settled)
        server.freeze()
        await ends_in_order(running)
        server.thaw()


async def test_it_ends_in_time_while_it_looks_at_a_frozen_server(cli: Command, server: Server, tmp_path: Path) -> None:
    path = write(tmp_path / "all.yaml", Lasting().documents)
    async with daemon(cli, tmp_path / "log", "-f", path) as running:
        await running.until(settled)
        server.freeze()
        await running.post("/-/reconcile")
        await asyncio.sleep(1)
        await ends_in_order(running)
        server.thaw()


async def test_it_ends_at_once_while_nats_is_away(cli: Command, server: Server, tmp_path: Path) -> None:
    path = write(tmp_path / "all.yaml", Lasting().documents)
    async with daemon(cli, tmp_path / "log", "-f", path) as running:
        await running.until(settled)
        server.kill()
        await running.until(lambda document: not document["connected"])
        assert await ends_in_order(running) < AT_ONCE


async def test_it_ends_at_once_when_nats_was_never_there(offline: Command, tmp_path: Path) -> None:
    path = write(tmp_path / "all.yaml", Lasting().documents)
    nowhere = Command(offline.home, f"nats://127.0.0.1:{free_ports(1)[0]}")
    async with daemon(nowhere, tmp_path / "log", "-f", path, ready=False) as running:
        await running.listening()
        assert await ends_in_order(running) < AT_ONCE


@pytest.mark.slow
async def test_two_thousand_creates_under_way_are_left_where_they_are(
    cli: Command, server: Server, wire: Wire, tmp_path: Path
) -> None:
    """Those in flight are the last ones, and the next daemon does the rest."""
    path = write(tmp_path / "all.yaml", (stream(f"S{number}", f"s{number}.>") for number in range(MANY)))
    async with Proxy(server.port) as proxy, daemon(Command(cli.home, proxy.url), tmp_path / "first.log", "-f", path) as first:
        await eventually(lambda: len(proxy.writes) >= MANY // 10)
        first.send(signal.SIGTERM)
        sent = len(proxy.writes)
        assert await first.ends(ENDS) == 0
        assert len(proxy.writes) <= sent + SLACK
        left = len(await everything(wire))
        assert left == len(proxy.writes)
        assert await lease_is_free(wire)
    async with daemon(cli, tmp_path / "second.log", "-f", path) as second:
        await second.until(settled, 60)
        assert len(await everything(wire)) == MANY


async def test_a_second_signal_ends_it_on_the_spot(cli: Command, server: Server, tmp_path: Path) -> None:
    """Here with a write under way whose answer never comes."""
    path = write(tmp_path / "all.yaml", [stream("S", "s.>")])
    async with Proxy(server.port) as proxy:
        proxy.rule = lambda request: Verdict.MUTE if request.is_write else Verdict.PASS
        async with daemon(Command(cli.home, proxy.url), tmp_path / "log", "-f", path, ready=False) as running:
            await running.listening()
            await proxy.until_stuck()
            running.send(signal.SIGTERM)
            await eventually(lambda: bool(running.lines("process.stopping")))
            while not running.ended:  # one that comes too soon after the first is taken for the same wish
                running.send(signal.SIGTERM)
                await asyncio.sleep(0.05)
            assert await running.ends() == 130
            assert running.lines("process.killed")


async def test_sighup_reads_the_manifests_at_once(cli: Command, wire: Wire, tmp_path: Path) -> None:
    """Each time instead of within two seconds; a link that leads elsewhere need not come to rest."""
    current = tmp_path / "current"

    def declare(number: int) -> None:
        version, link = tmp_path / f"v{number}", tmp_path / "next"
        version.mkdir()
        write(version / "all.yaml", [stream("S", "s.>", maxMsgs=100 + number)])
        link.symlink_to(version)
        link.replace(current)

    declare(0)
    async with daemon(cli, tmp_path / "log", "-f", current) as running:
        await running.until(settled)
        begun = time.monotonic()
        for number in range(1, TURNS + 1):
            declare(number)
            running.send(signal.SIGHUP)
            async with asyncio.timeout(60):
                while (await wire.stream_info("S"))["config"]["max_msgs"] != 100 + number:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        assert time.monotonic() - begun < TURNS, running.log()
