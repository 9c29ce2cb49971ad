"""The procedures from outside: judged by the numbers that real clients publish and receive, and killed at every step.

A process is killed at each step, before or after the server has carried it out: the proxy holds it there.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.account.shops import FREELY, RETENTIONS, Case, Shop
from tests.support.account.wire import Wire
from tests.support.account.work import Work
from tests.support.choice import some
from tests.support.daemon.command import Command
from tests.support.daemon.leadership import release_for_the_dead
from tests.support.daemon.running import ran, started
from tests.support.server.process import Server
from tests.support.server.proxy import Proxy, Request, Verdict
from tests.support.values.catalogues import write

SEED = random.randrange(1 << 32)
EVERY_DAY, AT_MOST = 10, 40
"""Kills, of some two hundred that there could be: each takes a process of its own. The model is killed at every step."""


@pytest_asyncio.fixture
async def shop(any_server: Server, offline: Command, tmp_path: Path) -> AsyncIterator[Shop]:
    """A shop on each version under test."""
    async with await Wire.connect(any_server.url) as wire:
        yield Shop(any_server, Command(offline.home, any_server.url), wire, tmp_path)


def all_cases(server: Server) -> list[Case]:
    """Every procedure on every retention; filters cannot be added to a passed consumer before 2.14."""
    kinds = ["recreate"] if server.version < "2.14" else ["recreate", "filter-add"]
    return [Case("move"), *(Case(kind, retention) for kind in kinds for retention in RETENTIONS)]


def each_step(counts: dict[Case, int]) -> Iterator[Case]:
    """Each case stopped at each of its writes, before and after the server has carried it out."""
    for case, count in counts.items():
        for step, fate in itertools.product(range(1, count + 1), (Verdict.DROP, Verdict.MUTE)):
            yield replace(case, step=step, fate=fate)


def stopping(cases: Iterable[Case], proxy: Proxy) -> None:
    """Let the proxy stop each case at its step."""
    by_stream = {name: case for case in cases for name in (case.name, f"{case.name}-2")}
    writes = dict.fromkeys(by_stream.values(), 0)

    def rule(request: Request) -> Verdict:
        if not request.is_write:
            return Verdict.PASS
        case = by_stream[request.stream]
        writes[case] += 1
        return case.fate if writes[case] == case.step else Verdict.PASS

    proxy.rule = rule


async def count_writes(shop: Shop) -> dict[Case, int]:
    """Apply undisturbed; how many writes each case needed."""
    async with Proxy(shop.server.port) as proxy:
        await ran(Command(shop.cli.home, proxy.url), "apply", "-f", shop.manifests, "--yes", *FREELY)
        streams = [request.stream for request in proxy.writes]
    return {case: streams.count(case.name) + streams.count(f"{case.name}-2") for case in shop.cases}


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_undisturbed_and_killed_at_its_steps(shop: Shop) -> None:
    await shop.open(all_cases(shop.server))
    counts = await count_writes(shop)
    assert all(count >= 2 for count in counts.values()), counts
    await shop.judge()
    dice = random.Random(SEED)
    await shop.open(some(dice.sample(list(each_step(counts)), AT_MOST), EVERY_DAY, dice))
    for case in shop.cases:
        await killed_at_its_step(shop, case)
    await shop.look_again()
    await shop.apply()
    await shop.judge()


async def killed_at_its_step(shop: Shop, case: Case) -> None:
    """A process that works on this case alone; the next one need not wait for its lease."""
    manifest = write(shop.directory / f"{case.name}.yaml", case.documents(after=True))
    async with Proxy(shop.server.port) as proxy:
        stopping([case], proxy)
        async with started(Command(shop.cli.home, proxy.url), "apply", "-f", manifest, "--yes", *FREELY) as running:
            await proxy.until_stuck()
            await running.kill()
    await release_for_the_dead(shop.wire)


async def add_filter_naively(shop: Shop, case: Case) -> None:
    """The update that a client without a procedure would send."""
    config = (await shop.wire.consumer_info(case.name, "c"))["config"] | {"filter_subjects": case.wanted}
    config.pop("filter_subject", None)
    body = {"stream_name": case.name, "config": config, "action": "update"}
    await shop.wire.expect(f"CONSUMER.CREATE.{case.name}.c", body)


async def recreate_naively(shop: Shop, case: Case) -> None:
    """Delete it, and create it with the other field."""
    config = (await shop.wire.consumer_info(case.name, "c"))["config"] | {"max_waiting": 7}
    await shop.wire.expect(f"CONSUMER.DELETE.{case.name}.c")
    await shop.wire.expect(f"CONSUMER.CREATE.{case.name}.c", {"stream_name": case.name, "config": config, "action": "create"})


@pytest.mark.parametrize("retention", RETENTIONS)
async def test_control_adding_a_filter_naively_loses(shop: Shop, retention: str) -> None:
    if shop.server.version < "2.14":
        pytest.skip("no procedure either")
    case = Case("filter-add", retention)
    await shop.open([case])
    work = shop.work[case]
    while await work.pull(100):
        pass  # at the end of the stream the cursor passes what was stored for others
    await add_filter_naively(shop, case)
    await work.drain()
    assert work.lost(*case.wanted) == [number for number, subject in work.published.items() if subject == case.subject("b")]


async def test_control_recreating_naively_duplicates_or_loses(shop: Shop) -> None:
    limits, interest = Case("recreate"), Case("recreate", "interest")
    await shop.open([limits, interest])
    for case in (limits, interest):
        if case is interest:  # nobody else keeps anything for it
            await shop.wire.expect(f"CONSUMER.DELETE.{case.name}.other")
        await recreate_naively(shop, case)
        await shop.work[case].drain()
    assert len(shop.work[limits].duplicates) == 3 > shop.promised[limits]
    assert shop.work[interest].lost(*interest.wanted) != []


async def test_control_moving_in_the_order_of_names_is_refused(shop: Shop) -> None:
    case = Case("move")
    await shop.open([case])
    config = (await shop.wire.stream_info(f"{case.name}-2"))["config"]
    grown = config | {"subjects": case.subjects("bc")}
    answer = await shop.wire.call(f"STREAM.UPDATE.{case.name}-2", grown)
    assert answer["error"]["err_code"] == 10065


async def test_filters_are_not_added_where_the_cursor_cannot_go_back(offline: Command, tmp_path: Path) -> None:
    with Server(tmp_path / "server", version="2.12.8") as server:
        async with await Wire.connect(server.url) as wire:
            await added_in_vain(Shop(server, Command(offline.home, server.url), wire, tmp_path))


async def added_in_vain(shop: Shop) -> None:
    case = Case("filter-add")
    write(shop.directory / "before.yaml", case.documents(after=False))
    write(shop.manifests, case.documents(after=True))
    await ran(shop.cli, "apply", "-f", shop.directory / "before.yaml", "--yes")
    await Work(shop.wire, case.name).publish(*case.subjects("bab"))
    async with shop.wire.audit() as audit:
        refused = await ran(shop.cli, "apply", "-f", shop.manifests, "--yes", code=3)
    assert "position-loss" in refused.err + refused.out
    assert audit.writes("reconciler") == []


async def test_while_publishers_and_workers_go_on(shop: Shop) -> None:
    cases = [case for case in all_cases(shop.server) if case.kind != "move"]
    await shop.open(cases)
    async with AsyncExitStack() as stack:
        for case in cases:
            await stack.enter_async_context(shop.work[case].going_on(*case.subjects("ab")))
        before = {case: set(shop.work[case].handled) for case in cases}
        await shop.apply()
        meanwhile = {case: len(shop.work[case].handled - before[case]) for case in cases}
    for case in cases:
        work = shop.work[case]
        await work.drain()
        assert work.lost(*case.wanted) == [], case
        # One message is taken and never finished: what is finished behind it between the plan and the pause comes again, too.
        assert len(work.duplicates) <= shop.promised[case] + meanwhile[case], case
        assert shop.work[case].published.keys() == set(range(len(work.published)))


async def test_a_publisher_whose_subject_moves(shop: Shop) -> None:
    case = Case("move")
    await shop.open([case])
    async with shop.work[case].publishing(*case.subjects("b")):
        await shop.apply()
    stored = [int(text) for name in (case.name, f"{case.name}-2") for text in await shop.wire.payloads(name)]
    assert sorted(stored) == sorted(shop.work[case].published)
    assert len(stored) == len(set(stored))
