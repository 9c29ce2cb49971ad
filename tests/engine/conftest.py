"""The daemon's passes, one by one, on a server of the test's choice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.support.account.meddling import Somebody
from tests.support.daemon.engine import Engine
from tests.support.daemon.passes import DOCUMENTS, Bench
from tests.support.server.process import Server
from tests.support.values.catalogues import write


@pytest_asyncio.fixture
async def somebody(server: Server) -> AsyncIterator[Somebody]:
    """Another client."""
    async with await Somebody.arrive(server.url) as arrived:
        yield arrived


@pytest_asyncio.fixture
async def bench(engine: Engine, somebody: Somebody, tmp_path: Path) -> Bench:
    """Manifests read, nothing looked at yet."""
    bench = Bench(engine, somebody, write(tmp_path / "all.yaml", DOCUMENTS))
    await bench.manifests.load()
    return bench
