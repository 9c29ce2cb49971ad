"""Ways out about ordinary consumers: each is printed, then taken, and leads where somebody wanted to go."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.account.guarded import Guarded, consumer, stream
from tests.support.account.meddling import state_of, watched
from tests.support.account.ways import allowing, commands_in, fields_in, handled
from tests.support.account.wire import Json, Wire
from tests.support.cluster.servers import Cluster
from tests.support.daemon.command import Command
from tests.support.daemon.process import daemon
from tests.support.partitions.rollout import WORKERS, Site
from tests.support.promises import tried
from tests.support.server.binaries import NEWEST
from tests.support.server.leaves import hub_and_leaves
from tests.support.server.process import Server
from tests.support.values import catalogues
from tests.support.values.manifests import written

LATER = "2099-01-01T00:00:00Z"
OLDEST, OLD = "2.11.11", "2.12.8"
KEY = "Consumer/S/c"


async def too_many(guarded: Guarded) -> str:
    """The way out when somebody else has the one consumer that a stream may have, beside three messages."""
    guarded.apply(stream("S", maxConsumers=1))
    await guarded.wire.publish("S.a", 3)
    theirs = {"stream_name": "S", "config": {"name": "theirs", "durable_name": "theirs"}}
    await guarded.wire.expect("CONSUMER.CREATE.S.theirs", theirs)
    return (await guarded.offered(stream("S", maxConsumers=1), consumer("S")))[KEY]["max-consumers"]


async def has_room(guarded: Guarded, way: str) -> None:
    """With the limit that is named."""
    (limit,) = re.findall(r"declare maxConsumers: (\d+) \(or more\) on the stream$", way)
    guarded.apply(stream("S", maxConsumers=int(limit)), consumer("S"))
    assert await handled(guarded.wire, "S") == [0, 1, 2]
    assert (await guarded.wire.stream_info("S"))["state"]["consumer_count"] == 2
    tried(way)


async def test_more_consumers_than_the_stream_takes(guarded: Guarded) -> None:
    way = await too_many(guarded)
    assert way.startswith("declare maxConsumers: 2 ")
    await has_room(guarded, way)


async def test_more_consumers_than_the_stream_takes_on_a_server_that_cannot_change_that(offline: Command, tmp_path: Path) -> None:
    with Server(tmp_path / "server", version=OLDEST) as old:
        guarded = Guarded(Command(offline.home, old.url), await Wire.connect(old.url), tmp_path)
        way = await too_many(guarded)
        assert way.startswith("upgrade the server to 2.12 or newer")
        async with upgraded(guarded, old) as anew:
            await has_room(anew, way)


@asynccontextmanager
async def upgraded(guarded: Guarded, old: Server) -> AsyncIterator[Guarded]:
    """The same, when the newest server has taken over what is stored."""
    await guarded.wire.close()
    old.stop()
    with old.successor(version=NEWEST) as new:
        async with await Wire.connect(new.url) as wire:
            yield replace(guarded, wire=wire)


async def test_a_field_that_no_update_changes(guarded: Guarded, wire: Wire) -> None:
    guarded.apply(stream("S"), consumer("S"))
    await wire.publish("S.a", 5)
    assert await handled(wire, "S", "c", 2) == [0, 1]
    after = consumer("S", maxWaiting=7)
    (way,) = (await guarded.offered(stream("S"), after))[KEY].values()
    guarded.apply(stream("S"), allowing(after, "recreate"))
    assert (await wire.consumer_info("S", "c"))["config"]["max_waiting"] == 7
    assert await handled(wire, "S") == [2, 3, 4]
    tried(way)


def reader(name: str, *reads: str, of: str = "S", **spec: Any) -> str:
    """A consumer of some subjects."""
    return consumer(of, name, filterSubjects=[f"{of}.{one}" for one in reads], **spec)


async def widened(guarded: Guarded, of: str, **spec: Any) -> tuple[str, str]:
    """The way out when a consumer shall get a subject under which 0 and 1 are stored, behind it; and its manifest then."""
    guarded.apply(reader("c", "a", of=of, **spec))
    await guarded.wire.publish(f"{of}.a", 2, first=2)
    assert await handled(guarded.wire, of) == [2, 3]
    after = reader("c", "a", "b", of=of, **spec)
    return (await guarded.offered(after))[f"Consumer/{of}/c"]["position-loss"], after


async def skips_what_was_stored(guarded: Guarded, of: str, after: str) -> None:
    """Accepted by name."""
    guarded.apply(allowing(after, "position-loss"))
    await guarded.wire.publish(f"{of}.b", 1, first=4)
    assert await handled(guarded.wire, of) == [4]


async def delivers_what_was_stored(guarded: Guarded, of: str, way: str) -> None:
    """By a second consumer, beside the one that there is."""
    guarded.apply(reader("c", "a", of=of), reader("d", "b", of=of, **fields_in(way)), flags=["--target", f"Consumer/{of}/d"])
    assert await handled(guarded.wire, of, "d") == [0, 1]
    assert await handled(guarded.wire, of) == []


async def stored(guarded: Guarded, of: str, **spec: Any) -> None:
    """0 and 1, on b; somebody else keeps them."""
    wire = guarded.wire
    guarded.apply(stream(of, **spec))
    config = {"name": "theirs", "durable_name": "theirs", "ack_policy": "explicit", "filter_subject": f"{of}.b"}
    await wire.expect(f"CONSUMER.CREATE.{of}.theirs", {"stream_name": of, "config": config})
    await wire.publish(f"{of}.b", 2)


@pytest.mark.parametrize("since", [False, True], ids=["new", "since"])
@pytest.mark.parametrize("accepted", [False, True], ids=["second", "accepted"])
async def test_stored_messages_that_a_consumer_cannot_go_back_to(guarded: Guarded, *, since: bool, accepted: bool) -> None:
    await stored(guarded, "S")
    now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    spec = {"deliverPolicy": "by_start_time", "optStartTime": now} if since else {"deliverPolicy": "new"}
    way, after = await widened(guarded, "S", **spec)
    await (skips_what_was_stored(guarded, "S", after) if accepted else delivers_what_was_stored(guarded, "S", way))
    tried(way)


@pytest.mark.parametrize("accepted", [False, True], ids=["second", "accepted"])
async def test_stored_messages_that_the_server_would_delete(
    cluster: Cluster, offline: Command, tmp_path: Path, *, accepted: bool
) -> None:
    async with await Wire.connect(cluster.url) as wire:
        guarded, of = Guarded(Command(offline.home, cluster.url), wire, tmp_path, cluster), f"I{accepted}"
        await stored(guarded, of, retention="interest", replicas=3)
        way, after = await widened(guarded, of)
        await (skips_what_was_stored(guarded, of, after) if accepted else delivers_what_was_stored(guarded, of, way))
        tried(way)


@pytest.mark.parametrize("accepted", [False, True], ids=["upgraded", "accepted"])
async def test_stored_messages_on_an_old_server(offline: Command, tmp_path: Path, *, accepted: bool) -> None:
    with Server(tmp_path / "server", version=OLD) as old:
        guarded = Guarded(Command(offline.home, old.url), await Wire.connect(old.url), tmp_path)
        await stored(guarded, "S")
        way, after = await widened(guarded, "S")
        if accepted:
            await skips_what_was_stored(guarded, "S", after)
            await guarded.wire.close()
        else:
            await delivers_after_an_upgrade(guarded, old, after)
    tried(way)


async def delivers_after_an_upgrade(guarded: Guarded, old: Server, after: str) -> None:
    """All that is stored, and as often as the plan says."""
    async with upgraded(guarded, old) as anew:
        (change,) = anew.apply(after)["changes"]
        assert change["procedure"]["expectedDuplicates"] == 2
        assert await handled(anew.wire, "S") == [0, 1, 2, 3]


async def test_what_a_person_paused(guarded: Guarded, wire: Wire) -> None:
    guarded.apply(stream("S"), reader("c", "a"))
    await wire.publish("S.b", 3)
    await wire.expect("CONSUMER.PAUSE.S.c", {"pause_until": LATER})
    after = [stream("S"), reader("c", "a", "b")]
    way = (await guarded.offered(*after))[KEY]["paused-by-person"]
    (command,) = commands_in(way)
    assert guarded.cli(*command).out.endswith("done\n")
    guarded.apply(*after)
    assert await handled(wire, "S") == [0, 1, 2]
    tried(way)


async def test_what_a_person_paused_in_another_domain(offline: Command, tmp_path: Path) -> None:
    async with hub_and_leaves(tmp_path, "leaf") as hub:
        leaf = hub.leaves["leaf"].wire
        guarded = Guarded(Command(offline.home, hub.server.url), hub.wire, tmp_path)

        async def apply(*reads: str, code: int = 0) -> Json:
            documents = stream("S", domain="leaf"), reader("c", *reads, domain="leaf")
            return await asyncio.to_thread(guarded.apply, *documents, code=code)  # the link to the leaf is in this loop

        await apply("a")
        await leaf.publish("S.b", 3)
        await leaf.expect("CONSUMER.PAUSE.S.c", {"pause_until": LATER})
        (way,) = (reason["wayOut"] for change in (await apply("a", "b", code=3))["changes"] for reason in change["explanations"])
        (command,) = commands_in(way)
        assert command[-2:] == ["--domain", "leaf"]
        await asyncio.to_thread(guarded.cli, *command)
        await apply("a", "b")
        assert await handled(leaf, "S") == [0, 1, 2]
        tried(way)


def printed(message: str, code: str) -> str:
    """The way out of this reason, in the message of a resource's status."""
    found = message.partition(f"{code}: ")[2]
    assert found, message
    return found.partition("; ")[2]


