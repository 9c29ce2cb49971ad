"""An apply that is killed anywhere: the next one converges, and leaves nothing over.

RECONCILER_CRASHES is how often (default 10, shared by the two ways of dying), RECONCILER_SEED makes a run repeatable.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.account.wire import Wire
from tests.support.choice import examples
from tests.support.daemon.command import Command
from tests.support.daemon.running import Running, ran, started
from tests.support.server.process import Server
from tests.support.server.proxy import Proxy, Verdict
from tests.support.values.catalogues import Catalogue, Json, everything

CRASHES = int(os.environ.get("RECONCILER_CRASHES", "0")) or examples(10)
SEED = int(os.environ.get("RECONCILER_SEED", "0")) or random.randrange(1, 1 << 32)
LEASE_TTL_SECONDS = 10
FREELY = ("--prune", "--max-change-percent", "100", "--yes")


@dataclass
class Site:
    """A server that goes to and fro between two catalogues."""

    cli: Command
    server: Server
    wire: Wire
    catalogues: tuple[Catalogue, Catalogue]
    files: tuple[Path, Path]
    references: list[dict[str, Json]]
    """What an undisturbed apply left of each."""
    writes: int = 0
    """How many an undisturbed apply needs."""
    seconds: float = 0.0
    """How long it takes."""

    def apply(self, generation: int) -> tuple[str | Path, ...]:
        """The arguments of an apply."""
        return ("apply", "-f", self.files[generation], *FREELY)

    async def assert_converged(self, generation: int) -> None:
        """All of the catalogue, exactly as declared, and nothing else."""
        live, catalogue = await everything(self.wire), self.catalogues[generation]
        assert live.keys() == catalogue.expected.keys()
        for key, wanted in catalogue.expected.items():
            assert live[key].items() >= wanted.items(), key
        if len(self.references) > generation:
            assert live == self.references[generation]
        await ran(self.cli, "plan", "-f", self.files[generation], "--prune", "--detailed-exitcode")


@pytest_asyncio.fixture
async def site(cli: Command, server: Server, wire: Wire, tmp_path: Path) -> AsyncIterator[Site]:
    """Both catalogues were applied once without trouble; the second is live."""
    catalogues = (Catalogue(0), Catalogue(1))
    files = (catalogues[0].write(tmp_path), catalogues[1].write(tmp_path))
    here = Site(cli, server, wire, catalogues, files, [])
    for generation in (0, 1):
        async with Proxy(server.port) as proxy:
            begun = time.monotonic()
            await ran(Command(cli.home, proxy.url), *here.apply(generation))
            here.seconds, here.writes = time.monotonic() - begun, len(proxy.writes)
        await here.assert_converged(generation)
        here.references.append(await everything(wire))
    yield here


async def recover(site: Site, generation: int, killed: Running) -> None:
    """What an operator does: end the lease of the dead process, apply again."""
    released = await ran(site.cli, "lease", "release", "--yes")
    assert f"(pid {killed.pid}," in released.err or "nobody holds" in released.err, released
    await ran(site.cli, *site.apply(generation))
    await site.assert_converged(generation)


@pytest.mark.slow
@pytest.mark.timeout(120 + 20 * CRASHES)
async def test_killed_at_any_write(site: Site) -> None:
    chance = random.Random(SEED)
    for crash in range(CRASHES // 2):
        generation, last = crash % 2, chance.randint(1, site.writes)
        fate = chance.choice([Verdict.DROP, Verdict.MUTE])
        print(f"seed {SEED}, crash {crash}: {fate} from write {last} of {site.writes} on")  # noqa: T201 - shown when it fails
        async with Proxy(site.server.port) as proxy:
            proxy.rule = proxy.from_write(last, fate)
            async with started(Command(site.cli.home, proxy.url), *site.apply(generation)) as running:
                await proxy.until_stuck()
                await running.kill()
        await recover(site, generation, running)


@pytest.mark.slow
@pytest.mark.timeout(120 + 20 * CRASHES)
async def test_killed_at_any_moment(site: Site) -> None:
    chance = random.Random(SEED)
    for crash in range(CRASHES - CRASHES // 2):
        generation, moment = crash % 2, chance.uniform(0.0, site.seconds)
        print(f"seed {SEED}, crash {crash}: after {moment:.3f} of about {site.seconds:.1f}s")  # noqa: T201 - the same
        async with started(site.cli, *site.apply(generation)) as running:
            await running.ends_within(moment)
        await recover(site, generation, running)


async def test_without_an_operator_the_next_apply_waits_for_the_lease_of_the_dead(
    cli: Command, server: Server, wire: Wire, tmp_path: Path
) -> None:
    catalogue = Catalogue(0, 50)
    path = catalogue.write(tmp_path)
    async with Proxy(server.port) as proxy:
        proxy.rule = proxy.from_write(20, Verdict.DROP)
        async with started(Command(cli.home, proxy.url), "apply", "-f", path, "--yes") as running:
            await proxy.until_stuck()
            await running.kill()
    assert f"(pid {running.pid}," in (await ran(cli, "lease", "show")).out
    begun = time.monotonic()
    await ran(cli, "apply", "-f", path, "--yes")
    assert time.monotonic() - begun > LEASE_TTL_SECONDS / 2, "its TTL ran out, less what the dead one had used of it"
    assert (await everything(wire)).keys() == catalogue.expected.keys()
    await ran(cli, "plan", "-f", path, "--prune", "--detailed-exitcode")
