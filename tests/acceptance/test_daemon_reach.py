"""Which server a daemon gets to: none yet, one that does not know it (any more), or another one in the place of the right one.

Invariant: a server it has never reached holds it up, and one that refuses it from the start ends it; nothing else ends it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

from tests.support.account.lasting import Lasting
from tests.support.account.wire import Wire, eventually
from tests.support.cluster.servers import free_ports
from tests.support.daemon.command import Command
from tests.support.daemon.process import daemon, settled
from tests.support.daemon.running import ran
from tests.support.server.process import Server
from tests.support.values.catalogues import everything, stream, write

CONVERGES = 40.0


async def test_a_server_that_is_away_at_the_start(offline: Command, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    server = Server(tmp_path / "server")
    server.port = port
    path = write(tmp_path / "all.yaml", Lasting().documents)
    async with daemon(Command(offline.home, server.url), tmp_path / "log", "-f", path, ready=False) as running:
        await running.listening()
        used = running.cpu_seconds
        await asyncio.sleep(3)
        assert running.cpu_seconds - used < 0.3
        assert (await running.get("/livez"))[0] == 200
        assert await running.get("/readyz") == (503, "not connected to NATS\n")
        assert {one["state"] for one in (await running.status())["resources"]} == {"Unknown"}
        with server:
            back = time.monotonic()
            await running.until(settled)
            assert time.monotonic() - back < CONVERGES
            assert (await running.get("/readyz"))[0] == 200


async def test_another_server_in_its_place_in_the_middle_of_a_pass(offline: Command, tmp_path: Path) -> None:
    """What was planned for one is not written to the other, not even the rest of what is under way."""
    environment = {"kind": "Environment", "metadata": {"name": "prod"}, "spec": {"expect": {"domain": "hub"}}}
    streams = [stream(f"S{number}", f"s{number}.>") for number in range(200)]
    path = write(tmp_path / "all.yaml", [environment, *streams])
    right = Server(tmp_path / "right", jetstream="domain: hub").start()
    wrong = right.successor(tmp_path / "wrong", jetstream="domain: elsewhere")
    arguments = ("-f", path, "--env", "prod", "--max-requests-per-second", "100")
    try:
        async with daemon(Command(offline.home, right.url), tmp_path / "log", *arguments, ready=False) as running:
            await running.listening()
            right.wait_for(lambda: right.monitor("jsz").get("streams", 0) > 20)
            right.kill()
            with wrong:
                await running.until(lambda document: "wrong domain" in str(document["refused"]))
                await asyncio.sleep(1)
                async with await Wire.connect(wrong.url) as wire:
                    assert await everything(wire) == {}
                document = await running.status()
                assert document["summary"]["Unknown"] == len(streams)
            right.start()
            await running.until(settled, 60)
            async with await Wire.connect(right.url) as wire:
                assert len(await everything(wire)) == len(streams)
    finally:
        right.kill()


LOGINS = """
accounts {{
  SYS {{ users: [{{ user: sys, password: sys }}] }}
  APP {{ jetstream: enabled, users: [{{ user: somebody, password: s3cret }}, {{ user: daemon, password: {password} }}] }}
}}
system_account: SYS
"""


def url(server: Server, user: str, password: str) -> str:
    """The URL with a login."""
    return server.url.replace("nats://", f"nats://{user}:{password}@")


def reload(server: Server, old: str, new: str) -> None:
    """Somebody edits the server's configuration."""
    text = server.config.read_text(encoding="utf-8")
    assert old in text
    server.config.write_text(text.replace(old, new), encoding="utf-8")
    os.kill(server.pid, signal.SIGHUP)


async def test_a_login_that_is_wrong_from_the_start(offline: Command, tmp_path: Path) -> None:
    path = write(tmp_path / "all.yaml", Lasting().documents)
    with Server(tmp_path / "server", config=LOGINS.format(password="right")) as server:
        cli = Command(offline.home, url(server, "daemon", "wr0ng"))
        ended = await ran(cli, "run", "-f", path, "--http", "127.0.0.1:0", code=6)
        assert "refused the login" in ended.err
        assert "--user" in ended.err
        assert "wr0ng" not in ended.err + ended.out


async def test_a_login_that_is_revoked_for_a_while(offline: Command, tmp_path: Path) -> None:
    with Server(tmp_path / "server", config=LOGINS.format(password="right")) as server:
        path = write(tmp_path / "all.yaml", Lasting().documents)
        async with daemon(Command(offline.home, url(server, "daemon", "right")), tmp_path / "log", "-f", path) as running:
            await running.until(settled)
            lines, ended = len(running.lines()), len(running.lines("change.ended"))
            reload(server, "password: right", "password: other")
            await running.until(lambda document: not document["connected"])
            await asyncio.sleep(4)
            assert (await running.get("/readyz"))[0] == 503
            assert (await running.get("/livez"))[0] == 200
            assert len(running.lines()) - lines < 25
            reload(server, "password: other", "password: right")
            async with await Wire.connect(url(server, "somebody", "s3cret")) as wire:
                await running.until(settled)
                assert [line["event"] for line in running.lines("change.ended")[ended:]] == []
                await wire.expect("STREAM.DELETE.MEMORY")
                await eventually(lambda: len(running.lines("change.ended")) > ended)
                await running.until(settled)
                await wire.stream_info("MEMORY")
        assert "right" not in running.log()
