"""Fixtures every room's tests share: servers to run against, and a raw client to act as somebody else.

Invariant: every server is fresh, and gone when its test (for `cluster`: its module) is over.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import hypothesis
import pytest
import pytest_asyncio
import structlog

from tests.support.account.wire import Wire
from tests.support.cluster.servers import Cluster
from tests.support.daemon.engine import Engine, Start, engines
from tests.support.server.binaries import versions_under_test
from tests.support.server.process import Server

# How long an example takes says nothing on a machine that runs servers beside it.
hypothesis.settings.register_profile("beside-servers", deadline=None)
hypothesis.settings.load_profile("beside-servers")


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """What a test makes of logging is its own affair."""
    yield
    structlog.reset_defaults()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server of the newest version."""
    with Server(tmp_path / "server") as running:
        yield running


@pytest.fixture(params=[pytest.param(version, marks=pytest.mark.matrix) for version in versions_under_test()])
def server_version(request: pytest.FixtureRequest) -> str:
    """Each version under test in turn, for tests that configure their own servers."""
    version: str = request.param
    since = request.node.get_closest_marker("since")
    if since and _numbers(version) < _numbers(since.args[0]):
        pytest.skip(f"what it is about begins with {since.args[0]}")
    return version


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


@pytest.fixture
def any_server(tmp_path: Path, server_version: str) -> Iterator[Server]:
    """A server of each version under test in turn."""
    with Server(tmp_path / "any-server", version=server_version) as running:
        yield running


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three servers of the newest version, shared by the tests of one module; give streams names of their own."""
    with Cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest_asyncio.fixture
async def wire(server: Server) -> AsyncIterator[Wire]:
    """A raw client of `server`."""
    async with await Wire.connect(server.url) as connected:
        yield connected


@pytest_asyncio.fixture
async def start() -> AsyncIterator[Start]:
    """Makes engines on servers of the test's choice."""
    async with engines() as started:
        yield started


@pytest_asyncio.fixture
async def engine(server: Server, start: Start) -> Engine:
    """An engine on `server` with short timeouts."""
    return await start(server)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Count cluster tests to the matrix, and keep those of a module in one process so that they share the cluster."""
    for item in items:
        if "cluster" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.matrix)
            item.add_marker(pytest.mark.xdist_group(f"cluster of {item.nodeid.partition('::')[0]}"))
