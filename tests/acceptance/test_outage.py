"""Servers that stop, die, freeze or fall silent: silence is never absence, and nothing given up is done later."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support.account.wire import Json, Wire
from tests.support.cluster.servers import Cluster, free_ports
from tests.support.daemon.command import Command, Ended
from tests.support.daemon.running import ran, started
from tests.support.server.process import Server
from tests.support.server.proxy import Proxy, Request, Verdict
from tests.support.values.catalogues import Catalogue, consumer, everything, stream, write

FREELY = ("--prune", "--max-change-percent", "100", "--yes")
CONCURRENT_WRITES = 32
MIDDLE = 4 * CONCURRENT_WRITES
"""A write of an apply; by then others have been answered."""
QUICK = {"NATS_TIMEOUT": "1s"}


def results(ended: Ended) -> dict[str, set[str]]:
    """Keys by result, from an apply's JSON."""
    found: dict[str, set[str]] = {}
    for change in ended.json["changes"]:
        found.setdefault(change["result"], set()).add(change["key"])
    return found


def keys(live: dict[str, Json]) -> set[str]:
    """What is live, as a plan calls it."""

    def key(name: str) -> str:
        if name.startswith("KV_"):
            return f"KeyValue/{name.removeprefix('KV_')}"
        return f"Consumer/{name}" if "/" in name else f"Stream/{name}"

    return {key(name) for name in live}


def at_write(number: int, proxy: Proxy, act: Callable[[], None]) -> Callable[[Request], Verdict]:
    """A rule: right before the write of that number this happens to the server, once."""

    def rule(request: Request) -> Verdict:
        if request is proxy.writes[-1] and len(proxy.writes) == number:
            act()
        return Verdict.PASS

    return lambda request: rule(request) if request.is_write else Verdict.PASS


@pytest.mark.parametrize("how", ["stop", "kill"])
async def test_a_server_restarted_in_the_middle(cli: Command, server: Server, tmp_path: Path, how: str) -> None:
    catalogue = Catalogue(0)
    path = catalogue.write(tmp_path)
    async with Proxy(server.port) as proxy:
        proxy.rule = at_write(MIDDLE, proxy, getattr(server, how))
        async with started(Command(cli.home, proxy.url), "apply", "-f", path, *FREELY) as running:
            await proxy.until_writes(MIDDLE)
            assert not await running.ends_within(3)
            server.start()
            ended = await running.wait()
    assert ended.code in {0, 5}, ended
    async with await Wire.connect(server.url) as wire:
        if ended.code:
            assert "lease" in ended.err + ended.out
            await ran(cli, "apply", "-f", path, *FREELY)
        live = await everything(wire)
        assert live.keys() == catalogue.expected.keys()
    await ran(cli, "plan", "-f", path, "--prune", "--detailed-exitcode")


async def test_a_server_that_does_not_come_back(cli: Command, server: Server, tmp_path: Path) -> None:
    path = Catalogue(0).write(tmp_path)
    async with Proxy(server.port) as proxy:
        proxy.rule = at_write(MIDDLE, proxy, server.kill)
        async with started(Command(cli.home, proxy.url), "apply", "-f", path, *FREELY, "--timeout", "20s") as running:
            ended = await running.wait()
    assert ended.code == 5, ended
    assert re.search("lease of default|not connected", ended.out)


