"""A stalled source is silent on the server: the daemon tells within 15 seconds that it stalls, and why."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest

from tests.support.account.meddling import Somebody, Watched, watched
from tests.support.account.wire import Json, Wire
from tests.support.clock.until import until
from tests.support.daemon.command import Command
from tests.support.daemon.process import daemon
from tests.support.daemon.running import ran
from tests.support.server.leaves import hub_and_leaves
from tests.support.server.process import Server
from tests.support.sources.watched import aggregate, durable, entry, flows, make, source_of, stalls, told, until_source
from tests.support.values.catalogues import stream, write

pytestmark = pytest.mark.since("2.14")

HEALTHY = ("IDLE", "BUSY", "PLAIN", "QUEUED", "COPY", "LASTING")
ACCOUNTS = """
accounts {{
  ORIGIN {{
    jetstream: enabled, users: [{{user: origin, password: origin}}]
    exports: [{{service: "$JS.API.>", response_type: stream}}, {{stream: "dlv.>"}}, {{service: "$JS.FC.>"}}]
  }}
  HERE {{
    jetstream: enabled, users: [{{user: here, password: here}}]
    imports: [
      {{service: {{account: ORIGIN, subject: "$JS.API.>"}}, to: "$JS.there.API.>"}}
      {{stream: {{account: ORIGIN, subject: "dlv.>"}}}}
      {more}
    ]
  }}
}}
"""
LOOKS = 8.0
"""Seconds in which a source is looked at twice."""
FLOW_CONTROL = '{service: {account: ORIGIN, subject: "$JS.FC.>"}}'


def watching(document: Json) -> bool:
    """Whether the sources were looked at."""
    return bool(document["sources"])


def well() -> list[Json]:
    """Sources of all kinds that work."""
    return [
        stream("S", "s.>"),
        stream("W", "w.>", retention="workqueue"),
        durable("S", "dlv.idle", "idle"),
        durable("S", "dlv.busy", "busy"),
        durable("S", "dlv.lasting", "lasting"),
        aggregate("IDLE", entry("S", "dlv.idle", "idle")),
        aggregate("BUSY", entry("S", "dlv.busy", "busy")),
        aggregate("PLAIN", {"name": "S"}),
        aggregate("QUEUED", {"name": "W"}),
        aggregate("COPY", mirror={"name": "S"}),
        aggregate("LASTING", mirror=entry("S", "dlv.lasting", "lasting")),
    ]


@pytest.mark.slow
async def test_what_works_flows_for_as_long_as_it_is_watched(any_server: Server, tmp_path: Path) -> None:
    async with watched(any_server, tmp_path, well()) as place:
        for name in HEALTHY:
            await until_source(place.daemon, name, flows)
        states = set()
        for number in range(20):
            if number < 10:
                await place.somebody.publish("s.x", 200)
            await asyncio.sleep(1)
            states |= {source["state"] for source in (await place.daemon.status())["sources"]}
        assert states == {"Flowing"}
        idle = await source_of(place.daemon, "IDLE")
        assert (idle["mode"], idle["consumer"], idle["lastSequence"], idle["pending"]) == ("user-managed", "idle", 2000, 0)
        assert (await source_of(place.daemon, "COPY"))["lastSequence"] == 2000
        assert await place.daemon.metric('reconciler_sources{health="flowing"}') == len(HEALTHY)
        assert not [line for line in place.daemon.lines() if line["event"].startswith("source.")]


STALLS = {
    "GONE": "consumer-missing",
    "NOWHERE": "stream-missing",
    "ELSEWHERE": "deliver-subject",
    "PULL": "wrong-consumer",
    "AWAY": "domain",
    "BARE": "stream-missing",
    "BEYOND": "position",
}


async def stalled(somebody: Somebody) -> None:
    """Makes durables that do not work as those of `broken`."""
    for name in ("gone", "elsewhere", "pull", "beyond"):
        await somebody.expect(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"]})
    await make(somebody, "gone", "dlv.gone")
    await make(somebody, "elsewhere", "dlv.other")
    await make(somebody, "pull", "dlv.pull", ack_policy="explicit")
    await make(somebody, "beyond", "dlv.beyond")


def broken() -> list[Json]:
    """Sources that nothing comes through, but the first: that is cut later."""
    return [
        aggregate("GONE", entry("gone", "dlv.gone")),
        aggregate("NOWHERE", entry("nowhere", "dlv.nowhere")),
        aggregate("ELSEWHERE", entry("elsewhere", "dlv.elsewhere")),
        aggregate("PULL", entry("pull", "dlv.pull")),
        aggregate("AWAY", entry("S", "dlv.away", external={"domain": "nowhere"})),
        aggregate("BARE", {"name": "nowhere"}),
        aggregate("BEYOND", entry("beyond", "dlv.beyond")),
        stream("S", "s.>"),
        aggregate("PLAIN", {"name": "S"}),
    ]


@pytest.mark.differs
@pytest.mark.slow
async def test_each_stall_is_told_with_its_cause(any_server: Server, tmp_path: Path) -> None:
    async with await Somebody.arrive(any_server.url) as before:
        await stalled(before)
    async with watched(any_server, tmp_path, broken(), like=watching) as place:
        await until_source(place.daemon, "GONE", flows)
        await place.somebody.publish("gone.x", 5)
        await place.somebody.expect("CONSUMER.DELETE.gone.c")
        await place.somebody.expect("CONSUMER.RESET.beyond.c", {"seq": 5000})
        waits = await asyncio.gather(*(until_source(place.daemon, name, stalls(cause)) for name, cause in STALLS.items()))
        found = dict(zip(STALLS, waits, strict=True))
        assert "Consumer/gone/c is not there" in found["GONE"]["message"]
        assert "dlv.other" in found["ELSEWHERE"]["message"]
        assert "dlv.elsewhere" in found["ELSEWHERE"]["message"]
        assert "10217" in found["PULL"]["error"]
        assert "waiting for domain nowhere" in found["AWAY"]["message"]
        assert found["AWAY"]["state"] == "Waiting"
        assert all(source["stalledSince"] for source in found.values())
        assert (await source_of(place.daemon, "PLAIN"))["state"] == "Flowing"
        told = {(line["resource"].removeprefix("Stream/"), line["cause"]) for line in place.daemon.lines("source.stalled")}
        assert told >= set(STALLS.items())
        assert await place.daemon.metric('reconciler_source_stalled{cause="stream_missing"}') == 2
        assert (await place.daemon.get("/readyz"))[0] == 200


@asynccontextmanager
async def watched_from(server: Server, directory: Path, documents: list[Json], **user: str) -> AsyncIterator[Watched]:
    """A daemon that connects as one of several users."""
    path = write(directory / "all.yaml", documents)
    cli = Command(directory, server.url)
    login = {"NATS_USER": user["user"], "NATS_PASSWORD": user["password"]}
    async with AsyncExitStack() as stack:
        somebody = await stack.enter_async_context(await Somebody.arrive(server.url, **user))
        begun = daemon(cli, directory / "log", "-f", path, "--audit", "off", ready=True, **login)
        running = await stack.enter_async_context(begun)
        yield Watched(running, somebody, path)


@pytest.mark.slow
@pytest.mark.parametrize("exported", [True, False])
async def test_a_missing_export_of_flow_control_is_told(server_version: str, tmp_path: Path, exported: bool) -> None:
    config = ACCOUNTS.format(more=FLOW_CONTROL if exported else "")
    documents = [aggregate("A", entry("S", "dlv.a", external={"domain": "there"}))]
    here = {"user": "here", "password": "here"}
    with Server(tmp_path / "server", version=server_version, config=config) as server:
        async with await Wire.connect(server.url, user="origin", password="origin") as origin:
            await origin.expect("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
            await make(origin, "S", "dlv.a")
            async with watched_from(server, tmp_path, documents, **here) as place:
                await until_source(place.daemon, "A", flows)
                await origin.publish("s.x", 1500)
                if not exported:
                    found = await until_source(place.daemon, "A", stalls("flow-control"))
                    assert "$JS.FC.>" in found["message"]
                    return
                await until_source(place.daemon, "A", lambda source: source["lastSequence"] == 1500)
                await asyncio.sleep(10)
                assert not place.daemon.lines("source.stalled")


@pytest.mark.slow
async def test_a_leaf_that_is_cut_off_is_waited_for_and_flows_again(server_version: str, tmp_path: Path) -> None:
    documents = [
        aggregate("A", entry("S", "dlv.a", external={"domain": "leaf"})),
        aggregate("B", entry("S", "dlv.b", external={"domain": "laef"})),
    ]
    async with hub_and_leaves(tmp_path, "leaf", version=server_version) as hub:
        leaf = hub.leaves["leaf"]
        await leaf.wire.expect("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
        await make(leaf.wire, "S", "dlv.a")
        async with watched(hub.server, tmp_path, documents, like=watching) as place:
            await until_source(place.daemon, "A", flows)
            found = await until_source(place.daemon, "B", stalls("domain"))
            assert "waiting for domain laef" in found["message"]
            leaf.link.cut()
            found = await until_source(place.daemon, "A", stalls("domain"))
            assert "waiting for domain leaf" in found["message"]
            leaf.link.mend()
            await until_source(place.daemon, "A", flows)
            recovered = [line for line in place.daemon.lines("source.recovered") if line["resource"] == "Stream/A"]
            assert len(recovered) == 1


async def _set_back(place: Watched) -> list[Json]:
    """To 40, until it is told; a server that has all of it acknowledged at once resets it itself, before anybody looks."""
    for _ in range(10):
        await place.somebody.expect("CONSUMER.RESET.S.c", {"seq": 40})
        with suppress(TimeoutError):
            return await told(place.daemon, "source.reset", seconds=LOOKS)
    return place.daemon.lines("source.reset")


@pytest.mark.slow
async def test_what_is_moved_by_hand_is_told_once_with_its_range(any_server: Server, tmp_path: Path) -> None:
    documents = [stream("S", "s.>"), durable("S", "dlv.a"), aggregate("A", entry("S", "dlv.a"))]
    async with watched(any_server, tmp_path, documents) as place:
        somebody = place.somebody
        await somebody.publish("s.x", 100)
        await until_source(place.daemon, "A", lambda source: source["lastSequence"] == 100)
        await somebody.expect("CONSUMER.RESET.S.c", {})
        await asyncio.sleep(7)
        assert not place.daemon.lines("source.reset")
        (back,) = await _set_back(place)
        assert (back["first"], back["last"]) == (40, 100)
        assert "no duplicates" in back["message"]
        await somebody.expect("CONSUMER.PAUSE.S.c", {"pause_until": "2099-01-01T00:00:00Z"})
        paused = await until_source(place.daemon, "A", lambda source: source["state"] == "Paused")
        assert (paused["pausedBy"], paused["pausedUntil"]) == ("person", "2099-01-01T00:00:00Z")
        await somebody.publish("s.x", 50)
        await until_source(place.daemon, "A", lambda source: source["pending"] == 50)
        await somebody.expect("CONSUMER.RESET.S.c", {"seq": 131})
        await somebody.expect("CONSUMER.PAUSE.S.c", {})
        await until_source(place.daemon, "A", lambda source: flows(source) and source["lastSequence"] == 150)
        _, skipped = await told(place.daemon, "source.reset", 2)
        assert (skipped["first"], skipped["last"]) == (101, 130)
        (lost,) = await told(place.daemon, "source.lost")
        assert (lost["resource"], lost["first"], lost["last"]) == ("Stream/A", 101, 130)
        assert await place.daemon.metric('reconciler_source_incidents_total{incident="lost"}') == 1
        assert len(await somebody.payloads("A")) == 120
        assert await place.daemon.metric('reconciler_source_incidents_total{incident="reset"}') == 2


@pytest.mark.differs
@pytest.mark.slow
async def test_what_was_lost_and_an_origin_made_anew_are_told(any_server: Server, tmp_path: Path) -> None:
    documents = [aggregate("A", entry("S", "dlv.a")), aggregate("B", entry("T", "dlv.b"))]
    async with await Somebody.arrive(any_server.url) as before:
        await before.expect("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "retention": "interest"})
        await before.expect("STREAM.CREATE.T", {"name": "T", "subjects": ["t.>"]})
        await make(before, "S", "dlv.a")
        await make(before, "T", "dlv.b")
    async with watched(any_server, tmp_path, documents, like=watching) as place:
        somebody = place.somebody
        for subject, name in (("s.x", "A"), ("t.x", "B")):
            await somebody.publish(subject, 20)
            await until_source(place.daemon, name, lambda source: flows(source) and source["lastSequence"] == 20)
        await somebody.expect("CONSUMER.DELETE.S.c")
        await somebody.publish("s.x", 10)
        await make(somebody, "S", "dlv.a")
        await somebody.expect("STREAM.DELETE.T")
        await somebody.expect("STREAM.CREATE.T", {"name": "T", "subjects": ["t.>"]})
        await make(somebody, "T", "dlv.b")
        await somebody.publish("t.x", 5)
        (lost,) = await told(place.daemon, "source.lost")
        assert (lost["resource"], lost["first"], lost["last"]) == ("Stream/A", 21, 30)
        (anew,) = await told(place.daemon, "source.recreated")
        assert anew["resource"] == "Stream/B"
        if any_server.version.startswith("2.14"):
            assert (anew["first"], anew["last"]) == (1, 20)
            found = await source_of(place.daemon, "B")
            assert found["cause"] == "origin-recreated"


@pytest.mark.slow
async def test_an_entry_that_does_not_attach_is_kicked(tmp_path: Path) -> None:
    """2.14 tries again only after 40 seconds."""
    documents = [stream("S", "s.>"), durable("S", "dlv.a"), aggregate("A", entry("S", "dlv.a"))]
    with Server(tmp_path / "server", version="2.14.6") as server:
        async with await Somebody.arrive(server.url) as before:
            await before.expect("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
            live = {"name": "A", "sources": [{"name": "S", "consumer": {"name": "c", "deliver_subject": "dlv.a"}}]}
            await before.expect("STREAM.CREATE.A", live)
            await asyncio.sleep(1)
            await make(before, "S", "dlv.a")
            await before.publish("s.x", 10)
        async with watched(server, tmp_path, documents, "--adopt") as place:
            await until_source(place.daemon, "A", stalls("not-bound"))
            await until_source(place.daemon, "A", flows)
            (kicked,) = place.daemon.lines("source.kicked")
            assert kicked["number"] == 1
            assert await place.somebody.payloads("A") == [str(number) for number in range(10)]
            config = await place.somebody.config("A")
            assert [source["consumer"]["name"] for source in config["sources"]] == ["c"]
            await place.daemon.looked()
            assert (await place.daemon.resource("Stream/A"))["state"] == "Synced"
            assert not place.daemon.lines("drift.detected")


@pytest.mark.slow
async def test_a_single_look_shows_sources_as_well(any_server: Server, tmp_path: Path) -> None:
    documents = [stream("S", "s.>"), durable("S", "dlv.a"), aggregate("A", entry("S", "dlv.a"))]
    path, cli = write(tmp_path / "all.yaml", documents), Command(tmp_path, any_server.url)
    cli("apply", "-f", path, "--yes")
    async with await Somebody.arrive(any_server.url) as somebody:
        for arguments in (("status", "-f", str(path)), ("status",)):
            (shown,) = cli(*arguments, "--format", "json").json["sources"]
            assert (shown["state"], shown["mode"], shown["consumer"]) == ("Flowing", "user-managed", "c")
        await somebody.expect("CONSUMER.DELETE.S.c")
        await asyncio.sleep(3)
        text = cli("status", "-f", path).out
        assert "consumer-missing" in text
        assert "Stream/A from Stream/S" in text


DENYING = """
authorization { users: [
  {user: all, password: all}
  {user: part, password: part, permissions: {publish: {deny: ["$JS.API.STREAM.INFO.A"]}}} ] }
