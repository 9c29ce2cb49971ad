"""What stops a source is in its line, with what ends it; that is done, and it flows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.account.meddling import watched
from tests.support.account.wire import Json
from tests.support.clock.until import until
from tests.support.daemon.command import Command
from tests.support.server.process import Server
from tests.support.sources.watched import aggregate, durable, entry, flows, stalls, until_source
from tests.support.values.catalogues import stream

pytestmark = [pytest.mark.since("2.14"), pytest.mark.slow]

MANAGED = {"name": "S", "consumer": {"name": "c", "serverManaged": True}}
COPIES = {
    "declared": [durable("S", "dlv.a"), aggregate("A", entry("S", "dlv.a"))],
    "managed": [aggregate("A", MANAGED)],
}


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
        cli("apply", "-f", place.manifests, "--yes", "--allow", "position-loss=Stream/A")

        async def flowing() -> bool:
            return flows(shown(cli, place.manifests))

        await until(flowing)
