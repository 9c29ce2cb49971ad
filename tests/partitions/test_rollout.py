"""A plan table changes, a job commits, a sync swaps the checkout: the daemon has read the new generation, whole or not at all."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

from tests.support.daemon.command import Command
from tests.support.daemon.process import Daemon, daemon
from tests.support.partitions.rollout import WORKERS, Rows, Site, synced
from tests.support.server.process import Server
from tests.support.values.contract import STATUS, conforms

KILLS = 20

# Plans again and again, each time in a process of its own that is made in no time, and that kills itself at a call of the tree.
JOB = """
import os, sys
from reconciler.cli.app import run
from reconciler.cli.terminal import Terminal
import reconciler.cli.partitions, reconciler.partitions.run
from reconciler.partitions.output import tree

def job(at):
    calls = 0
    def counting(real):
        def call(*args, **kwargs):
            nonlocal calls
            calls += 1
            if calls == at:
                os.kill(os.getpid(), 9)
            return real(*args, **kwargs)
        return call
    real = tree.replace_tree
    exchange = tree._LIBC.renameat2
    class Exchanging:
        def renameat2(self, *args):
            counting(int)()
            done = exchange(*args)
            counting(int)()
            return done
    def replacing(*args):
        names = ("link", "mkdir", "open", "fsync", "rename", "symlink", "unlink", "rmdir", "close", "scandir", "stat", "lstat")
        for name in names:
            setattr(os, name, counting(getattr(os, name)))
        tree._LIBC = Exchanging()
        real(*args)
    sys.modules["reconciler.partitions.run"].replace_tree = replacing
    forced = [word for gate in ("maxMovedFraction", "maxWorkersRemovedFraction") for word in ("--force", gate)]
    code = run(["partitions", "plan", "-c", sys.argv[1], *forced], Terminal({}))
    print("calls", calls, "code", int(code), file=sys.stderr, flush=True)
    os._exit(int(code))

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        job(int(line))
    _, status = os.waitpid(child, 0)
    print("ended", status, file=sys.stderr, flush=True)
"""


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


async def test_a_job_killed_while_it_writes_never_shows_a_mixture(tmp_path: Path, server: Server) -> None:
    site = Site(tmp_path / "work")
    site.tables(100)
    home = tmp_path / "home"
    home.mkdir()
    cli = Command(home, server.url)
    chance = random.Random(9)
    with _Jobs(site.root / "plan.yaml", cli) as jobs:
        await jobs.run(0)
        site.tables(90, WORKERS[:3])
        calls = await jobs.run(0)  # not the first one: that has nothing to exchange
        true = {site.written()}
        seen: set[Rows | None] = set()
        async with daemon(cli, tmp_path / "log", "-f", site.root / "manifests") as running:
            watching = asyncio.create_task(_watch(running, seen))
            for number, at in enumerate(chance.sample(range(1, calls + 1), KILLS)):
                site.tables(101 + number, (*WORKERS, *(f"more-{extra}" for extra in range(number % 3))))
                assert await jobs.run(at) == -9, at
                true.add(site.written())
                await running.post("/-/reload")
                await asyncio.sleep(chance.uniform(0, 0.3))
            site.tables(150)
            await jobs.run(0)
            last = site.written()
            await running.until(lambda status: shown(status) == last)
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            assert running.lines("pool.held_back") == []
    assert len(true) > 2
    assert len(seen) > 2
    assert seen <= {*true, last}


async def _watch(running: Daemon, seen: set[Rows | None]) -> None:
    while True:
        document = await running.status()
        assert not pool_of(document)["heldBack"]
        seen.add(shown(document))
        await asyncio.sleep(0.03)


class _Jobs:
    """Planners, one after the other."""

    def __init__(self, plan: Path, cli: Command) -> None:
        environ = cli.environ({"PYTHONWARNINGS": "ignore"})
        self._process = subprocess.Popen(
            [sys.executable, "-c", JOB, str(plan)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=environ,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._process as process:
            process.kill()

    async def run(self, at: int) -> int:
        """The number of calls of a job that came to its end; -9 when it was killed."""
        return await asyncio.to_thread(self._run, at)

    def _run(self, at: int) -> int:
        assert self._process.stdin
        assert self._process.stderr
        self._process.stdin.write(f"{at}\n")
        self._process.stdin.flush()
        said, calls = [], 0
        for line in self._process.stderr:
            said.append(line)
            word, *numbers = line.split() or [""]
            if word == "calls":
                calls = int(numbers[0])
            if word == "ended":
                status = os.waitstatus_to_exitcode(int(numbers[0]))
                assert status in (0, -9), "".join(said)
                return -9 if status else calls
        raise AssertionError("".join(said))