"""


async def test_a_stream_that_may_not_be_looked_at_is_unknown_with_the_reason_and_the_log_has_it_once(tmp_path: Path) -> None:
    documents = [stream("S", "s.>"), aggregate("A", {"name": "S"})]
    with Server(tmp_path / "server", config=DENYING) as server:
        path = write(tmp_path / "first.yaml", documents)
        await ran(Command(tmp_path, server.url.replace("//", "//all:all@")), "apply", "-f", path, "--yes")
        async with watched_from(server, tmp_path, documents, user="part", password="part") as place:
            why = 'permission denied: publish "$JS.API.STREAM.INFO.A"'
            found = await until_source(place.daemon, "A", lambda source: "not seen" in source["message"])
            assert (found["state"], found["message"].startswith(f"not seen: {why}")) == ("Unknown", True)
            await asyncio.sleep(LOOKS)
            (line,) = place.daemon.lines("source.not_seen")
            assert (line["stream"], line["error"].startswith(why)) == ("Stream/A", True)


@pytest.mark.slow
async def test_a_managed_durable_is_back_and_what_was_lost_is_told(any_server: Server, tmp_path: Path) -> None:
    managed = {"name": "S", "consumer": {"name": "c", "serverManaged": True}}
    documents = [stream("S", "s.>", retention="interest"), aggregate("A", managed)]
    async with watched(any_server, tmp_path, documents) as place:
        await until_source(place.daemon, "A", flows)
        await place.somebody.publish("s.x", 50)
        found = await until_source(place.daemon, "A", lambda source: flows(source) and source["lastSequence"] == 50)
        assert found["mode"] == "managed"
        place.daemon.send(signal.SIGSTOP)
        await place.somebody.expect("CONSUMER.DELETE.S.c")
        await place.somebody.publish("s.x", 10)
        place.daemon.send(signal.SIGCONT)

        async def back() -> bool:
            return "error" not in await place.somebody.call("CONSUMER.INFO.S.c")

        await until(back)
        (lost,) = await told(place.daemon, "source.lost")
        assert (lost["resource"], lost["first"], lost["last"]) == ("Stream/A", 51, 60)
        await until_source(place.daemon, "A", flows)
        assert not place.daemon.lines("source.stalled")
