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

from tests.support import groups, passed, promises, skipped
from tests.support.account.wire import Wire
from tests.support.choice import every_day, run_everything, versions_for
from tests.support.cluster.servers import Cluster
from tests.support.daemon.engine import Engine, Start, engines
from tests.support.server.process import Server

_MISSING = pytest.StashKey[list[str]]()
APART = ("images", "kube")
"""Marks of tests that need a machine of their own: they are run by a make target that names their mark, and by nothing else."""

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
    for apart in APART:
        if apart not in config.option.markexpr:
            _leave_out(config, items, [item for item in items if item.get_closest_marker(apart)])
    if not config.getoption("--all") and not any("::" in argument for argument in config.args):
        chosen = set(every_day(items))
        _leave_out(config, items, [item for item in items if item not in chosen])
    if config.getoption("--all") and (before := passed.read()):
        again = [item for item in items if passed.name_of(item.nodeid) in before and passed.is_the_same(item)]
        passed.leaves_out(len(again))
        _leave_out(config, items, again)
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def _leave_out(config: pytest.Config, items: list[pytest.Item], left_out: list[pytest.Item]) -> None:
    config.hook.pytest_deselected(items=left_out)
    gone = set(left_out)
    items[:] = [item for item in items if item not in gone]


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
        config.workeroutput["again"] = passed.left_out()
        return
    if session.testsfailed or config.args != config.getini("testpaths") or config.option.keyword or config.option.markexpr:
        return
    missing = promises.all_promises() - promises.seen()
    if missing and not config.option.collectonly:
        config.stash[_MISSING] = sorted(missing)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """What one of the processes has seen, and left out."""
    told = getattr(node, "workeroutput", {})
    promises.saw(told.get("promises", ()))
    passed.leaves_out(told.get("again", 0))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name what nothing proved, and what was not run."""
    config = terminalreporter.config
    if not config.getoption("--all") and not hasattr(config, "workerinput"):
        passed.write(terminalreporter.stats.get("passed", ()))
    if again := passed.left_out():
        terminalreporter.write_line(f"{again} tests passed a moment ago in `make test` of the same files, and were not run again")
    for line in skipped.lines(terminalreporter.stats.get("skipped", ())):
        terminalreporter.write_line(line)
    for missing in config.stash.get(_MISSING, ()):
        terminalreporter.write_line(f"UNPROVEN on a real server: {missing}")
