"""A leader that is frozen at any moment, for longer than its lease lasts: what it does when it wakes up is next to nothing.

RECONCILER_FREEZES is how often (default 20, shared by pairs of daemons that run side by side), RECONCILER_SEED makes the
moments repeatable as far as processes are.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from pathlib import Path

import pytest

from tests.support.choice import examples
from tests.support.daemon.freezer import Freezer, freezer
from tests.support.server.process import Server

FREEZES = int(os.environ.get("RECONCILER_FREEZES", "0")) or examples(20)
SEED = int(os.environ.get("RECONCILER_SEED", "0")) or random.randrange(1, 1 << 32)
PAIRS = 2
TTL = 1.5

log = logging.getLogger(__name__)


@pytest.mark.slow
@pytest.mark.timeout(120 + 10 * FREEZES)
async def test_a_frozen_leader_does_no_harm_when_it_wakes(server: Server, tmp_path: Path) -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(some_freezes(server, tmp_path, number)) for number in range(PAIRS)]
    ended = [task.result() for task in tasks]
    freezes = [freeze for each in ended for freeze in each.freezes]
    took = sorted(freeze.taken_over for freeze in freezes)
    log.info(
        "seed %d: %d freezes, %d with a write on its way; taken over after %.2f s (median), %.2f s (most), TTL %.1f s; "
        "stale writes: %d that were on their way, %d afterwards; %d edits, %d writes by daemons, %d messages",
        SEED,
        len(freezes),
        sum(freeze.within for freeze in freezes),
        took[len(took) // 2],
        took[-1],
        TTL,
        sum(freeze.on_the_way for freeze in freezes),
        sum(freeze.afterwards for freeze in freezes),
        sum(each.work.edits for each in ended),
        sum(written(each) for each in ended),
        sum(sum(each.work.published.values()) for each in ended),
    )
    assert len(freezes) >= FREEZES
    assert max(freeze.on_the_way + freeze.afterwards for freeze in freezes) <= 1, (SEED, freezes)


async def some_freezes(server: Server, directory: Path, number: int) -> Freezer:
    """A pair's share."""
    async with freezer(server, directory, f"owner{number}", TTL, SEED + number) as pair:
        for _ in range(-(-FREEZES // PAIRS)):
            await pair.freeze()
        await pair.end()
        assert await pair.work.lost() == []
        assert written(pair) <= pair.work.edits + len(pair.freezes), "each edit is repaired once: nobody undoes the other's work"
        return pair


def written(pair: Freezer) -> int:
    """How often its daemons wrote."""
    return sum(len(pair.ledger.by(member.proxy.names)) for member in pair.members)
