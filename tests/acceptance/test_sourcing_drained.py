"""A stream that copies into a work queue which somebody empties at once: nothing in it shows how far it has come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.account.wire import Wire
from tests.support.clock.until import until
from tests.support.daemon.command import Command
from tests.support.daemon.process import daemon, settled
from tests.support.server.process import Server
from tests.support.values.catalogues import stream, write

BEFORE, AFTER = 20, 10


@pytest.mark.slow
async def test_its_migration_ends_and_repeats_nothing(tmp_path: Path) -> None:
    """Which only 2.15 can: it tells how far an entry has come; on 2.14 such a migration is refused."""
    with Server(tmp_path / "server", version="2.15.1") as server:
        manifests = write(tmp_path / "all.yaml", documents())
        async with (
            daemon(Command(tmp_path, server.url), tmp_path / "log", "-f", manifests) as running,
            await Wire.connect(server.url) as wire,
        ):
            await running.until(settled)
            async with emptied(wire) as got:
                await wire.publish("s.x", BEFORE)
                await until(lambda: has(got, BEFORE), 60.0)
                write(manifests, documents(consumer={"name": "c", "serverManaged": True}))
                await running.post("/-/reload")
                await until(lambda: runs(wire), 60.0)
                await running.until(settled)
                await wire.publish("s.x", AFTER, first=BEFORE)
                await until(lambda: has(got, BEFORE + AFTER), 60.0)
                await asyncio.sleep(1)
        assert sorted(got) == list(range(BEFORE + AFTER))


def documents(**entry: Any) -> list[dict[str, Any]]:
    """The origin keeps everything, what copies it nothing."""
    return [stream("S", "s.>"), {**stream("A"), "spec": {"retention": "workqueue", "sources": [{"name": "S", **entry}]}}]


@asynccontextmanager
async def emptied(wire: Wire) -> AsyncIterator[list[int]]:
    """Somebody takes everything out of A; what he has got."""
    got: list[int] = []
    config = {"durable_name": "w", "ack_policy": "explicit"}
    await wire.expect("CONSUMER.CREATE.A.w", {"stream_name": "A", "config": config, "action": "create"})
    reader = await wire.client.jetstream().pull_subscribe_bind("w", "A")

    over = asyncio.Event()

    async def take() -> None:
        while not over.is_set():
            try:
                messages = await reader.fetch(100, timeout=0.5)
            except TimeoutError:
                continue
            for message in messages:
                got.append(int(message.data))
                await message.ack()

    task = asyncio.create_task(take())
    try:
        yield got
    finally:
        over.set()
        await task  # a cancellation in the tick of a timeout would be lost


async def has(got: list[int], count: int) -> bool:
    return len(got) >= count


async def runs(wire: Wire) -> bool:
    """The durable is there, runs, and no migration is under way any more."""
    info = await wire.call("CONSUMER.INFO.S.c")
    return "error" not in info and not info.get("paused") and "reconciler.procedure" not in info["config"]["metadata"]
