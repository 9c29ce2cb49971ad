"""Two processes that want to write at once: one waits or gives up naming the other, and a frozen one does no harm when it wakes.

The lease's TTL is short here, as an operator may choose it: it is the age limit of the lease's bucket.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.account.wire import Audit, Wire
from tests.support.daemon.command import Command
from tests.support.daemon.running import Running, ran, started
from tests.support.server.process import Server
from tests.support.server.proxy import Proxy, Request, Verdict
from tests.support.values.catalogues import Catalogue, everything, stream, write

TTL_SECONDS = 3
FREELY = ("--max-change-percent", "100", "--yes")


def of_streams(path: Path, prefix: str, limit: int, count: int = 40) -> Path:
    """Streams to declare; the limit tells one manifest's from the other's."""
    return write(path, (stream(f"{prefix}{number}", f"{prefix}.{number}", maxMsgs=limit) for number in range(count)))


async def short_lease(wire: Wire, owner: str = "default") -> None:
    """Make the bucket of the lease with a short TTL."""
    config = {
        "name": f"KV_reconciler-{owner}",
        "subjects": [f"$KV.reconciler-{owner}.>"],
        "max_msgs_per_subject": 1,
        "max_age": TTL_SECONDS * 10**9,
        "discard": "new",
        "allow_direct": True,
        "allow_rollup_hdrs": True,
        "deny_delete": True,
    }
    await wire.expect(f"STREAM.CREATE.{config['name']}", config)


def writers(audit: Audit) -> list[int]:
    """Whose limits were written to streams, in order, each once per turn: a process has more than one connection."""
    turns: list[int] = []
    for record in audit.records:
        request = Request(record["subject"], "", 0.0)
        limit = json.loads(record.get("request") or "{}").get("max_msgs", 0) if request.is_write else 0
        if limit and turns[-1:] != [limit]:
            turns.append(limit)
    return turns


async def limits(wire: Wire, prefix: str) -> set[int]:
    """The limits of the streams with that prefix."""
    return {config["max_msgs"] for name, config in (await everything(wire)).items() if name.startswith(prefix)}


async def test_two_at_once_write_one_after_the_other(cli: Command, wire: Wire, tmp_path: Path) -> None:
    first, second = of_streams(tmp_path / "first.yaml", "S", 1), of_streams(tmp_path / "second.yaml", "S", 2)
    async with wire.audit() as audit:
        ended = await asyncio.gather(*(ran(cli, "apply", "-f", path, *FREELY) for path in (first, second)))
    assert [each.code for each in ended] == [0, 0]
    assert len(writers(audit)) == 2, "never both, and no turning back"
    assert len(await limits(wire, "S")) == 1


async def test_the_second_gives_up_and_names_the_first(cli: Command, server: Server, wire: Wire, tmp_path: Path) -> None:
    await short_lease(wire)
    path = of_streams(tmp_path / "streams.yaml", "S", 1)
    async with Proxy(server.port) as proxy:
        proxy.rule = lambda request: Verdict.DROP if request.is_write else Verdict.PASS
        async with started(Command(cli.home, proxy.url), "apply", "-f", path, *FREELY, NATS_TIMEOUT="60s") as holder:
            await proxy.until_stuck()
            async with wire.audit() as audit:
                refused = await ran(cli, "apply", "-f", path, *FREELY, code=3)
            assert f"{socket.gethostname()} (pid {holder.pid}," in refused.err
            assert re.search(r"last renewed \S+;", refused.err)
            assert writers(audit) == []
            shown = (await ran(cli, "lease", "show", "--format", "json")).json["holder"]
            assert (shown["host"], shown["pid"]) == (socket.gethostname(), holder.pid)


async def test_owners_do_not_wait_for_each_other(cli: Command, server: Server, wire: Wire, tmp_path: Path) -> None:
    one, two = of_streams(tmp_path / "one.yaml", "S", 1), of_streams(tmp_path / "two.yaml", "T", 1)
    async with Proxy(server.port) as proxy:
        proxy.rule = lambda request: Verdict.DROP if request.is_write else Verdict.PASS
        async with started(Command(cli.home, proxy.url), "apply", "-f", one, *FREELY, NATS_TIMEOUT="60s") as holder:
            await proxy.until_stuck()
            await ran(cli, "--owner", "other", "apply", "-f", two, *FREELY)
            assert not holder.ended
    assert (await everything(wire)).keys() == {f"T{number}" for number in range(40)}


@pytest.mark.parametrize("number", [1, 33])
async def test_a_frozen_writer_wakes_up_and_stops(cli: Command, server: Server, wire: Wire, tmp_path: Path, number: int) -> None:
    await short_lease(wire)
    first, second = of_streams(tmp_path / "first.yaml", "S", 1), of_streams(tmp_path / "second.yaml", "S", 2)
    async with Proxy(server.port) as proxy, started(Command(cli.home, proxy.url), "apply", "-f", first, *FREELY) as frozen:
        proxy.rule = freezing(proxy, number, frozen)
        await proxy.until_stuck()
        async with wire.audit() as audit:
            await ran(cli, "apply", "-f", second, *FREELY)
            before_waking = len(proxy.writes)
            proxy.rule = lambda _: Verdict.PASS
            frozen.send(signal.SIGCONT)
            ended = await frozen.wait()
        assert ended.code in {1, 5}, ended
        assert "lease" in ended.err + ended.out
        assert len(proxy.writes) - before_waking <= 1, "at most what was on its way"
        assert len(writers(audit)) <= 3, "first the frozen one's last requests, then the second, then at most that one"
    assert await limits(wire, "S") == {2}, "nothing flaps: the second writer's configuration stays"
    await ran(cli, "plan", "-f", second, "--detailed-exitcode")


def freezing(proxy: Proxy, number: int, holder: Running) -> Callable[[Request], Verdict]:
    """A rule: the write of that number freezes its sender, and is executed."""

    def rule(request: Request) -> Verdict:
        if request.is_write and len(proxy.writes) == number:
            holder.send(signal.SIGSTOP)
            return Verdict.MUTE
        return Verdict.PASS

    return rule


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
async def test_interrupted_gives_the_lease_back(
    cli: Command, server: Server, wire: Wire, tmp_path: Path, how: signal.Signals
) -> None:
    catalogue = Catalogue(0, 200)
    path = catalogue.write(tmp_path)
    async with Proxy(server.port) as proxy:
        proxy.rule = proxy.from_write(100, Verdict.DROP)
        async with started(Command(cli.home, proxy.url), "apply", "-f", path, *FREELY) as running:
            await proxy.until_stuck()
            running.send(how)
            ended = await running.wait()
    assert ended.code == 130, ended
    assert "nobody holds" in (await ran(cli, "lease", "show")).out
    await ran(cli, "apply", "-f", path, *FREELY)
    assert (await everything(wire)).keys() == catalogue.expected.keys()
