"""Ways out about streams and the servers they are on: each is printed, then taken, and leads where somebody wanted to go."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.account.following import annotated, flags, quoted, streams
from tests.support.account.guarded import Guarded, consumer, count, gone, stream
from tests.support.account.wire import Json, Wire
from tests.support.clock.until import until
from tests.support.cluster.servers import Cluster
from tests.support.daemon.command import Command
from tests.support.promises import tried
from tests.support.server.leaves import hub_and_leaves
from tests.support.server.process import Server
from tests.support.values.field_cases import FIXED_CASES, named
from tests.support.values.manifests import written

COUNT = 6


def on(server: Server | Cluster, offline: Command, wire: Wire, tmp_path: Path) -> Guarded:
    """The command and somebody else, on servers of the test's own."""
    return Guarded(Command(offline.home, server.url), wire, tmp_path, server if isinstance(server, Cluster) else None)


@pytest.mark.parametrize("how", ["flag", "annotation"])
async def test_what_would_drop_stored_messages(guarded: Guarded, wire: Wire, how: str) -> None:
    guarded.apply(stream("S"))
    await wire.publish("S.1", COUNT)
    smaller = stream("S", maxMsgs=2)
    way = (await guarded.offered(smaller))["Stream/S"]["data-loss"]
    if how == "flag":
        guarded.apply(smaller, flags=flags(way))
    else:
        guarded.apply(annotated(smaller, quoted(way)[1]))
    assert await wire.payloads("S") == ["4", "5"]
    tried(way)


@pytest.mark.parametrize("how", ["flag", "tombstone"])
async def test_pruning_a_stream_that_holds_messages(guarded: Guarded, wire: Wire, how: str) -> None:
    guarded.apply(stream("KEPT"), stream("S"))
    await wire.publish("S.1", COUNT)
    way = (await guarded.offered(stream("KEPT"), flags=["--prune"]))["Stream/S"]["data-loss"]
    if how == "flag":
        guarded.apply(stream("KEPT"), flags=["--prune", *flags(way)])
    else:
        assert quoted(way)[1] == "state: absent"
        guarded.apply(stream("KEPT"), annotated(gone("Stream", "S"), quoted(way)[2]))
    assert await streams(wire) == {"KEPT"}
    tried(way)


@pytest.mark.parametrize("held", [0, COUNT])
async def test_what_cannot_change_on_a_live_stream(guarded: Guarded, wire: Wire, held: int) -> None:
    guarded.apply(stream("S", storage="memory"))
    await wire.publish("S.1", held)
    declared = stream("S", storage="file")
    way = (await guarded.offered(declared))["Stream/S"]["immutable"]
    (note,) = quoted(way)
    if held:
        assert list((await guarded.offered(annotated(declared, note)))["Stream/S"]) == ["data-loss"]
        note = 'reconciler/allow: "recreate,data-loss"'
    guarded.apply(annotated(declared, note))
    assert ((await wire.stream_info("S"))["config"]["storage"], await count(wire, "S")) == ("file", 0)
    tried(way)


@pytest.mark.parametrize("how", ["flag", "annotation"])
async def test_fewer_replicas(cluster: Cluster, offline: Command, tmp_path: Path, how: str) -> None:
    async with await Wire.connect(cluster.url) as wire:
        guarded, name = on(cluster, offline, wire, tmp_path), f"FEWER_{how}"
        guarded.apply(stream(name, replicas=3))
        await wire.publish(f"{name}.1", COUNT)
        fewer = stream(name, replicas=1)
        way = (await guarded.offered(fewer))[f"Stream/{name}"]["replicas"]
        if how == "flag":
            guarded.apply(fewer, flags=flags(way))
        else:
            guarded.apply(annotated(fewer, quoted(way)[1]))
        assert (await wire.stream_info(name))["config"]["num_replicas"] == 1
        assert await count(wire, name) == COUNT
        tried(way)


async def test_a_server_that_is_down(cluster: Cluster, offline: Command, tmp_path: Path) -> None:
    changed = stream("DOWN", description="another")
    async with await Wire.connect(cluster.url) as wire:
        on(cluster, offline, wire, tmp_path).apply(stream("DOWN", replicas=1))
        await wire.publish("DOWN.1", COUNT)
        home = (await wire.stream_info("DOWN"))["cluster"]["leader"]
    with without(cluster, home) as url:
        cli = Command(offline.home, url)
        ended = cli("apply", "-f", written(tmp_path, changed), "--yes", "--format", "json", code=3).json
    (reason,) = ended["changes"][0]["explanations"]
    assert reason["wayOut"].startswith("check that its servers are up")
    async with await Wire.connect(cluster.url) as wire:
        on(cluster, offline, wire, tmp_path).apply(changed)
        assert (await wire.stream_info("DOWN"))["config"]["description"] == "another"
        assert await count(wire, "DOWN") == COUNT
    tried(reason["wayOut"])


@contextmanager
def without(cluster: Cluster, name: str) -> Iterator[str]:
    """Where to find the others while one server is down."""
    down = next(server for server in cluster.servers if server.name == name)
    down.stop()
    try:
        cluster.wait_ready()
        yield ",".join(server.url for server in cluster.servers if server.running)
    finally:
        down.start()
        cluster.wait_ready()


