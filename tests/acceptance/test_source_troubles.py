"""What stops a source is in its line, with what ends it; that is done, and it flows."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.account.meddling import Somebody, watched
from tests.support.account.ways import commands_in
from tests.support.account.wire import Json, Wire
from tests.support.clock.until import until
from tests.support.daemon.command import Command
from tests.support.daemon.process import daemon
from tests.support.server.process import Server
from tests.support.sources.watched import aggregate, durable, entry, flows, make, stalls, until_source
from tests.support.values.catalogues import stream, write

pytestmark = [pytest.mark.since("2.14"), pytest.mark.slow]

MANAGED = {"name": "S", "consumer": {"name": "c", "serverManaged": True}}
COPIES = {
    "declared": [durable("S", "dlv.a"), aggregate("A", entry("S", "dlv.a"))],
    "managed": [aggregate("A", MANAGED)],
}


IMPORTS = """
accounts {{
  ORIGIN {{
    jetstream: enabled, users: [{{user: origin, password: origin}}]
    exports: [{{service: "$JS.API.>", response_type: stream}}, {{stream: "dlv.>"}}, {{service: "$JS.FC.>"}}]
  }}
  HERE {{
    jetstream: enabled, users: [{{user: here, password: here}}]
    imports: [
      {{service: {{account: ORIGIN, subject: "$JS.API.>"}}, to: "there.API.>"}}
      {{service: {{account: ORIGIN, subject: "$JS.FC.>"}}}}
      {more}
    ]
  }}
}}
"""
DELIVERED = '{stream: {account: ORIGIN, subject: "dlv.>"}}'


def shown(cli: Command, manifests: Path) -> Json:
    """The one source, as a command sees it that has watched nothing before."""
    (found,) = cli("status", "-f", manifests, "--format", "json").json["sources"]
    return dict(found)


@pytest.mark.parametrize("kept", COPIES)
async def test_a_durable_that_delivers_something_else_is_no_source_that_flows(server: Server, tmp_path: Path, kept: str) -> None:
    documents = [stream("S", "s.>"), *COPIES[kept]]
    async with watched(server, tmp_path, documents, "--drift", "report") as place:
        somebody, cli = place.somebody, Command(tmp_path, server.url)
        await somebody.publish("s.x", 30)
        await until_source(place.daemon, "A", lambda source: flows(source) and source["lastSequence"] == 30)
        await somebody.edit("S", "c", filter_subjects=["s.none"])
        await somebody.publish("s.x", 5, first=30)
        found = await until_source(place.daemon, "A", stalls("filter"))
        assert "Consumer/S/c delivers s.none, and not >" in found["message"]
        assert (shown(cli, place.manifests)["state"], shown(cli, place.manifests)["cause"]) == ("Stalled", "filter")
        assert await place.daemon.metric('reconciler_source_stalled{cause="filter"}') == 1
        await place.daemon.stop()
        assert "drift" in cli("plan", "-f", place.manifests).out
        cli("apply", "-f", place.manifests, "--yes")

        async def flowing() -> bool:
            return flows(shown(cli, place.manifests))

        await until(flowing)


@pytest.mark.parametrize("kept", COPIES)
async def test_who_finds_a_source_paused_by_somebody_reads_the_command_that_ends_that(
    server: Server, tmp_path: Path, kept: str
) -> None:
    async with watched(server, tmp_path, [stream("S", "s.>"), *COPIES[kept]]) as place:
        await until_source(place.daemon, "A", flows)
        await place.somebody.expect("CONSUMER.PAUSE.S.c", {"pause_until": "2099-01-01T00:00:00Z"})
        await place.somebody.publish("s.x", 5)
        found = await until_source(place.daemon, "A", lambda source: source["state"] == "Paused" and source["pending"] == 5)
        said = "paused until 2099-01-01T00:00:00Z by somebody; `reconciler consumer resume S c` ends that"
        assert found["message"] == said
        (arguments,) = commands_in(found["message"])
        command = Command(tmp_path, server.url)
        await asyncio.to_thread(command, *arguments, environ={"RECONCILER_DAEMON": place.daemon.url})
        await until_source(place.daemon, "A", lambda source: flows(source) and source["lastSequence"] == 5)


async def test_an_entry_that_was_left_detached_is_attached_by_the_next_apply(server: Server, tmp_path: Path) -> None:
    cli = Command(tmp_path, server.url)
    manifests = write(tmp_path / "all.yaml", [stream("S", "s.>"), *COPIES["managed"]])
    cli("apply", "-f", manifests, "--yes")
    async with await Somebody.arrive(server.url) as somebody:
        await somebody.edit("A", sources=[{"name": "S", "filter_subject": "_detached.c"}])
        await somebody.publish("s.x", 5)
        found = shown(cli, manifests)
        assert (found["state"], found["cause"]) == ("Stalled", "detached")
        cli("apply", "-f", manifests, "--yes")

        async def copied() -> bool:
            return flows(found := shown(cli, manifests)) and found["lastSequence"] == 5

        await until(copied)


async def test_what_the_server_refuses_is_in_its_words_and_over_once_that_is_mended(tmp_path: Path) -> None:
    manifests = write(tmp_path / "all.yaml", [aggregate("A", {"name": "S"})])
    with Server(tmp_path / "server", version="2.14.6") as server:
        async with await Somebody.arrive(server.url) as somebody:
            await somebody.expect("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "max_consumers": 1})
            await make(somebody, "S", "dlv.other")
            async with daemon(Command(tmp_path, server.url), tmp_path / "log", "-f", manifests) as running:
                found = await until_source(running, "A", stalls("server-error"))
                assert (found["state"], found["message"]) == ("Error", "maximum consumers limit reached (400/10026)")
                await somebody.expect("CONSUMER.DELETE.S.c")
                await until_source(running, "A", flows)


async def test_behind_an_import_that_is_not_whole_nothing_is_heard_until_it_is(server_version: str, tmp_path: Path) -> None:
    documents = [aggregate("A", entry("S", "dlv.a", external={"api": "there.API"}))]
    manifests, login = write(tmp_path / "all.yaml", documents), {"NATS_USER": "here", "NATS_PASSWORD": "here"}
    with Server(tmp_path / "server", version=server_version, config=IMPORTS.format(more="")) as server:
        async with await Wire.connect(server.url, user="origin", password="origin") as origin:
            await origin.expect("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
            await make(origin, "S", "dlv.a")
            begun = daemon(
                Command(tmp_path, server.url), tmp_path / "log", "-f", manifests, "--audit", "off", ready=True, **login
            )
            async with begun as running:
                found = await until_source(running, "A", stalls("unknown-cause"))
                assert "its API, the deliver subject and $JS.FC.> must be exported and imported" in found["message"]
                server.reload(IMPORTS.format(more=DELIVERED))
                await until_source(running, "A", flows, 90.0)
