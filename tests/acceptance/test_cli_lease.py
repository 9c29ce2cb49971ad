"""The write lease, as other commands meet it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.support.account.lease import hold
from tests.support.account.ways import commands_in
from tests.support.daemon.command import Command
from tests.support.server.process import Server


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
