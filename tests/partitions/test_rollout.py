"""A plan table changes, a job commits, a sync swaps the checkout: the daemon has read the new generation, whole or not at all."""

from __future__ import annotations

import asyncio
import itertools
import random
from pathlib import Path
from typing import Any

import pytest

from tests.support.choice import examples
from tests.support.daemon.command import Command
from tests.support.daemon.process import Daemon, daemon
from tests.support.partitions.killing import Killed, Planners, run_as_users_do
from tests.support.partitions.rollout import WORKERS, Rows, Site, synced
from tests.support.server.process import Server
from tests.support.values.contract import STATUS, conforms

KILLS = 30


def pool_of(document: dict[str, Any]) -> dict[str, Any]:
    """The one pool of a status."""
    found: dict[str, Any] = next(iter(document["pools"]), {})
    return found


def shown(document: dict[str, Any]) -> Rows | None:
    """The generation that a status shows."""
    pool = pool_of(document)
    return Rows(pool["generation"], pool["workers"], pool["subjects"]) if pool.get("loadedAt") else None


async def test_from_a_table_to_the_daemon(tmp_path: Path, server: Server) -> None:
    site, origin = Site(tmp_path / "work"), tmp_path / "origin.git"
    site.tables(100)
    site.publish(origin)
    home = tmp_path / "home"
    home.mkdir()
    cli = Command(home, server.url)

    def plan() -> dict[str, Any]:
        report: dict[str, Any] = cli("partitions", "plan", "-c", site.root / "plan.yaml", "--commit", "--format", "json").json
        site.push()
        return report

    await asyncio.to_thread(plan)
    async with synced(origin, tmp_path / "sync") as link, daemon(cli, tmp_path / "log", "-f", link / "manifests") as running:
        first = pool_of(await running.until(lambda status: shown(status) == Rows(1, 4, 100)))
        assert (first["key"], first["moved"], first["before"], first["heldBack"]) == ("WorkerPool/processor", 0, None, None)

        site.tables(104, (*WORKERS, "w-e"))
        moved = (await asyncio.to_thread(plan))["pools"]["processor"]["moved"]
        document = await running.until(lambda status: shown(status) == Rows(2, 5, 104))
        conforms(document, STATUS)
        second = pool_of(document)
        assert second["loadedAt"] > first["loadedAt"]
        assert (second["moved"], second["new"], second["retired"], second["before"]) == (moved["count"], 4, 0, 1)
        assert moved["count"] > 0
        assert "are loaded and shown" in (await running.resource("WorkerPool/processor"))["message"]
        said = await asyncio.to_thread(cli, "status", "--daemon", running.url)
        assert f"5 workers, 104 subjects; {moved['count']} moved, 4 new, 0 retired since generation 1" in said.out
        told = running.lines("pool.loaded")
        assert [(line["generation"], line["moved"]) for line in told] == [(1, 0), (2, moved["count"])]
        assert await running.metric("reconciler_pool_generations_loaded_total") == 2
        assert await running.metric('reconciler_manifests{kind="WorkerPool"}') == 1
        assert await running.metric("reconciler_pool_subjects_moved_total") == moved["count"]

        await _refuses_what_does_not_fit(site, running, second)
        assert len(running.lines("pool.loaded")) == 2


async def _refuses_what_does_not_fit(site: Site, running: Daemon, last: dict[str, Any]) -> None:
    path = site.output / "w-w-a.yaml"
    good = path.read_bytes()
    path.write_bytes(good + b"# by hand\n")
    site.push("By hand")
    held = pool_of(await running.until(lambda status: bool(pool_of(status)["heldBack"])))
    assert "w-w-a.yaml: not what the index says" in held["heldBack"]
    assert held | {"heldBack": None} == last
    assert await running.metric("reconciler_pools_held_back") == 1
    assert len(running.lines("pool.held_back")) == 1
    path.write_bytes(good)
    site.push("As it was")
    assert pool_of(await running.until(lambda status: not pool_of(status)["heldBack"])) == last
    assert await running.metric("reconciler_pools_held_back") == 0


@pytest.mark.slow
@pytest.mark.timeout(120 + 20 * KILLS)
async def test_a_job_killed_while_it_writes_never_shows_a_mixture(tmp_path: Path, server: Server) -> None:
    site, home = Site(tmp_path / "work"), tmp_path / "home"
    site.tables(100)
    site.publish(tmp_path / "origin.git")
    cli = Command(home, server.url)
    with Planners(home) as planners:
        planners.run(site.root)
        site.tables(90, (*WORKERS, "more-0", "more-1"))
        moments = planners.run(site.root) + 20  # what a killed run has left is taken away first
    kills, wanted = 0, examples(KILLS)
    true, seen = {site.written()}, set[Rows | None]()
    chance = random.Random(9)
    async with daemon(cli, tmp_path / "log", "-f", site.root / "manifests") as running:
        watching = asyncio.create_task(_watch(running, seen))
        for number, at in enumerate(itertools.cycle(throughout(moments, wanted, chance))):
            site.tables(101 + number, (*WORKERS, *(f"more-{extra}" for extra in range(number % 3))))
            try:
                await asyncio.to_thread(run_as_users_do, site.root, home, at)
            except Killed:
                kills += 1
            true.add(site.written())
            assert site.committed() in true
            await running.post("/-/reload")
            await asyncio.sleep(chance.uniform(0, 0.3))
            if kills == wanted:
                break
        site.tables(150)
        await asyncio.to_thread(run_as_users_do, site.root, home)
        last = site.written()
        assert site.committed() == last
        await running.until(lambda status: shown(status) == last)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        assert running.lines("pool.held_back") == []
    assert len(true) > 2
    assert len(seen) > 2
    assert seen <= {*true, last}


def throughout(moments: int, count: int, chance: random.Random) -> list[int]:
    """So many moments, from the first ones to the last ones, in no order."""
    found = [chance.randrange(part * moments // count, (part + 1) * moments // count) + 1 for part in range(count)]
    return chance.sample(found, count)


async def _watch(running: Daemon, seen: set[Rows | None]) -> None:
    while True:
        document = await running.status()
        assert not pool_of(document)["heldBack"]
        seen.add(shown(document))
        await asyncio.sleep(0.03)
