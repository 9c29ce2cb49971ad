"""Migrations of sources through deaths: of the daemon at every step, of the server, of the link to a leaf.

RECONCILER_SEED makes a run repeatable. `python -m tools.prove_sourcing` does the same at full length.
"""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest

from tests.support.account.wire import Json, Wire
from tests.support.choice import some
from tests.support.daemon.command import Command
from tests.support.daemon.running import ran
from tests.support.server.leaves import hub_and_leaves
from tests.support.server.process import Server
from tests.support.server.proxy import Verdict
from tests.support.sources import aggregate
from tests.support.sources.kills import Stop, Stops, disturbed, killed_at, server_killed
from tests.support.sources.rows import Lane, Row, lanes, managed, one_retention_each, row
from tests.support.sources.runs import Place, all_exact, batch_of, run
from tests.support.values.catalogues import stream, write

pytestmark = pytest.mark.xdist_group("publishers at full rate")

SEED = int(os.environ.get("RECONCILER_SEED", "0")) or random.randrange(1, 1 << 32)
RATE = 200
STEPS = 9
"""Writes of the longest migration, about."""
FEW = tuple(map(row, ("ephemeral to managed", "user to ephemeral", "managed renamed", "another deliver subject")))
LASTING = (row("user renamed"), row("managed renamed"))


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("fate", [Verdict.REFUSE, Verdict.DENY, Verdict.MUTE])
async def test_the_daemon_is_killed_at_some_step_of_each_migration(server: Server, tmp_path: Path, fate: Verdict) -> None:
    dice = random.Random(SEED)
    chosen = some(one_retention_each(dice), 6, dice)
    if fate is Verdict.MUTE:  # each silence is waited for before anything else is changed
        chosen = dice.sample(chosen, 6)
    stops = Stops({lane: Stop(dice.randint(1, STEPS), fate) for lane in chosen})
    async with batch_of(chosen, server.url, tmp_path / "batch") as batch:
        outcomes = await killed_at(batch, server, stops, rate=RATE)
        assert len(stops.stopped) > len(chosen) / 2, "else hardly anything was interrupted"
        all_exact(outcomes, await batch.nothing_to_do(), SEED)


@pytest.mark.slow
async def test_the_server_stops_and_starts_in_the_middle(server: Server, tmp_path: Path) -> None:
    async with batch_of(some(lanes(*FEW), 4, random.Random(SEED)), server.url, tmp_path / "batch") as batch:
        outcomes = await disturbed(batch, server.stop, server.start, away=1.0, rate=RATE)
        all_exact(outcomes, await batch.nothing_to_do(), SEED)


@pytest.mark.slow
async def test_a_durable_source_loses_nothing_however_often_the_server_dies(server: Server, tmp_path: Path) -> None:
    async with batch_of(lanes(*LASTING, retentions=("interest", "workqueue")), server.url, tmp_path / "batch") as batch:
        outcomes = await server_killed(batch, server, random.Random(SEED), times=4, rate=RATE)
        all_exact(outcomes, await batch.nothing_to_do(), SEED)


@pytest.mark.slow
async def test_two_leaves_with_the_same_names_go_into_one_aggregate_each_message_once(tmp_path: Path) -> None:
    async with hub_and_leaves(tmp_path, "east", "west") as hub:
        places = {name: Place(leaf.server.url, leaf.wire) for name, leaf in hub.leaves.items()}
        chosen = some(lanes(*FEW[:3], domains=("east", "west")), 3, random.Random(SEED))
        async with batch_of(chosen, hub.server.url, tmp_path / "batch", **places) as batch:
            outcomes = await run(batch, seconds=3, rate=RATE)
            all_exact(outcomes, await batch.nothing_to_do(), SEED)


@pytest.mark.slow
async def test_the_link_to_a_leaf_is_cut_in_the_middle(tmp_path: Path) -> None:
    async with hub_and_leaves(tmp_path, "east") as hub:
        places = {name: Place(leaf.server.url, leaf.wire) for name, leaf in hub.leaves.items()}
        link = hub.leaves["east"].link
        chosen = some(lanes(*FEW, domains=("east",)), 4, random.Random(SEED))
        async with batch_of(chosen, hub.server.url, tmp_path / "batch", **places) as batch:
            outcomes = await disturbed(batch, link.cut, link.mend, away=3.0, rate=RATE)
            all_exact(outcomes, await batch.nothing_to_do(), SEED)


async def paused(wire: Wire, lane: Lane) -> bool:
    """Whether its durable delivers nothing."""
    return bool((await wire.consumer_info(lane.source, "c")).get("paused"))


async def test_what_a_person_paused_stays_paused_whatever_else_happens(server: Server, wire: Wire, tmp_path: Path) -> None:
    chosen = lanes(Row("paused", managed(), managed()))
    async with batch_of(chosen, server.url, tmp_path / "batch") as batch:
        batch.declare(after=False)
        async with batch.running() as running:
            await batch.flowing()
            for lane in chosen:
                await wire.expect(f"CONSUMER.PAUSE.{lane.source}.c", {"pause_until": "2099-01-01T00:00:00Z"})
            async with batch.loaded(RATE):
                await asyncio.sleep(0.5)
                for _ in range(3):
                    await running.looked()
                batch.declare(after=False, description="another")
                await running.post("/-/reload")
                await running.looked()
                await running.stop()
            config: Json = (await wire.stream_info(chosen[0].aggregate))["config"]
            assert config["description"] == "another"
        assert not await batch.nothing_to_do()
        for lane in chosen:
            assert await paused(wire, lane)
            assert (await wire.stream_info(lane.aggregate))["state"]["messages"] == 0
            await wire.expect(f"CONSUMER.PAUSE.{lane.source}.c", {})
        all_exact(await batch.judged(), await batch.nothing_to_do(), SEED)


@pytest.mark.parametrize("retention", ["limits", "workqueue"])
async def test_two_sources_that_stand_at_the_same_sequence_are_both_moved_behind_it(
    cli: Command, wire: Wire, tmp_path: Path, retention: str
) -> None:
    def declared(**entry: Json) -> list[Json]:
        sources = [{"name": name, **entry} for name in ("ONE", "TWO")]
        own = [stream(name, f"{name}.>", retention=retention) for name in ("ONE", "TWO")]
        return [*own, {"kind": "Stream", "metadata": {"name": "ALL"}, "spec": {"sources": sources}}]

    await ran(cli, "apply", "-f", write(tmp_path / "before.yaml", declared()), "--yes")
    for number, name in enumerate(("ONE", "TWO")):
        await wire.publish(f"{name}.x", 10, first=10 * number)
    await aggregate.settled(wire, "ALL", 20)
    await ran(
        cli, "apply", "-f", write(tmp_path / "after.yaml", declared(consumer={"name": "c", "serverManaged": True})), "--yes"
    )
    await aggregate.settled(wire, "ALL", 20)
    assert sorted(map(int, await wire.payloads("ALL"))) == list(range(20))
    if retention == "workqueue":
        assert [await aggregate.stuck(wire, name, 3) for name in ("ONE", "TWO")] == [0, 0]
