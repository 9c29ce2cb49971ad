"""A commit edits many consumers and their stream; another client lifts a limit and fills the stream; the apply is killed.

Whatever the apply does first after it has planned is held up until the other client is done: that is the moment at which what
was planned is no longer true. RECONCILER_SEED makes a run repeatable.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.account.wire import Wire
from tests.support.choice import examples
from tests.support.daemon.command import Command
from tests.support.daemon.running import ran, started
from tests.support.server.process import Server
from tests.support.server.proxy import Proxy, Request, Verdict
from tests.support.values.catalogues import Json, consumer, stream, write

SEED = int(os.environ.get("RECONCILER_SEED", "0")) or random.randrange(1, 1 << 32)
CONSUMERS, FILLED = 150, 300
ROOM = 1000
FREELY = ("--max-change-percent", "100", "--yes", "--continue")


def _commit(number: int, limit: int) -> list[Json]:
    consumers = [consumer("S", f"w{worker}", "s.x", maxDeliver=number + 1) for worker in range(CONSUMERS)]
    return [stream("S", "s.>", maxMsgs=limit, description=f"commit {number}"), *consumers]


def _held_up(proxy: Proxy, held: asyncio.Event) -> Callable[[Request], Verdict]:
    """A rule: after the second look at everything (the one under the lease), whatever comes next stands still."""
    looks = 0

    def rule(request: Request) -> Verdict:
        nonlocal looks
        looks += "CONSUMER.LIST.S" in request.subject
        first = request.is_write or request.subject.endswith("STREAM.INFO.S")
        if looks > 1 and first and not held.is_set():
            held.set()
            proxy.stall()
        return Verdict.PASS

    return rule


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_no_message_is_lost_to_a_commit_that_knows_nothing_of_the_room_made_meanwhile(
    cli: Command, server: Server, wire: Wire, tmp_path: Path
) -> None:
    chance, path = random.Random(SEED), tmp_path / "commit.yaml"
    stored, limit = 0, 20
    await ran(cli, "apply", "-f", write(path, _commit(0, limit)), *FREELY)
    for number in range(1, 1 + examples(10)):
        moment = chance.uniform(0.0, 1.0)
        print(f"seed {SEED}, commit {number}: killed {moment:.3f} s after that")  # noqa: T201 - shown when it fails
        write(path, _commit(number, limit))
        async with Proxy(server.port) as proxy:
            held = asyncio.Event()
            proxy.rule = _held_up(proxy, held)
            async with started(Command(cli.home, proxy.url), "apply", "-f", path, *FREELY) as running:
                await asyncio.wait_for(held.wait(), 30)
                await wire.expect("STREAM.UPDATE.S", (await wire.stream_info("S"))["config"] | {"max_msgs": limit + ROOM})
                await wire.publish("s.x", FILLED)
                proxy.mend()
                await running.ends_within(moment)
                await running.kill()
        await ran(cli, "lease", "release", "--yes")
        stored, limit = stored + FILLED, limit + ROOM
        await ran(cli, "apply", "-f", path, *FREELY, code=None)
        assert (await wire.stream_info("S"))["state"]["messages"] == stored
        await ran(cli, "apply", "-f", write(path, _commit(number, limit)), *FREELY)
        assert (await wire.stream_info("S"))["state"]["messages"] == stored
        found = [await wire.consumer_info("S", f"w{worker}") for worker in range(CONSUMERS)]
        assert {info["config"]["max_deliver"] for info in found} == {number + 1}