@pytest.mark.parametrize(("how", "expected"), [("resume", [2, 3, 4]), ("policy", [0, 1, 2, 3, 4])])
async def test_a_consumer_that_somebody_deleted(server: Server, tmp_path: Path, how: str, expected: list[int]) -> None:
    def declared(on_missing: str) -> Iterable[catalogues.Json]:
        return [catalogues.stream("S", "S.>"), catalogues.consumer("S", "c", "S.a", onMissing=on_missing)]

    async with watched(server, tmp_path, declared("block")) as place:
        wire = place.somebody
        await wire.publish("S.a", 5)
        assert await handled(wire, "S", "c", 2) == [0, 1]
        await place.daemon.looked()
        await wire.expect("CONSUMER.DELETE.S.c")
        await place.daemon.until(lambda document: state_of(document, KEY) == "Blocked")
        way = printed((await place.daemon.resource(KEY))["message"], "missing")
        assert f"`{how}`" in way
        await place.commit(declared(how))
        await place.daemon.until(lambda document: state_of(document, KEY) == "Synced")
        assert await handled(wire, "S") == expected
    tried(way)


async def test_worker_pools(cli: Command, wire: Wire, tmp_path: Path) -> None:
    site = Site(tmp_path / "site")
    manifests = site.root / "manifests"
    cli("apply", "-f", manifests, "--target", "Stream/DC", "--yes")
    site.tables(8)
    cli("partitions", "plan", "-c", site.root / "plan.yaml")
    (blocked,) = cli("apply", "-f", manifests, "--yes", "--format", "json", code=3).json["changes"]
    ((way),) = (reason["wayOut"] for reason in blocked["explanations"])
    written(manifests, consumer("DC"))
    cli("apply", "-f", manifests, "--yes", "--continue", code=5)
    await wire.publish("dc.tool0.chamber0", 3)
    assert await handled(wire, "DC") == [0, 1, 2]
    async with daemon(cli, tmp_path / "log", "-f", manifests, ready=False) as running:
        await running.listening()
        await running.until(lambda document: document["summary"]["Synced"] == 2)
        site.tables(8, WORKERS[:3])
        cli("partitions", "plan", "-c", site.root / "plan.yaml", "--force", "maxMovedFraction")
        await running.post("/-/reload")
        await running.until(lambda document: document["pools"][0]["generation"] == 2)
        (command,) = commands_in(way)
        shown = cli(*" ".join(command).replace("URL", running.url).split()).out
    assert "generation 2, loaded" in shown
    assert "2 moved, 0 new, 0 retired since generation 1" in shown
    tried(way)
