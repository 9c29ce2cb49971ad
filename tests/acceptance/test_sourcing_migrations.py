"""Every change of how a stream copies another, made by a real daemon while messages flow: each id arrives exactly once.

A short run beside one another; `python -m tools.prove_sourcing` is the long one, at full rate.
RECONCILER_SEED makes a run repeatable.
"""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.support.account.wire import Wire
from tests.support.clock.until import until
from tests.support.cluster.servers import Cluster
from tests.support.daemon.command import Command
from tests.support.daemon.running import ran
from tests.support.server.process import Server
from tests.support.sources.elections import Unrest, elected
from tests.support.sources.rows import MIRRORS, lanes, one_retention_each, row
from tests.support.sources.runs import FREELY, Batch, Outcome, all_exact, batch_of, changed, run
from tests.support.values.catalogues import stream, write

pytestmark = [pytest.mark.since("2.14"), pytest.mark.xdist_group("publishers at full rate")]

SEED = int(os.environ.get("RECONCILER_SEED", "0")) or random.randrange(1, 1 << 32)
SECONDS = 4.0
RATE = 500


@pytest_asyncio.fixture
async def emptied(cluster: Cluster) -> Cluster:
    """The cluster without what the test before has left there: rows of one name have streams of one name."""
    async with await Wire.connect(cluster.url) as wire:
        for name in (await wire.expect("STREAM.NAMES")).get("streams") or []:
            await wire.expect(f"STREAM.DELETE.{name}")
    return cluster


def assert_exact(outcomes: list[Outcome], found_to_do: list[str]) -> None:
    """All of them, at the end of a load that was one; tells about each that is not."""
    all_exact(outcomes, found_to_do, SEED)
    assert all(outcome.verdict.published > RATE for outcome in outcomes), "else hardly anything was proven"


@pytest.mark.differs
@pytest.mark.matrix
@pytest.mark.slow
async def test_a_daemon_changes_how_a_stream_copies_and_every_message_arrives_once(any_server: Server, tmp_path: Path) -> None:
    chosen = one_retention_each(random.Random(SEED))
    async with batch_of(chosen, any_server.url, tmp_path / "batch") as batch:
        assert_exact(await run(batch, seconds=SECONDS, rate=RATE), await batch.nothing_to_do())


@pytest.mark.slow
@pytest.mark.thorough(
    also="tests/acceptance/test_sourcing_migrations.py::test_a_daemon_changes_how_a_stream_copies_and_every_message_arrives_once"
)
async def test_the_same_in_a_cluster(emptied: Cluster, tmp_path: Path) -> None:
    chosen = [row(name) for name in ("ephemeral to managed", "user to ephemeral", "managed renamed")]
    async with batch_of(lanes(*chosen, replicas=3), emptied.url, tmp_path / "batch") as batch:
        assert_exact(await run(batch, seconds=SECONDS, rate=RATE), await batch.nothing_to_do())


@pytest.mark.slow
@pytest.mark.thorough(
    also="tests/sources/test_migrate_elections.py::test_every_message_arrives_once_whenever_the_stream_gets_another_leader"
)
async def test_the_same_while_leaders_step_down(emptied: Cluster, tmp_path: Path) -> None:
    unrest = Unrest(random.Random(SEED), every=0.5)
    async with batch_of(lanes(row("managed renamed"), row("user renamed"), replicas=3), emptied.url, tmp_path / "batch") as batch:
        assert_exact(await elected(batch, unrest, seconds=SECONDS, rate=RATE), await batch.nothing_to_do())
    assert unrest.happened > 5


async def test_a_mirror_is_left_as_it_is(server: Server, tmp_path: Path) -> None:
    async with batch_of(lanes(*MIRRORS), server.url, tmp_path / "batch") as batch:
        assert_exact(await run(batch, seconds=SECONDS, rate=RATE), await batch.nothing_to_do())


@pytest.mark.slow
async def test_apply_does_what_the_daemon_does(server: Server, tmp_path: Path) -> None:
    chosen = [row(name) for name in ("ephemeral to managed", "managed to ephemeral", "user renamed")]
    async with batch_of(lanes(*chosen), server.url, tmp_path / "batch") as batch:
        await applied(batch, after=False)
        await batch.flowing()
        async with batch.loaded(RATE):
            await asyncio.sleep(SECONDS / 4)
            await applied(batch, after=True)
            await asyncio.sleep(1)
        assert_exact(await batch.judged(), await batch.nothing_to_do())


async def applied(batch: Batch, *, after: bool) -> None:
    """One apply of everything."""
    batch.declare(after=after)
    await ran(batch.cli, "apply", "-f", batch.manifests, *FREELY, "--yes")


async def test_a_mirror_becomes_a_source_in_two_steps_and_has_every_message_once(any_server: Server, tmp_path: Path) -> None:
    cli, through = Command(tmp_path, any_server.url), {"consumer": {"name": "c", "serverManaged": True}}

    async def apply(*, code: int = 0, **spec: Any) -> str:
        """The origin, and a stream of that kind."""
        manifests = write(
            tmp_path / "all.yaml", [stream("S", "s.>"), {"kind": "Stream", "metadata": {"name": "A"}, "spec": spec}]
        )
        ended = await ran(cli, "apply", "-f", manifests, "--yes", code=code)
        return ended.out + ended.err

    async with await Wire.connect(any_server.url) as wire:
        await apply(mirror={"name": "S", **through})
        await wire.publish("s.a", 100)
        await until(lambda: _has(wire, 100))
        assert "depends-on" in await apply(subjects=["own.>"], sources=[{"name": "S", **through}], code=3)
        await apply(subjects=["own.>"])
        await wire.publish("s.a", 50, first=100)
        await apply(subjects=["own.>"], sources=[{"name": "S", "optStartSeq": 101, **through}])
        await until(lambda: _has(wire, 150))
        assert await wire.payloads("A") == [str(number) for number in range(150)]


async def _has(wire: Wire, count: int) -> bool:
    return bool((await wire.stream_info("A"))["state"]["messages"] >= count)


async def test_what_was_changed_back_meanwhile_ends_as_it_began(server: Server, tmp_path: Path) -> None:
    chosen = [row(name) for name in ("ephemeral to managed", "managed renamed", "user to managed of the same name")]
    async with batch_of(lanes(*chosen), server.url, tmp_path / "batch") as batch:
        batch.declare(after=False)
        async with batch.running() as running:
            await batch.flowing()
            async with batch.loaded(RATE):
                await asyncio.sleep(SECONDS / 4)
                await changed(batch, running)
                await asyncio.sleep(0.5)
                await changed(batch, running, after=False)
                await batch.migrated(running)
                await asyncio.sleep(1)
            outcomes = await batch.judged()
            await running.stop()
        assert_exact(outcomes, await batch.nothing_to_do())