LOGINS = (
    "authorization {{ users: [{{user: all, password: pw}}, {{user: us, password: pw, permissions: {{publish: {denied}}}}}] }}"
)
WITHOUT_READING = LOGINS.format(denied='{deny: ["$JS.API.CONSUMER.LIST.S"]}')


async def test_a_user_that_may_not_read_it(offline: Command, tmp_path: Path) -> None:
    with Server(tmp_path / "server", config=WITHOUT_READING) as server:
        async with await Wire.connect(server.url, user="all", password="pw") as wire:
            guarded = Guarded(Command(offline.home, server.url.replace("//", "//us:pw@")), wire, tmp_path)
            await wire.expect("STREAM.CREATE.S", {"name": "S", "subjects": ["S.>"]})
            await wire.expect(
                "CONSUMER.CREATE.S.c", {"stream_name": "S", "config": {"durable_name": "c", "ack_policy": "explicit"}}
            )
            declared = stream("S"), consumer("S")
            way = (await guarded.offered(*declared, flags=["--adopt"]))["Consumer/S/c"]["unknown"]
            assert "that this user may read it" in way
            server.reload(LOGINS.format(denied='{allow: [">"]}'))
            guarded.apply(*declared, flags=["--adopt"])
            assert (await wire.consumer_info("S", "c"))["config"]["metadata"]["reconciler.owner"] == "default"
            tried(way)


def in_domain(domain: str) -> tuple[str, str]:
    """A stream at the hub, and one of a leaf."""
    return stream("H"), stream("S", domain=domain)


async def test_a_leaf_that_is_not_connected(offline: Command, tmp_path: Path) -> None:
    async with hub_and_leaves(tmp_path / "net", "leaf") as hub:
        leaf = hub.leaves["leaf"]
        guarded = on(hub.server, offline, hub.wire, tmp_path)
        leaf.link.cut()
        await until(lambda: _away(hub.wire, "leaf"))
        way = (await guarded.offered(*in_domain("leaf")))["leaf:Stream/S"]["unknown"]
        leaf.link.mend()
        await until(lambda: _answers(hub.wire, "leaf"))
        await asyncio.to_thread(guarded.apply, *in_domain("leaf"))  # the link is in this process
        assert await streams(leaf.wire) == {"S"}
        tried(way)


async def test_a_domain_that_is_called_otherwise(offline: Command, tmp_path: Path) -> None:
    async with hub_and_leaves(tmp_path / "net", "leaf") as hub:
        guarded = on(hub.server, offline, hub.wire, tmp_path)
        way = (await guarded.offered(*in_domain("laef")))["laef:Stream/S"]["unknown"]
        assert "that its domain is called laef" in way
        await asyncio.to_thread(guarded.apply, *in_domain("leaf"))
        assert await streams(hub.leaves["leaf"].wire) == {"S"}
        tried(way)


async def _answers(wire: Wire, domain: str) -> bool:
    try:
        await wire.client.request(Wire(wire.client, domain).subject("INFO"), b"", timeout=0.5)
    except Exception:  # noqa: BLE001 - nobody there, in one way or another
        return False
    return True


async def _away(wire: Wire, domain: str) -> bool:
    return not await _answers(wire, domain)


async def test_what_can_be_set_but_never_unset(guarded: Guarded, wire: Wire) -> None:
    """Of every such field in turn, what is printed goes into the manifest as it stands."""
    cases = {f"S{number}": case for number, case in enumerate(case for case in FIXED_CASES if case.code == "one-way")}
    assert cases
    guarded.apply(*(stream(name, **named(case.live, name)) for name, case in cases.items()))
    said = await guarded.offered(*(stream(name, **named(case.wanted, name)) for name, case in cases.items()))
    ways = {name: said[f"Stream/{name}"]["one-way"] for name in cases}
    again = {name: dict([quoted(way)[0].split(": ")]) for name, way in ways.items()}
    ended = guarded.apply(
        *(stream(name, **{path: json.loads(flag)}) for name, given in again.items() for path, flag in given.items())
    )
    assert ended["changes"] == []
    for name, case in cases.items():
        assert (await wire.stream_info(name))["config"][case.wire] is True
    for way in ways.values():
        tried(way)


@pytest.mark.parametrize("how", ["a new stream", "promoted"])
async def test_a_mirror_of_something_else(guarded: Guarded, wire: Wire, how: str) -> None:
    def mirror(name: str, of: str) -> str:
        return stream(name, subjects=[], mirror={"name": of})

    origins = stream("ONE"), stream("TWO")
    guarded.apply(*origins, mirror("COPY", "ONE"))
    await wire.publish("ONE.1", COUNT)
    await wire.publish("TWO.1", COUNT, first=COUNT)
    await until(lambda: _holds(wire, "COPY", COUNT))
    way = (await guarded.offered(*origins, mirror("COPY", "TWO")))["Stream/COPY"]["immutable"]
    if how == "promoted":
        guarded.apply(*origins, stream("COPY"))
        await wire.publish("COPY.1", 1, first=COUNT)
        assert await wire.payloads("COPY") == [str(number) for number in range(COUNT + 1)]
    else:
        guarded.apply(*origins, mirror("COPY", "ONE"), mirror("ANOTHER", "TWO"))
        await until(lambda: _holds(wire, "ANOTHER", COUNT))
        assert await wire.payloads("ANOTHER") == await wire.payloads("TWO")
        assert await wire.payloads("COPY") == await wire.payloads("ONE")
    tried(way)


