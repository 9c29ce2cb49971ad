"""The judge of migrations, judged: a naive swap is seen to repeat thousands, each bare procedure in the proven order nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.support.account.wire import Wire
from tests.support.server.process import Server
from tests.support.sources import aggregate, bare
from tests.support.sources.aggregate import Held, Verdict, judge
from tests.support.sources.bare import Route
from tests.support.sources.load import Sent, publishing

pytestmark = [pytest.mark.since("2.14"), pytest.mark.xdist_group("publishers at full rate")]

Migration = Callable[[Route], Awaitable[None]]
BEFORE, BEHIND = 1.0, 0.3
RATE = 5000
FROM_DURABLE = (bare.to_ephemeral, bare.renamed, bare.redelivered)


async def under_load(server: Server, wire: Wire, migration: Migration, retention: str) -> tuple[Verdict, int]:
    """What the aggregate holds after the migration, and what the source holds back."""
    source = f"S-{migration.__name__}-{retention}"
    route = Route(source, f"A{source}", f"{source}.>", wire, wire, retention)
    durable = route.durable() if migration in FROM_DURABLE else None
    await route.create(route.through() if durable else {}, durable)
    async with publishing(server.url, [f"{source}.a", f"{source}.b"], rate=RATE) as load:
        await asyncio.sleep(BEFORE)
        await migration(route)
        await asyncio.sleep(BEHIND)
        sent = await load.stop()
    assert not sent.unconfirmed
    await aggregate.settled(wire, route.aggregate, sent.count)
    verdict = judge(await aggregate.held(server.url, route.aggregate), [sent])
    return verdict, await aggregate.stuck(wire, source) if retention != "limits" else 0


@pytest.mark.matrix
async def test_a_naive_swap_repeats_everything_copied_so_far(any_server: Server) -> None:
    copied: list[int] = []

    async def swap(route: Route) -> None:
        copied.append((await route.wire.stream_info(route.aggregate))["state"]["messages"])
        await bare.naive_swap(route)

    async with await Wire.connect(any_server.url) as wire:
        verdict, _ = await under_load(any_server, wire, swap, "limits")
    assert len(verdict.duplicates) >= copied[0] > 0, str(verdict)
    assert verdict.missing == [], str(verdict)


@pytest.mark.matrix
async def test_the_bare_procedures_lose_and_repeat_nothing(any_server: Server) -> None:
    migrations = (bare.to_durable, *FROM_DURABLE)
    async with await Wire.connect(any_server.url) as wire:
        for retention in ("limits", "interest", "workqueue"):
            found = await asyncio.gather(*(under_load(any_server, wire, each, retention) for each in migrations))
            for migration, (verdict, stuck) in zip(migrations, found, strict=True):
                assert verdict.exact, f"{migration.__name__}, {retention}: {verdict}"
                assert stuck == 0, f"{migration.__name__}, {retention}"


@pytest.mark.slow
async def test_without_the_purge_a_workqueue_keeps_what_was_copied(server: Server, wire: Wire) -> None:
    async def without_purge(route: Route) -> None:
        route.retention = "interest"  # where nothing has to be purged
        await bare.to_durable(route)

    verdict, stuck = await under_load(server, wire, without_purge, "workqueue")
    assert verdict.exact, str(verdict)
    assert stuck > 0


def test_the_judge_sees_what_is_wrong() -> None:
    sent = Sent("m", 5, frozenset({4}), 0, 1.0)
    fine = [Held(b"m.0", 1), Held(b"m.1", 2), Held(b"m.2", 3), Held(b"m.3", 4)]
    assert judge(fine, [sent]).exact
    assert judge([*fine, Held(b"m.4", 5)], [sent]).exact, "nobody knows whether it was stored"
    assert judge(fine[1:], [sent]).missing == [b"m.0"]
    assert judge([*fine, fine[0]], [sent]).duplicates == [b"m.0"]
    assert judge([*fine, Held(b"m.4", 5), Held(b"m.4", 5)], [sent]).duplicates == [b"m.4"]
    assert judge([fine[0], fine[2], fine[1], fine[3]], [sent]).disordered == [b"m.1"]
    assert judge([*fine, Held(b"x.0", 9)], [sent]).strangers == [b"x.0"]
    assert not judge([*fine[:3], fine[0]], [sent]).exact, "a duplicate does not make up for a loss"


async def test_a_message_sent_again_is_stored_once(server: Server, wire: Wire) -> None:
    await wire.expect("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
    async with publishing(server.url, ["s.a"], rate=2000) as load:
        for _ in range(3):
            await asyncio.sleep(0.3)
            server.freeze()
            await asyncio.sleep(0.1)  # what is sent meanwhile is not answered for certain
            await asyncio.to_thread(server.kill)
            server.start()
        await asyncio.sleep(0.3)
        sent = await load.stop()
    verdict = judge(await aggregate.held(server.url, "S"), [sent])
    assert verdict.exact, str(verdict)
    assert sent.resent > 0, "else nothing was proven"
    assert not sent.unconfirmed
