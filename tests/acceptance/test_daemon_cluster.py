"""A running daemon on three servers: leaders that step down, nodes that die, and streams without a quorum.

Whatever moves, what others change is repaired, and nothing is ever made anew.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import nats.errors
import pytest
import pytest_asyncio

from tests.support.account.lasting import Lasting
from tests.support.account.wire import Json, Wire, eventually
from tests.support.clock.until import until
from tests.support.cluster.servers import Cluster
from tests.support.daemon.command import Command
from tests.support.daemon.process import Daemon, daemon, settled
from tests.support.values.catalogues import consumer, everything, stream, write

pytestmark = pytest.mark.slow
REPAIRED = 50.0
"""Seconds after the last edit, elections included."""
PATIENCE = 0.5
"""Seconds that somebody waits for an answer to an edit: what asks a leader that steps down gets none."""
ACCOUNTS = """
accounts {
  SYS { users: [{ user: sys, password: sys }] }
  APP { jetstream: enabled, users: [{ user: app, password: app }] }
}
system_account: SYS
no_auth_user: app
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three servers on which somebody may move the meta leader; who does not log in is the application."""
    with Cluster(tmp_path_factory.mktemp("cluster"), config=ACCOUNTS) as running:
        yield running


@dataclass
class Stage:
    """A daemon that has everything in place, and what has to be the same afterwards."""

    cluster: Cluster
    daemon: Daemon
    wire: Wire
    lasting: Lasting
    wanted: dict[str, Json]
    kept: dict[str, Json]

    async def live(self) -> dict[str, Json]:
        """Our part of what is there."""
        return self.lasting.of(await everything(self.wire))

    def written(self, begun: int) -> set[str]:
        """What kinds of changes were tried since there were so many of them."""
        return {line["action"] for line in self.daemon.lines("change.ended")[begun:]} - {"blocked"}

    async def converges(self, seconds: float = REPAIRED) -> None:
        """Everything is in place in time, live and in the status, and nothing was made anew."""
        try:
            async with asyncio.timeout(seconds):
                await until(self._in_place, seconds)
                await until(self._same, seconds)
        except TimeoutError:
            found, kept = await self.live(), await self.lasting.kept(self.wire)
            wrong = {name for name in found.keys() | self.wanted.keys() if found.get(name) != self.wanted.get(name)}
            lost = {name: (self.kept[name], kept.get(name)) for name in self.kept if self.kept[name] != kept.get(name)}
            raise AssertionError((wrong, lost, self.daemon.log()[-6000:])) from None
        await self.daemon.until(settled)

    async def _in_place(self) -> bool:
        try:
            return await self.live() == self.wanted
        except (nats.errors.Error, AssertionError):
            return False  # an election under way

    async def _same(self) -> bool:
        """Right after an election a leader may still be catching up with what the old one had counted."""
        try:
            return await self.lasting.kept(self.wire) == self.kept
        except (nats.errors.Error, AssertionError):
            return False


Staged = Callable[..., Awaitable[Stage]]


@pytest_asyncio.fixture
async def staged(cluster: Cluster, offline: Command, tmp_path: Path) -> AsyncIterator[Staged]:
    """Starts a daemon for a catalogue, with messages in its streams."""
    async with AsyncExitStack() as stack:

        async def start(lasting: Lasting, *more: Json) -> Stage:
            path = write(tmp_path / "all.yaml", [*lasting.documents, *more])
            cli = Command(offline.home, cluster.url)
            begun = daemon(cli, tmp_path / "log", "-f", path, "--interval", "3s", RECONCILER_OWNER=lasting.prefix)
            running = await stack.enter_async_context(begun)
            await running.until(settled)
            wire = await stack.enter_async_context(await Wire.connect(cluster.url, reconnect_time_wait=0.1))
            await lasting.fill(wire)
            await asyncio.sleep(0.5)
            return Stage(cluster, running, wire, lasting, lasting.of(await everything(wire)), await lasting.kept(wire))

        yield start


async def edit(wire: Wire, lasting: Lasting, number: int) -> None:
    """Somebody changes a stream and a consumer; whoever finds no leader gives up for this time."""
    name = lasting.streams[number % len(lasting.streams)]
    config = (await wire.stream_info(name))["config"]
    await wire.call(f"STREAM.UPDATE.{name}", config | {"max_msgs": 2000 + number})
    config = (await wire.consumer_info(name, "c1"))["config"]
    body = {"stream_name": name, "config": config | {"max_deliver": 20 + number}, "action": "update"}
    await wire.call(f"CONSUMER.CREATE.{name}.c1", body)


@asynccontextmanager
async def being_edited(wire: Wire, lasting: Lasting) -> AsyncIterator[list[int]]:
    """Meanwhile somebody edits one after the other; the numbers of those edits that came through."""
    done: list[int] = []
    over = asyncio.Event()

    async def go_on() -> None:
        for number in itertools.count():
            if over.is_set():
                return
            with suppress(TimeoutError, nats.errors.Error, AssertionError):
                async with asyncio.timeout(PATIENCE):
                    await edit(wire, lasting, number)
                done.append(number)
            await asyncio.sleep(0.05)

    async with asyncio.TaskGroup() as group:
        group.create_task(go_on())
        try:
            yield done
        finally:
            over.set()


async def test_leaders_that_step_down_while_somebody_edits(cluster: Cluster, staged: Staged) -> None:
    stage = await staged(Lasting("DOWN_", replicas=3))
    begun = len(stage.daemon.lines("change.ended"))
    system = await Wire.connect(cluster.url, user="sys", password="sys")
    async with system, being_edited(stage.wire, stage.lasting) as edits:
        for name in itertools.islice(itertools.cycle(stage.lasting.streams), 10):
            await stage.wire.call(f"STREAM.LEADER.STEPDOWN.{name}")
            await stage.wire.call(f"CONSUMER.LEADER.STEPDOWN.{name}.c1")
            await asyncio.sleep(0.3)
            assert (await system.call("META.LEADER.STEPDOWN"))["success"]
            await asyncio.sleep(0.7)
    assert len(edits) > 10
    await stage.converges()
    assert stage.written(begun) == {"update"}


async def test_a_node_that_is_killed_while_somebody_edits(cluster: Cluster, staged: Staged) -> None:
    """What lives on that node alone is unknown meanwhile; the rest is repaired as ever."""
    single = [stream(f"KILL_ONE{number}", f"KILL_ONE{number}.>") for number in range(3)]
    consumers = [consumer(f"KILL_ONE{number}", "c", f"KILL_ONE{number}.x") for number in range(3)]
    stage = await staged(Lasting("KILL_", replicas=3), *single, *consumers)
    home = (await stage.wire.stream_info("KILL_ONE0"))["cluster"]["leader"]
    victim = next(each for each in cluster.servers if each.name == home)
    begun = len(stage.daemon.lines("change.ended"))
    try:
        victim.kill()
        async with being_edited(stage.wire, stage.lasting) as edits:
            await stage.daemon.until(unknown("Stream/KILL_ONE0", "Consumer/KILL_ONE0/c"), 30)
            before = len(edits)
            await eventually(lambda: len(edits) > before + len(stage.lasting.streams), 30)
    finally:
        victim.start()
        cluster.wait_ready()
    await stage.converges()
    assert stage.written(begun) == {"update"}


async def test_streams_without_a_quorum(cluster: Cluster, staged: Staged) -> None:
    stage = await staged(Lasting("QUORUM_", replicas=3))
    begun = len(stage.daemon.lines("change.ended"))
    pid = stage.daemon.pid
    victims = cluster.servers[:2]
    try:
        for victim in victims:
            victim.kill()
        await stage.daemon.until(lambda document: document["summary"]["Unknown"] == len(document["resources"]), 40)
        await asyncio.sleep(3)
        assert (await stage.daemon.get("/livez"))[0] == 200
        assert (await stage.daemon.status())["summary"]["Unknown"]
    finally:
        for victim in victims:
            victim.launch()
        cluster.wait_ready()
    await stage.converges()
    assert stage.daemon.pid == pid
    assert stage.written(begun) <= {"update"}


def unknown(*keys: str) -> Callable[[Json], bool]:
    """Whether the status shows that nothing is known of these."""
    return lambda document: {one["state"] for one in document["resources"] if one["key"] in keys} == {"Unknown"}
