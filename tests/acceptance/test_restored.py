"""A consumer that somebody deleted comes back at its position, also without room for a hold beside it, or a right to one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.account.meddling import watched
from tests.support.account.wire import Json, Wire
from tests.support.account.work import Work
from tests.support.clock.until import until
from tests.support.daemon.command import Command
from tests.support.daemon.process import settled
from tests.support.server.process import Server
from tests.support.values.catalogues import consumer, stream, write

pytestmark = pytest.mark.differs

DONE, LEFT = 3, 2
FULL = [stream("S", "s.>", maxConsumers=1), consumer("S", "c", "s.a")]
READ_BY_TWO = [stream("S", "s.>", retention="interest"), consumer("S", "c", "s.a"), consumer("S", "other", "s.a")]


async def deleted_and_restored(server: Server, folder: Path, documents: list[Json], **login: str) -> None:
    """It has finished some messages when somebody deletes it; it goes on with the others, and nothing else is left of that."""
    async with watched(server, folder, documents, like=settled, **login) as place:
        wire = place.somebody
        work = Work(wire, "S")
        await work.publish(*["s.a"] * (DONE + LEFT))
        assert await work.pull(DONE) == DONE
        await place.daemon.looked()
        names = (await wire.expect("CONSUMER.NAMES.S"))["consumers"]
        await wire.expect("CONSUMER.DELETE.S.c")
        await until(lambda: _runs(wire))
        await place.daemon.looked()
        await place.daemon.until(settled)
        assert (await wire.expect("CONSUMER.NAMES.S"))["consumers"] == names
        await work.publish("s.a")
        await work.drain()
        assert (work.lost("s.a"), work.duplicates) == ([], [])


async def _runs(wire: Wire) -> bool:
    info = await wire.call("CONSUMER.INFO.S.c")
    return "error" not in info and not info.get("paused")


async def test_in_a_stream_with_room_for_one(any_server: Server, tmp_path: Path) -> None:
    await deleted_and_restored(any_server, tmp_path, FULL)


@pytest.mark.parametrize("room", [1, 2])
async def test_in_an_account_with_room_for_one(server_version: str, tmp_path: Path, room: int) -> None:
    documents = [stream("S", "s.>"), consumer("S", "c", "s.a")]
    limited = f"accounts {{ A {{ jetstream: {{max_consumers: {room}}}, users: [{{user: u, password: pw}}] }} }}\nno_auth_user: u"
    with Server(tmp_path / "server", version=server_version, config=limited) as server:
        await deleted_and_restored(server, tmp_path, documents)


@pytest.mark.parametrize("documents", [FULL, READ_BY_TWO], ids=["limits", "interest"])
async def test_with_grants_from_before_holds(
    server_version: str, tmp_path: Path, offline: Command, documents: list[Json]
) -> None:
    manifests = write(tmp_path / "granted.yaml", documents)
    printed = offline("permissions", "-f", manifests, "--mode", "daemon", "--format", "json").json["permissions"]
    sides = {side: [one for one in found["allow"] if "_reconciler_hold_" not in one] for side, found in printed.items()}
    allowed = ", ".join(f"{side}: {{allow: {json.dumps(subjects)}}}" for side, subjects in sides.items())
    users = f"{{user: admin, password: pw}}, {{user: u, password: pw, permissions: {{{allowed}}}}}"
    config = f"accounts {{ A {{ jetstream: enabled, users: [{users}] }} }}\nno_auth_user: admin"
    with Server(tmp_path / "server", version=server_version, config=config) as server:
        await deleted_and_restored(server, tmp_path, documents, NATS_USER="u", NATS_PASSWORD="pw")
