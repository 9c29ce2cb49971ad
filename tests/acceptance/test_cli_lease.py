"""The write lease, as other commands meet it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.support.account.lease import hold
from tests.support.account.ways import commands_in
from tests.support.daemon.command import Command
from tests.support.daemon.process import daemon, settled
from tests.support.daemon.running import ran
from tests.support.server.process import Server
from tests.support.values.catalogues import stream, write


async def test_another_writer_is_waited_for_and_then_named(cli: Command, server: Server, catalogue: Path) -> None:
    connection, lease = await hold(server, ttl=2.0)
    async with connection:
        ended = await asyncio.to_thread(cli, "apply", "-f", catalogue, "--yes", code=3)
        waiting, refused = ended.err.splitlines()
        assert waiting.startswith("waiting for the write lease of default, held by elsewhere (pid 4711")
        assert refused.startswith("error: ")
        assert "elsewhere (pid 4711" in refused
        (show,) = commands_in(refused)
        assert "elsewhere (pid 4711" in cli(*show).out
        await lease.release()
    cli("apply", "-f", catalogue, "--yes")


async def test_show_and_release(cli: Command, server: Server) -> None:
    assert "nobody holds" in cli("lease", "show").out
    connection, lease = await hold(server)
    await lease._stop_renewing()  # a holder that is gone
    async with connection:
        assert "elsewhere (pid 4711" in cli("lease", "show").out
        document = cli("lease", "show", "--format", "json").json
        assert (document["kind"], document["holder"]["host"]) == ("Lease", "elsewhere")
        cli("lease", "release", code=64)
        cli("lease", "release", "--yes")
    assert cli("lease", "show", "--format", "json").json["holder"] is None


async def test_owners_have_leases_of_their_own(cli: Command, server: Server, catalogue: Path) -> None:
    connection, _ = await hold(server, owner="other")
    async with connection:
        assert "nobody holds" in cli("lease", "show").out
        assert "elsewhere" in cli("--owner", "other", "lease", "show").out
        cli("apply", "-f", catalogue, "--yes")


async def test_a_plan_takes_no_lease(cli: Command, server: Server, catalogue: Path) -> None:
    connection, _ = await hold(server)
    async with connection:
        cli("plan", "-f", catalogue)


READER = """
authorization { users: [
  {user: all, password: x}
  {user: reader, password: x, permissions: {publish: {deny: [
    "$JS.API.DIRECT.GET.KV_reconciler-default.>", "$JS.API.STREAM.MSG.GET.KV_reconciler-default"]}}} ] }
"""


async def test_who_may_not_read_the_lease_is_not_told_that_nobody_holds_it(tmp_path: Path) -> None:
    """Neither by the command itself, nor by a daemon that only watches."""
    path = write(tmp_path / "all.yaml", [stream("A", "a.>")])
    with Server(tmp_path / "server", config=READER) as server:
        everybody, reader = (Command(tmp_path, f"nats://{user}:x@127.0.0.1:{server.port}") for user in ("all", "reader"))
        assert (await ran(everybody, "status", "-f", path)).out.startswith("Writer: nobody holds the lease\n")
        async with daemon(everybody, tmp_path / "log", "-f", path) as leader:
            holder = (await leader.until(settled))["leader"]
            assert (await ran(everybody, "status", "-f", path)).out.startswith(f"Writer: {holder}\n")
            assert (await ran(reader, "status", "-f", path)).out.startswith("Writer: not known: permission denied")
            document = (await ran(reader, "status", "-f", path, "-o", "json")).json
            assert (document["leader"], "KV_reconciler-default" in document["leaderUnknown"]) == (None, True)
            async with daemon(reader, tmp_path / "log2", "-f", path, "--dry-run") as blind:
                await blind.until(lambda document: "permission denied" in document["leaderUnknown"])
                assert "Writer: not known: permission denied" in (await ran(reader, "status", "--daemon", blind.url)).out
            async with daemon(everybody, tmp_path / "log3", "-f", path, "--dry-run") as watching:
                seen = await watching.until(lambda document: bool(document["leader"]))
                assert (seen["leader"], seen["leaderUnknown"]) == (holder, "")
                await leader.stop()
                await watching.until(lambda document: document["leader"] is None and not document["leaderUnknown"])
