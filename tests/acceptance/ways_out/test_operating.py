"""Ways out of what a person's command to one consumer is refused for, and of the end of an embedded server."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio
import yaml

from tests.support.account.guarded import Guarded, consumer, stream
from tests.support.account.meddling import Watched, watched
from tests.support.account.ways import commands_in, fields_in, handled, printed_way
from tests.support.account.wire import Wire, eventually
from tests.support.account.work import Work
from tests.support.clock.until import until
from tests.support.cluster.servers import Cluster
from tests.support.daemon.command import Command
from tests.support.daemon.leadership import release_for_the_dead
from tests.support.daemon.process import daemon, settled
from tests.support.daemon.running import started
from tests.support.promises import tried
from tests.support.server.binaries import NEWEST
from tests.support.server.process import Server
from tests.support.server.proxy import Proxy, Verdict
from tests.support.values import catalogues

LATER = "2099-01-01T00:00:00Z"
OLD = "2.12.8"
KEY = "Consumer/S/c"


async def refused(cli: Command, wire: Wire, *arguments: str) -> str:
    """The way out, when a command to a consumer is refused and writes nothing."""
    async with wire.audit() as audit:
        ended = cli("consumer", *arguments, code=3)
    assert ended.out == ""
    assert audit.writes("reconciler") == []
    return printed_way(ended.err)


async def is_paused(wire: Wire, name: str = "c") -> bool:
    """Whether this consumer of S delivers nothing."""
    return bool((await wire.consumer_info("S", name)).get("paused"))


@pytest.mark.parametrize(("flag", "value"), [("--until", LATER), ("--for", "1h")])
async def test_a_moment_that_is_over(guarded: Guarded, wire: Wire, flag: str, value: str) -> None:
    guarded.apply(stream("S"), consumer("S"))
    way = await refused(guarded.cli, wire, "pause", "S", "c", "--until", "2020-01-01T00:00:00Z")
    assert f"`{flag}`" in way
    guarded.cli("consumer", "pause", "S", "c", flag, value)
    assert await is_paused(wire)
    tried(way)


async def test_a_sequence_beyond_the_end(guarded: Guarded, wire: Wire) -> None:
    guarded.apply(stream("S", firstSeq=5000), consumer("S"))
    await wire.publish("S.a", 3)
    way = await refused(guarded.cli, wire, "reset", "S", "c", "--seq", "9999", "--yes")
    (highest,) = re.findall(r"\d\S*", way)
    guarded.cli("consumer", "reset", "S", "c", "--seq", highest, "--yes")
    await wire.publish("S.a", 1, first=3)
    assert await handled(wire, "S") == [3]
    tried(way)


async def another_starts_there(guarded: Guarded, way: str, expected: list[int], on: str = "S") -> None:
    """As the way out says it, beside the one that stays where it is."""
    before = await guarded.wire.consumer_info(on, "c")
    guarded.apply(consumer(on, "another", **fields_in(way)))
    assert await handled(guarded.wire, on, "another") == expected
    assert (await guarded.wire.consumer_info(on, "c"))["delivered"]["stream_seq"] == before["delivered"]["stream_seq"]
    tried(way)


@pytest.mark.parametrize("since", [False, True], ids=["sequence", "time"])
async def test_a_sequence_before_the_start(guarded: Guarded, wire: Wire, *, since: bool) -> None:
    guarded.apply(stream("S"))
    await wire.publish("S.a", 5)
    fourth = (await wire.expect("STREAM.MSG.GET.S", {"seq": 4}))["message"]["time"]
    by_time = {"deliverPolicy": "by_start_time", "optStartTime": fourth}
    guarded.apply(consumer("S", **(by_time if since else {"deliverPolicy": "by_start_sequence", "optStartSeq": 4})))
    way = await refused(guarded.cli, wire, "reset", "S", "c", "--seq", "2", "--yes")
    await another_starts_there(guarded, way, [1, 2, 3, 4])


async def only_what_comes(guarded: Guarded) -> str:
    """The way out for a consumer that cannot be moved to 1, when it was given 3 and 4, and has not done with them."""
    guarded.apply(stream("S"))
    await guarded.wire.publish("S.a", 3)
    guarded.apply(consumer("S", deliverPolicy="new"))
    await guarded.wire.publish("S.a", 2, first=3)
    assert await Work(guarded.wire, "S").pull(2, finish=False) == 2
    return await refused(guarded.cli, guarded.wire, "reset", "S", "c", "--seq", "1", "--yes")


async def test_a_consumer_that_is_moved_to_no_sequence_but_to_its_floor(guarded: Guarded) -> None:
    way = await only_what_comes(guarded)
    (flag,) = re.findall(r"`(--\S+)`", way)
    guarded.cli("consumer", "reset", "S", "c", flag, "--yes")
    assert await handled(guarded.wire, "S") == [3, 4]
    tried(way)


async def test_a_consumer_that_is_moved_to_no_sequence(guarded: Guarded) -> None:
    await another_starts_there(guarded, await only_what_comes(guarded), [0, 1, 2, 3, 4])


async def test_back_on_a_replicated_interest_stream(cluster: Cluster, offline: Command, tmp_path: Path) -> None:
    async with await Wire.connect(cluster.url) as wire:
        guarded = Guarded(Command(offline.home, cluster.url), wire, tmp_path, cluster)
        guarded.apply(stream("I", retention="interest", replicas=3), consumer("I"), consumer("I", "keeps"))
        await wire.publish("I.a", 4)
        assert await handled(wire, "I", most=3) == [0, 1, 2]
        ended = guarded.cli("consumer", "reset", "I", "c", "--seq", "2", "--yes", code=3)
        await another_starts_there(guarded, printed_way(ended.err), [1, 2, 3], "I")
        assert await handled(wire, "I") == [3]


async def moved_on_an_old_server(old: Server, offline: Command, directory: Path, **spec: str) -> tuple[Guarded, str]:
    """The way out for a consumer that has done with 0 to 3, and shall go on with sequence 2."""
    guarded = Guarded(Command(offline.home, old.url), await Wire.connect(old.url), directory)
    guarded.apply(stream("S", **spec), consumer("S"))
    await guarded.wire.publish("S.a", 5)
    assert await handled(guarded.wire, "S", most=4) == [0, 1, 2, 3]
    return guarded, await refused(guarded.cli, guarded.wire, "reset", "S", "c", "--seq", "2", "--yes")


@pytest.mark.matrix
async def test_another_consumer_on_an_old_server(offline: Command, tmp_path: Path) -> None:
    with Server(tmp_path / "server", version=OLD) as old:
        guarded, way = await moved_on_an_old_server(old, offline, tmp_path)
        await another_starts_there(guarded, way, [1, 2, 3, 4])
        await guarded.wire.close()


@pytest.mark.matrix
@pytest.mark.parametrize(("retention", "expected"), [("limits", [1, 2, 3, 4]), ("workqueue", [4])])
async def test_an_old_server_that_was_upgraded(offline: Command, tmp_path: Path, retention: str, expected: list[int]) -> None:
    with Server(tmp_path / "server", version=OLD) as old:
        guarded, way = await moved_on_an_old_server(old, offline, tmp_path, retention=retention)
        assert way.startswith("upgrade the server")
        assert bool(fields_in(way)) == (retention == "limits")  # a work queue has one reader
        await guarded.wire.close()
        old.stop()
        with old.successor(version=NEWEST) as new:
            async with await Wire.connect(new.url) as wire:
                guarded.cli("consumer", "reset", "S", "c", "--seq", "2", "--yes")
                assert await handled(wire, "S") == expected
    tried(way)


async def test_a_consumer_that_the_server_keeps_for_a_source(guarded: Guarded, wire: Wire) -> None:
    async def are_copied(count: int) -> bool:
        return await wire.payloads("ALL") == [str(number) for number in range(count)]

    origin = stream("S", retention="interest")
    guarded.apply(origin, stream("ALL", sources=[{"name": "S"}]))
    await until(lambda: has_readers(wire))
    await wire.publish("S.a", 3)
    await until(lambda: are_copied(3))
    (name,) = (await wire.expect("CONSUMER.NAMES.S"))["consumers"]
    way = await refused(guarded.cli, wire, "pause", "S", name, "--until", LATER)
    (said,) = re.findall("`(.+)`", way)
    guarded.apply(origin, stream("ALL", sources=[{"name": "S", **yaml.safe_load(said.replace("NAME", "own"))}]))
    guarded.cli("consumer", "pause", "S", "own", "--until", LATER)
    await wire.publish("S.a", 2, first=3)
    assert await are_copied(3)
    guarded.cli("consumer", "resume", "S", "own")
    await until(lambda: are_copied(5))
    tried(way)


async def has_readers(wire: Wire) -> bool:
    """Whether the server has made what the source reads through."""
    return bool((await wire.expect("CONSUMER.NAMES.S"))["consumers"])


def reading(*filters: str) -> list[catalogues.Json]:
    """A stream and a consumer of these subjects."""
    return [catalogues.stream("S", "S.>"), catalogues.consumer("S", "c", *filters)]


PAUSE = ("consumer", "pause", "S", "c", "--until", LATER)


@dataclass
class Busy:
    """A daemon that adds b to what a consumer reads, and waits for its worker; and what somebody is told who would pause it."""

    place: Watched
    cli: Command
    work: Work
    way: str

    async def pause(self) -> None:
        """Nothing is in the way any more."""
        self.cli(*PAUSE, "--daemon", self.place.daemon.url)
        assert (await self.place.somebody.config("S", "c"))["pause_until"] == LATER
        tried(self.way)


@pytest_asyncio.fixture
async def busy(cli: Command, server: Server, tmp_path: Path) -> AsyncIterator[Busy]:
    async with watched(server, tmp_path, reading("S.a")) as place:
        work = Work(place.somebody, "S")
        await work.publish(*["S.a", "S.b"] * 3)
        assert await work.pull(2, finish=False) == 2
        await place.commit(reading("S.a", "S.b"))
        await until(lambda: is_paused(place.somebody))
        yield Busy(place, cli, work, printed_way(cli(*PAUSE, code=3).err))


async def test_a_procedure_that_ends(busy: Busy) -> None:
    await busy.work.finish()
    await busy.place.daemon.until(settled)
    await busy.pause()
    assert (await busy.place.somebody.config("S", "c"))["filter_subjects"] == ["S.a", "S.b"]


async def test_a_procedure_that_is_stopped(busy: Busy) -> None:
    somebody, daemon = busy.place.somebody, busy.place.daemon
    (stop,) = (command for command in commands_in(busy.way) if command[0] == "procedure")
    said = busy.cli(*stop, environ={"RECONCILER_DAEMON": daemon.url}).out
    await daemon.until(lambda document: document["procedures"][0]["state"] == "aborted")
    await busy.pause()
    assert (await somebody.config("S", "c"))["filter_subjects"] == ["S.a"]

    busy.cli("consumer", "resume", "S", "c", "--daemon", daemon.url)
    ((*retry,),) = commands_in(said)
    assert " ".join(retry) in (await daemon.resource(KEY))["message"]
    busy.cli(*retry, environ={"RECONCILER_DAEMON": daemon.url})
    await busy.work.finish()
    await daemon.until(settled)
    assert (await somebody.config("S", "c"))["filter_subjects"] == ["S.a", "S.b"]


async def test_a_procedure_whose_process_was_killed(cli: Command, server: Server, wire: Wire, tmp_path: Path) -> None:
    cli("apply", "-f", catalogues.write(tmp_path / "all.yaml", reading("S.a")), "--yes")
    await wire.publish("S.b", 3)
    apply = ("apply", "-f", catalogues.write(tmp_path / "all.yaml", reading("S.a", "S.b")), "--yes")
    async with Proxy(server.port) as proxy:
        proxy.rule = proxy.from_write(3, Verdict.DROP)
        async with started(Command(cli.home, proxy.url), *apply) as running:
            await proxy.until_stuck()
            await running.kill()
    await release_for_the_dead(wire)
    way = await refused(cli, wire, *PAUSE[1:])
    assert commands_in(way)[0] == ["apply"]
    cli(*apply)
    assert await handled(wire, "S") == [0, 1, 2]
    cli(*PAUSE)
    assert await is_paused(wire)
    tried(way)


class Embedded(NamedTuple):
    """A server that a daemon has started, by the last words of its log."""

    pid: int
    url: str


def embedded(data: Path) -> Embedded:
    """The one that runs on this data."""
    log = (data / "nats-server.log").read_text(encoding="utf-8")
    return Embedded(int(re.findall(r"^\[(\d+)\]", log, re.MULTILINE)[-1]), re.findall(r"client connections on (\S+)", log)[-1])


async def test_an_embedded_server_that_died(offline: Command, tmp_path: Path) -> None:
    place = ("-f", catalogues.write(tmp_path / "all.yaml", reading("S.a")), "--embedded", "--data", tmp_path / "data")
    async with daemon(offline, tmp_path / "first", *place) as running:
        await running.until(settled)
        async with await Wire.connect(embedded(tmp_path / "data").url) as wire:
            await wire.publish("S.a", 3)
            assert await handled(wire, "S", most=1) == [0]
        os.kill(embedded(tmp_path / "data").pid, signal.SIGKILL)
        await eventually(lambda: bool(running.lines("embedded.died")))
        (line,) = running.lines("embedded.died")
        await running.stop()
    async with (
        daemon(offline, tmp_path / "second", *place) as running,
        await Wire.connect(embedded(tmp_path / "data").url) as wire,
    ):
        await release_for_the_dead(wire)  # else it waits as long as the one before may believe that it leads
        await running.until(settled)
        assert await handled(wire, "S") == [1, 2]
    tried(line["way_out"])
