"""Servers that go away under a running daemon: it stays, shows that it knows nothing, and converges when they are back.

Whatever was there keeps its messages, its positions and its date of birth.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.account.lasting import Lasting
from tests.support.account.wire import AUDIT_SUBJECT, Audit, Wire
from tests.support.daemon.command import Command
from tests.support.daemon.process import Daemon, daemon, settled
from tests.support.server.process import Server
from tests.support.values.catalogues import everything, write

Json = dict[str, Any]
CONVERGES = 40.0
"""Seconds after a server is healthy again: by its own doing, and not only by the look at everything each minute."""
FLUSHED = 1.5
"""Seconds in which a server has written how far its consumers are, so that not even SIGKILL takes it back."""
NAMED = re.compile(r"reconciler-[0-9a-f]{8}$")
REPAIRS = ("STREAM.UPDATE.LIMITS0", "STREAM.UPDATE.KV_flags", "CONSUMER.CREATE.INTEREST1.c1")


@dataclass
class Stage:
    """A daemon that has everything in place, and what has to be the same after each outage."""

    daemon: Daemon
    lasting: Lasting
    wanted: dict[str, Json]
    kept: dict[str, Json]
    probes: list[tuple[int, int]] = field(default_factory=list)
    """Codes of `/livez` and `/readyz`, every now and then."""

    async def probe(self) -> tuple[int, int]:
        """The codes of `/livez` and `/readyz`."""
        (live, _), (ready, _) = await self.daemon.get("/livez"), await self.daemon.get("/readyz")
        return live, ready

    async def watch(self) -> None:
        """Goes on probing."""
        while True:
            self.probes.append(await self.probe())
            await asyncio.sleep(0.1)

    async def converges(self, wire: Wire, since: float) -> None:
        """Everything is in place in time, live and in the status, and nothing was made anew."""
        live: dict[str, Json] = {}
        try:
            async with asyncio.timeout(CONVERGES - (time.monotonic() - since)):
                while (live := await everything(wire)) != self.wanted:  # noqa: ASYNC110 - nobody signals it
                    await asyncio.sleep(0.05)
        except TimeoutError:
            wrong = {name for name in live.keys() | self.wanted.keys() if live.get(name) != self.wanted.get(name)}
            raise AssertionError((wrong, self.daemon.log()[-6000:])) from None
        await self.daemon.until(settled, CONVERGES - (time.monotonic() - since))
        assert await self.probe() == (200, 200)
        assert await self.lasting.kept(wire) == self.kept


@asynccontextmanager
async def staged(cli: Command, server: Server, directory: Path, lasting: Lasting | None = None) -> AsyncIterator[Stage]:
    """The stage of a test, probed all the time; the process is the same at the end, and was never called dead."""
    lasting = lasting or Lasting()
    path = write(directory / "all.yaml", lasting.documents)
    async with daemon(cli, directory / "log", "-f", path) as running:
        await running.until(settled)
        async with await Wire.connect(server.url) as wire:
            await lasting.fill(wire)
            await asyncio.sleep(FLUSHED)
            stage = Stage(running, lasting, await everything(wire), await lasting.kept(wire))
        watching = asyncio.create_task(stage.watch())
        try:
            yield stage
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        assert not running.ended
        assert {live for live, _ in stage.probes} == {200}


async def meddle(wire: Wire, number: int) -> None:
    """Somebody changes a stream, a consumer and a bucket."""
    for name in ("LIMITS0", "KV_flags"):
        config = (await wire.stream_info(name))["config"]
        await wire.expect(f"STREAM.UPDATE.{name}", config | {"max_msg_size": 2000 + number})
    config = (await wire.consumer_info("INTEREST1", "c1"))["config"]
    body = {"stream_name": "INTEREST1", "config": config | {"max_deliver": 20 + number}, "action": "update"}
    await wire.expect("CONSUMER.CREATE.INTEREST1.c1", body)


@pytest.mark.slow
async def test_a_server_that_is_stopped_and_killed_again_and_again(cli: Command, server: Server, tmp_path: Path) -> None:
    """Also for so long that the lease runs out; meanwhile the daemon costs next to nothing."""
    async with staged(cli, server, tmp_path) as stage:
        for number, away in enumerate((0.0, 0.0, 0.3, 0.5, 1.0, 11.0, 2.0, 0.1, 0.0, 1.5)):
            (server.kill if number % 2 else server.stop)()
            begun, used, lines = time.monotonic(), stage.daemon.cpu_seconds, len(stage.daemon.lines())
            await asyncio.sleep(away)
            if away >= 0.3:
                assert await stage.probe() == (200, 503)
                document = await stage.daemon.status()
                assert {one["state"] for one in document["resources"]} == {"Unknown"}
            if away > 3:
                seconds = time.monotonic() - begun
                assert stage.daemon.cpu_seconds - used < 0.1 * seconds
                assert len(stage.daemon.lines()) - lines < 4 * seconds
            server.start()
            back = time.monotonic()
            async with await Wire.connect(server.url) as wire:
                await meddle(wire, number)
                await stage.converges(wire, back)
        assert {ready for _, ready in stage.probes} == {200, 503}


@pytest.mark.slow
async def test_a_server_frozen_for_a_while(cli: Command, server: Server, tmp_path: Path) -> None:
    """Its silence is never read as absence; what was changed right before is repaired once."""
    async with staged(cli, server, tmp_path) as stage, await Wire.connect(server.url) as wire:
        audit = Audit(wire)
        await wire.client.subscribe(AUDIT_SUBJECT, cb=audit.hear)
        await meddle(wire, 1)
        server.freeze()
        await asyncio.sleep(8)
        document = await stage.daemon.status()
        assert document["connected"] is False
        assert {one["state"] for one in document["resources"]} == {"Unknown"}
        server.thaw()
        server.wait_ready()
        await stage.converges(wire, time.monotonic())
        await asyncio.sleep(1)
        (client,) = {name for record in audit.records if NAMED.match(name := record["client"].get("name", ""))}
        writes = [one for one in audit.writes(client) if "KV_reconciler" not in one]  # a term notes its connection there
        assert sorted(writes) == sorted(f"$JS.API.{request}" for request in REPAIRS)


@pytest.mark.matrix
async def test_a_server_upgraded_under_it(offline: Command, tmp_path: Path) -> None:
    old = Server(tmp_path / "server", version="2.14.6").start()
    try:
        cli = Command(offline.home, old.url)
        async with staged(cli, old, tmp_path) as stage:
            assert (await stage.daemon.status())["server"]["version"] == "2.14.6"
            old.stop()
            with old.successor() as new:
                back = time.monotonic()
                async with await Wire.connect(new.url) as wire:
                    await meddle(wire, 1)
                    await stage.converges(wire, back)
                assert (await stage.daemon.status())["server"]["version"] == new.version != old.version
    finally:
        old.kill()


async def test_a_server_without_jetstream_for_a_while(cli: Command, server: Server, tmp_path: Path) -> None:
    async with staged(cli, server, tmp_path) as stage:
        server.stop()
        with without_jetstream(server):
            document = await stage.daemon.until(lambda document: document["connected"])
            await asyncio.sleep(2)
            document = await stage.daemon.status()
            assert document["connected"]
            assert document["summary"]["Unknown"] == len(document["resources"]) == len(stage.lasting.documents)
            assert "is JetStream enabled there?; before: Synced" in document["resources"][0]["message"]
        server.start()
        back = time.monotonic()
        async with await Wire.connect(server.url) as wire:
            await meddle(wire, 1)
            await stage.converges(wire, back)


@contextmanager
def without_jetstream(server: Server) -> Iterator[None]:
    """A server that only passes messages on, in the place of another."""
    without = server.successor(jetstream="enabled: false")
    without.launch()
    try:
        yield
    finally:
        without.kill()
