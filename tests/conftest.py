"""Fixtures every room's tests share: servers to run against, and a raw client to act as somebody else.

Invariant: every server is fresh, and gone when its test (for `cluster`: its module) is over.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import pytest_asyncio
import structlog

from tests.support import groups, promises, skipped
from tests.support.account.wire import Wire
from tests.support.choice import every_day, run_everything, versions_for
from tests.support.cluster.servers import Cluster
from tests.support.daemon.engine import Engine, Start, engines
from tests.support.server.process import Server

_MISSING = pytest.StashKey[list[str]]()

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


@pytest.fixture(scope="session")
def server_version(request: pytest.FixtureRequest) -> str:
    """Each version that the test is to be run on in turn, for tests that configure their own servers."""
    version: str = request.param
    return version


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


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--all`, as `make test-all` says it."""
    parser.addoption("--all", action="store_true", help="everything, on every version under test")


def pytest_configure(config: pytest.Config) -> None:
    """An interrupt interrupts, also what tests start, although a shell has what it runs in the background ignore it."""
    run_everything(config.getoption("--all"))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The servers a test is run on."""
    if "server_version" in metafunc.fixturenames:
        versions = versions_for(metafunc.definition)
        metafunc.parametrize("server_version", [pytest.param(one, marks=pytest.mark.matrix) for one in versions], indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what only `--all` runs; long tests first; tests of a module that share a cluster in one process."""
    for item in items:
        if "cluster" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.matrix)
            item.add_marker(pytest.mark.xdist_group(f"cluster of {item.nodeid.partition('::')[0]}"))
    if not config.getoption("--all") and not any("::" in argument for argument in config.args):
        chosen = set(every_day(items))
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = [item for item in items if item in chosen]
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.hookimpl(wrapper=True)
def pytest_collection_finish(session: pytest.Session) -> Iterator[None]:
    """What several processes share out they know by names."""
    if hasattr(session.config, "workerinput"):
        groups.name_groups(session.items)
    yield


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A run of everything fails when a promise of the product was kept in none of its tests on a real server."""
    config = session.config
    if hasattr(config, "workeroutput"):
        config.workeroutput["promises"] = sorted(promises.seen())
        return
    if session.testsfailed or config.args != config.getini("testpaths") or config.option.keyword or config.option.markexpr:
        return
    missing = promises.all_promises() - promises.seen()
    if missing and not config.option.collectonly:
        config.stash[_MISSING] = sorted(missing)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """What one of the processes has seen."""
    promises.saw(getattr(node, "workeroutput", {}).get("promises", ()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name what nothing proved, and what was not run."""
    for line in skipped.lines(terminalreporter.stats.get("skipped", ())):
        terminalreporter.write_line(line)
    for missing in terminalreporter.config.stash.get(_MISSING, ()):
        terminalreporter.write_line(f"UNPROVEN on a real server: {missing}")