async def test_a_server_frozen_until_apply_gave_up_executes_nothing_later(cli: Command, server: Server, tmp_path: Path) -> None:
    catalogue = Catalogue(0)
    path = catalogue.write(tmp_path)
    arguments = ("apply", "-f", path, *FREELY, "--timeout", "5s", "--format", "json")
    async with Proxy(server.port) as proxy:
        proxy.rule = at_write(MIDDLE, proxy, server.freeze)
        async with started(Command(cli.home, proxy.url), *arguments, **QUICK) as running:
            ended = await running.wait()
    thawed = datetime.now(UTC)
    server.thaw()
    server.wait_ready()
    assert ended.code == 5
    found = results(ended)
    async with await Wire.connect(server.url) as wire:
        live = await everything(wire)
        assert found["applied"] <= keys(live) < keys(catalogue.expected)
        late = {name: live[name] for name in live if await created(wire, name) > thawed}
        # What had reached the server when it froze is beyond recall; nothing that was sent or tried again since then comes true.
        assert keys(late) <= found["unfinished"]
        assert len(late) <= CONCURRENT_WRITES
    await ran(cli, "lease", "release", "--yes")
    await ran(cli, "apply", "-f", path, *FREELY)
    await ran(cli, "plan", "-f", path, "--prune", "--detailed-exitcode")


async def created(wire: Wire, name: str) -> datetime:
    """When the server made a stream or a consumer."""
    stream_name, _, consumer_name = name.partition("/")
    info = await (wire.consumer_info(stream_name, consumer_name) if consumer_name else wire.stream_info(stream_name))
    return datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", info["created"]))


async def test_a_server_frozen_for_a_while(cli: Command, server: Server, tmp_path: Path) -> None:
    path = Catalogue(0).write(tmp_path)
    async with Proxy(server.port) as proxy:
        proxy.rule = at_write(MIDDLE, proxy, server.freeze)
        async with started(Command(cli.home, proxy.url), "apply", "-f", path, *FREELY, **QUICK) as running:
            await proxy.until_writes(MIDDLE)
            assert not await running.ends_within(4)
            server.thaw()
            ended = await running.wait()
    assert ended.code == 0, ended
    await ran(cli, "plan", "-f", path, "--prune", "--detailed-exitcode")


def freezing(server: Server, subject: str) -> Callable[[Request], Verdict]:
    """A rule: the first request of that kind finds the server frozen."""
    seen: list[Request] = []

    def rule(request: Request) -> Verdict:
        if request.subject.startswith(subject):
            if not seen:
                server.freeze()
            seen.append(request)
        return Verdict.PASS

    return rule


@pytest.mark.parametrize("request_name", ["INFO", "STREAM.LIST", "CONSUMER.LIST"])
async def test_a_server_frozen_during_the_snapshot(
    cli: Command, server: Server, wire: Wire, tmp_path: Path, request_name: str
) -> None:
    catalogue, other = Catalogue(0, 50), Catalogue(1, 50)
    await ran(cli, "apply", "-f", catalogue.write(tmp_path), *FREELY)
    before = await everything(wire)
    path = other.write(tmp_path)
    for command in (("plan", "-f", path, *FREELY[:-1]), ("apply", "-f", path, *FREELY)):
        async with Proxy(server.port) as proxy:
            proxy.rule = freezing(server, f"$JS.API.{request_name}")
            async with started(Command(cli.home, proxy.url), *command, "--format", "json", **QUICK) as running:
                ended = await running.wait()
            assert proxy.writes == []
        server.thaw()
        if request_name != "CONSUMER.LIST":
            assert (ended.code, ended.json if ended.out else None) == (6, None), ended
            assert "no answer within 1s" in ended.err
            continue
        assert ended.code == (0 if "plan" in command else 3), ended
        for change in ended.json["changes"]:
            kind, stream_name = change["key"].split("/")[:2]
            asks_consumers = kind == "Consumer" or (kind == "Stream" and change["action"] == "delete")
            assert change["action"] == "blocked" or not asks_consumers or stream_name not in before, change
    assert await everything(wire) == before


