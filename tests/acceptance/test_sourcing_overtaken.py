"""A durable gets another filter while somebody publishes on both subjects: what it has passed is never left out in silence."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.account.wire import Wire
from tests.support.clock.until import until
from tests.support.daemon.command import Command
from tests.support.daemon.process import Daemon, daemon, settled
from tests.support.server.process import Server
from tests.support.values.catalogues import stream, write


@pytest.mark.slow
@pytest.mark.parametrize("version", ["2.14.6", "2.15.1"])
async def test_it_stays_as_it_is_and_says_why_or_copies_all_of_it(tmp_path: Path, version: str) -> None:
    """Nothing is on the new subject before the manifest changes; from then on it is a matter of milliseconds what is passed."""
    manifests = write(tmp_path / "all.yaml", documents("s.a"))
    with Server(tmp_path / "server", version=version) as server:
        command = Command(tmp_path, server.url)
        async with (
            daemon(command, tmp_path / "log", "-f", manifests) as running,
            await Wire.connect(server.url) as wire,
        ):
            await running.until(settled)
            async with publishing(wire) as (ids, both):
                await until(lambda: copied(wire, [*range(20)]), 30.0)
                done = migrated(running)
                write(manifests, documents("s.>"))
                await running.post("/-/reload")
                both.set()
                await until(lambda: decided(running, done), 60.0)
            if "position-loss" in await told(running):
                await until(lambda: copied(wire, ids["s.a"]), 30.0)
                assert Counter(map(int, await wire.payloads("A"))) == Counter(ids["s.a"])
                write(manifests, documents("s.a", "s.b"))
                await running.post("/-/reload")
            await until(lambda: copied(wire, [*ids["s.a"], *ids["s.b"]]), 30.0)
            assert Counter(map(int, await wire.payloads("A"))) == Counter([*ids["s.a"], *ids["s.b"]])
            assert not (await wire.consumer_info("S", "c")).get("paused")


async def told(running: Daemon) -> str:
    """What is said of A."""
    rows = (await running.status())["resources"]
    return next(f"{one['state']}: {one['message']}" for one in rows if one["key"] == "Stream/A")


def migrated(running: Daemon) -> int:
    """How many changes of how something is read came to their end."""
    ended = [line for line in running.lines("change.ended") if line.get("procedure") == "migrate-source"]
    return sum(line["result"] == "applied" for line in ended)


async def decided(running: Daemon, before: int) -> bool:
    """Whether one more is refused by now, or done."""
    return "position-loss" in await told(running) or migrated(running) > before


def documents(*filters: str) -> list[dict[str, Any]]:
    """An entry for each filter, each with a durable of its own."""
    own = [
        {"name": "S", "filterSubject": one, "consumer": {"name": "cd"[number], "serverManaged": True}}
        for number, one in enumerate(filters)
    ]
    return [stream("S", "s.>"), {**stream("A"), "spec": {"sources": own}}]


@asynccontextmanager
async def publishing(wire: Wire) -> AsyncIterator[tuple[dict[str, list[int]], asyncio.Event]]:
    """Somebody does, on one subject, and once that is wanted on both; what was published on each."""
    ids: dict[str, list[int]] = {"s.a": [], "s.b": []}
    both, enough = asyncio.Event(), asyncio.Event()

    async def publish() -> None:
        number = 0
        while not enough.is_set():
            subject = "s.b" if both.is_set() and number % 2 else "s.a"
            await wire.publish(subject, 1, first=number)
            ids[subject].append(number)
            number += 1
            await asyncio.sleep(0.002)

    task = asyncio.create_task(publish())
    try:
        yield ids, both
    finally:
        enough.set()
        await task


async def copied(wire: Wire, numbers: list[int]) -> bool:
    """Whether A has all of these."""
    return {*numbers} <= set(map(int, await wire.payloads("A")))


@pytest.mark.slow
@pytest.mark.parametrize("version", ["2.14.6", "2.15.1"])
async def test_a_filter_that_somebody_changed_is_put_back_and_what_waits_is_copied(tmp_path: Path, version: str) -> None:
    """What was copied before he did is not missing, so nobody has to allow a loss."""
    manifests = write(tmp_path / "all.yaml", documents("s.a"))
    with Server(tmp_path / "server", version=version) as server:
        cli = Command(tmp_path, server.url)
        async with await Wire.connect(server.url) as wire:
            cli("apply", "-f", manifests, "--yes")
            await wire.publish("s.a", 5)
            await until(lambda: copied(wire, [*range(5)]), 30.0)
            config = (await wire.consumer_info("S", "c"))["config"]
            other = {**{name: value for name, value in config.items() if name != "filter_subjects"}, "filter_subject": "s.z"}
            await wire.expect("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": other, "action": "update"})
            await wire.publish("s.a", 3, first=5)
            await asyncio.to_thread(cli, "apply", "-f", manifests, "--yes")
            await until(lambda: copied(wire, [*range(8)]), 30.0)
            assert sorted(map(int, await wire.payloads("A"))) == [*range(8)]