async def _holds(wire: Wire, name: str, messages: int) -> bool:
    return await count(wire, name) == messages


@pytest.mark.parametrize("how", ["less", "more room"])
async def test_what_is_too_large_to_send(offline: Command, tmp_path: Path, how: str) -> None:
    with Server(tmp_path / "small", config="max_payload: 16384") as server:
        async with await Wire.connect(server.url) as wire:
            guarded = on(server, offline, wire, tmp_path)
            subjects = [f"S.{number}.{'x' * 60}" for number in range(400)]
            way = (await guarded.offered(stream("S"), consumer("S", filterSubjects=subjects)))["Consumer/S/c"]["too-large"]
            if how == "less":
                halves = {"c": subjects[:100], "d": subjects[100:200], "e": subjects[200:300], "f": subjects[300:]}
                parts = [consumer("S", name, filterSubjects=some) for name, some in halves.items()]
            else:
                server.reload("max_payload: 1048576")
                parts = [consumer("S", filterSubjects=subjects)]
            guarded.apply(stream("S"), *parts)
            names = (await wire.expect("CONSUMER.NAMES.S"))["consumers"]
            configs = [(await wire.consumer_info("S", name))["config"] for name in names]
            assert sorted(subject for config in configs for subject in config["filter_subjects"]) == sorted(subjects)
            tried(way)


@pytest.mark.parametrize("how", ["declared again", "taken out as well"])
async def test_a_stream_that_goes_while_its_consumers_are_declared(guarded: Guarded, wire: Wire, how: str) -> None:
    guarded.apply(stream("KEPT"), stream("S"), consumer("S"))
    way = (await guarded.offered(stream("KEPT"), consumer("S"), flags=["--prune"]))["Stream/S"]["removed-stream"]
    if how == "declared again":
        assert guarded.apply(stream("KEPT"), stream("S"), consumer("S"), flags=["--prune"])["changes"] == []
        assert await wire.consumer_info("S", "c")
    else:
        guarded.apply(stream("KEPT"), flags=["--prune"])
        assert await streams(wire) == {"KEPT"}
    tried(way)


@pytest.mark.parametrize("how", ["declared", "created"])
async def test_a_consumer_of_a_stream_that_is_not_there(guarded: Guarded, wire: Wire, how: str) -> None:
    way = (await guarded.offered(consumer("S")))["Consumer/S/c"]["no-such-stream"]
    if how == "declared":
        guarded.apply(stream("S"), consumer("S"))
    else:
        await wire.expect("STREAM.CREATE.S", {"name": "S", "subjects": ["S.>"]})
        guarded.apply(consumer("S"))
    assert await wire.consumer_info("S", "c")
    tried(way)


async def test_what_needs_something_that_is_blocked(guarded: Guarded, wire: Wire) -> None:
    await wire.expect("STREAM.CREATE.THEIRS", {"name": "THEIRS", "subjects": ["S.a"]})
    declared = stream("S"), consumer("S")
    said = await guarded.offered(*declared)
    way = said["Consumer/S/c"]["depends-on"]
    assert list(said[way.removeprefix("see ")]) == ["subject-overlap"]
    await wire.expect("STREAM.UPDATE.THEIRS", {"name": "THEIRS", "subjects": ["theirs.a"]})
    guarded.apply(*declared)
    assert await wire.consumer_info("S", "c")
    tried(way)


OLD: dict[str, tuple[str, Json, Json]] = {
    "a field of a newer one": ("2.12.8", {}, {"allowBatched": True}),
    "a mirror to be promoted": ("2.11.11", {"subjects": [], "mirror": {"name": "ORIGIN"}}, {}),
}


@pytest.mark.matrix
@pytest.mark.parametrize("what", OLD)
async def test_a_server_that_is_too_old(offline: Command, tmp_path: Path, what: str) -> None:
    version, before, after = OLD[what]
    declared = stream("ORIGIN"), stream("S", **after)
    old = Server(tmp_path / "old", version=version).start()
    try:
        async with await Wire.connect(old.url) as wire:
            guarded = on(old, offline, wire, tmp_path)
            guarded.apply(stream("ORIGIN"), stream("S", **before))
            await wire.publish("ORIGIN.1", COUNT)
            way = (await guarded.offered(*declared))["Stream/S"]["level"]
    finally:
        old.stop()
    with old.successor() as new:
        async with await Wire.connect(new.url) as wire:
            guarded.apply(*declared)
            config: Json = (await wire.stream_info("S"))["config"]
            assert (config.get("allow_batched", False), "mirror" in config) == (bool(after), False)
            assert await count(wire, "ORIGIN") == COUNT
    tried(way)