async def test_one_stream_whose_consumers_are_not_listed(cli: Command, server: Server, wire: Wire, tmp_path: Path) -> None:
    streams = [stream("A", "a.>"), stream("B", "b.>")]
    consumers = [consumer(name, each, f"{name.lower()}.{each}") for name in "AB" for each in ("one", "two")]
    await ran(cli, "apply", "-f", write(tmp_path / "old.yaml", [*streams, *consumers]), "--yes")
    before = await everything(wire)
    wanted = [*streams, consumers[0], consumer("A", "three", "a.three"), consumers[2], consumer("B", "three", "b.three")]
    path = write(tmp_path / "new.yaml", wanted)
    async with Proxy(server.port) as proxy:
        proxy.rule = lambda request: Verdict.DROP if request.subject == "$JS.API.CONSUMER.LIST.A" else Verdict.PASS
        through = Command(cli.home, proxy.url)
        plan = await ran(through, "plan", "-f", path, "--prune", "--format", "json", code=0, **QUICK)
        actions = {change["key"]: change["action"] for change in plan.json["changes"]}
        assert actions["Consumer/B/three"] == "create"
        assert actions["Consumer/B/two"] == "delete"
        assert actions["Consumer/A/three"] == actions["Consumer/A/one"] == "blocked"
        assert "Consumer/A/two" not in actions
        refused = await ran(through, "apply", "-f", path, *FREELY, code=3, **QUICK)
        assert "Consumer/A/three" in refused.err
        assert await everything(wire) == before
        ended = await ran(through, "apply", "-f", path, *FREELY, "--continue", code=5, **QUICK)
        assert "unknown" in ended.out
    assert (await everything(wire)).keys() == {"A", "A/one", "A/two", "B", "B/one", "B/three"}


async def test_no_server_at_all(offline: Command, tmp_path: Path) -> None:
    path = Catalogue(0, 20).write(tmp_path)
    nowhere = Command(offline.home, f"nats://127.0.0.1:{free_ports(1)[0]}")
    for command in (("plan", "-f", path), ("apply", "-f", path, "--yes"), ("lease", "show"), ("status",)):
        begun = time.monotonic()
        ended = await ran(nowhere, *command, code=6, NATS_TIMEOUT="60s")
        assert "no NATS server is listening" in ended.err
        assert time.monotonic() - begun < 30, "it did not wait for an answer"


async def test_a_stream_whose_node_is_down(cluster: Cluster, offline: Command, tmp_path: Path) -> None:
    cli = Command(offline.home, cluster.url)
    single = [stream(f"ONE{number}", f"one.{number}.>") for number in range(6)]
    consumers = [consumer(f"ONE{number}", "c", f"one.{number}.x") for number in range(6)]
    safe = [stream("THREE", "three.>", replicas=3), consumer("THREE", "c", "three.x")]
    path = write(tmp_path / "all.yaml", [*single, *consumers, *safe])
    await ran(cli, "--owner", "down", "apply", "-f", path, "--yes")
    less = write(tmp_path / "less.yaml", [*safe, consumer("THREE", "more", "three.more")])
    async with await Wire.connect(cluster.url) as wire:
        before = await everything(wire)
        homes = {name: (await wire.stream_info(name))["cluster"]["leader"] for name in before if "/" not in name}
        victim = next(each for each in cluster.servers if each.name == homes["ONE0"])
        victim.kill()
        try:
            cluster.wait_ready()
            alive = next(each for each in cluster.servers if each.running)
            here = Command(cli.home, alive.url)
            for manifest, flags in ((path, ()), (less, ("--prune",))):
                ended = await ran(here, "--owner", "down", "plan", "-f", manifest, *flags, "--format", "json")
                actions = {change["key"]: change["action"] for change in ended.json["changes"]}
                for number in range(6):
                    gone = homes[f"ONE{number}"] == victim.name
                    for key in (f"Stream/ONE{number}", f"Consumer/ONE{number}/c"):
                        assert not gone or actions.get(key, "blocked") == "blocked"
            await ran(here, "--owner", "down", "apply", "-f", path, "--yes", code=3)
            ended = await ran(here, "--owner", "down", "apply", "-f", less, *FREELY)
            assert "Stream/ONE0 is unknown" in ended.out
        finally:
            victim.start()
            cluster.wait_ready()
        live = await everything(wire)
        assert {name for name in before if homes[name.partition("/")[0]] == victim.name} <= live.keys()
