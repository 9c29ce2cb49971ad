"""What lands of a leader behind its successor's fence, and what the fence says about it; `tools.prove_fence` does more of it."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.cli.pen import Pen, pen
from reconciler.errors import NoAnswer, NotSent
from reconciler.jetstream.domains import DomainApis
from reconciler.jetstream.leading.fence import CONNECTIONS, FenceNews, FenceState, parse_links, recorded
from reconciler.jetstream.leading.holder import Holder
from reconciler.jetstream.leading.term import LinkName
from reconciler.jetstream.transport.connection import Connection
from reconciler.jetstream.transport.settings import ConnectionSettings
from reconciler.model.identity import Key
from reconciler.procedures.requests import CreateStream, UpdateStream
from tests.support.account.lease import hold
from tests.support.account.wire import Wire, eventually
from tests.support.clock.until import SECONDS, until
from tests.support.cluster.servers import Cluster
from tests.support.daemon.leadership import short_lease
from tests.support.fence.rounds import SHORT_PINGS, Behind, Consumers, former, stopped_between_look_and_send, succeed, way_out
from tests.support.server.binaries import DEFAULT_VERSIONS
from tests.support.server.leaves import hub_and_leaves
from tests.support.server.process import Server
from tests.support.server.proxy import Proxy, Request, Verdict

TTL = 3.0
S = Key("Stream", "S")
MADE = CreateStream(S, b'{"name": "S", "subjects": ["s"]}')
CHANGED = UpdateStream(S, b'{"name": "S", "subjects": ["s"], "max_msgs": 5}')


@dataclass
class One:
    """A process that wants to lead, in this one."""

    connection: Connection
    ours: Pen
    news: list[FenceNews]

    @property
    def said(self) -> list[str]:
        """What was said of its fences, in order."""
        return [news.state.value for news in self.news]

    def die(self) -> None:
        """As far as others can see."""
        self.ours.lease._fence.cut()  # type: ignore[union-attr]  # it has one
        assert self.ours.lease._renewer is not None
        self.ours.lease._renewer.cancel()


@asynccontextmanager
async def one(url: str, patience: float = 1.0, domains: tuple[str, ...] = (), **settings: Any) -> AsyncIterator[One]:
    """A process of the owner `prod`."""
    news: list[FenceNews] = []
    async with await Connection.open(ConnectionSettings(servers=(url,), **settings), "one") as connection:
        streams = [Key("Stream", "S", "", domain) for domain in domains]
        ours = pen(DomainApis(connection), "prod", Holder(), patience=patience, streams=lambda: streams, tell=news.append)
        try:
            yield One(connection, ours, news)
        finally:
            assert ours.lease._fence is not None
            await ours.lease._fence.term.end()


STOPPED = "test_a_leader_that_was_stopped_between_look_and_send_changes_nothing_behind_the_fence"


def _as(server: Server, user: str) -> str:
    return server.url.replace("nats://", f"nats://{user}:{user}@")


async def _rounds(server: Server, wire: Wire, count: int, near: str = "", replicas: int = 1) -> list[Behind]:
    """Leaders that stand still at so many places between look and send, side by side."""
    lines = await way_out(near or server.url, wire, "lines")
    points = [lines[(2 * number + 1) * len(lines) // (2 * count)] for number in range(count)]
    how = {"patience": 15.0, "near": near or server.url, "replicas": replicas}
    return list(
        await asyncio.gather(*(stopped_between_look_and_send(server.url, wire, f"p{at}", at, TTL, **how) for at in points))
    )


async def test_a_leader_that_was_stopped_between_look_and_send_changes_nothing_behind_the_fence(tmp_path: Path) -> None:
    with Server(tmp_path / "s", config=SHORT_PINGS) as server:
        async with await Wire.connect(server.url) as wire:
            found = await _rounds(server, wire, 3)
    assert [(behind.proven, behind.late) for behind in found] == [(True, 0)] * 3, [behind.last for behind in found]


@pytest.mark.thorough(
    also="tests/jetstream/test_fence.py::test_a_leader_that_was_stopped_between_look_and_send_changes_nothing_behind_the_fence"
)
@pytest.mark.parametrize("version", DEFAULT_VERSIONS)
async def test_nor_does_it_in_a_cluster(tmp_path: Path, version: str) -> None:
    with Cluster(tmp_path, version=version, config=SHORT_PINGS) as cluster:
        async with await Wire.connect(cluster.servers[2].url) as wire:
            found = await _rounds(cluster.servers[1], wire, 12, cluster.servers[0].url, 3)
    assert [(behind.proven, behind.late) for behind in found] == [(True, 0)] * 12, [behind.last for behind in found]


async def test_where_the_server_keeps_its_connection_a_change_lands_and_the_fence_says_that_it_may(
    server: Server, wire: Wire
) -> None:
    """The control: by default a server gives up a stopped client after minutes."""
    lines = await way_out(server.url, wire, "lines")
    behind = await stopped_between_look_and_send(server.url, wire, "late", lines[len(lines) // 2], TTL, patience=0.5)
    assert behind.last.state is FenceState.UNPROVEN
    assert "is still open" in behind.last.why
    assert behind.late == 1


@pytest.mark.parametrize("queued", [1500])
async def test_what_a_killed_leader_had_sent_behind_the_requests_of_others_has_landed_when_the_fence_is_passed(
    server: Server, wire: Wire, queued: int
) -> None:
    lines = await way_out(server.url, wire, "lines")
    consumers = Consumers(wire, "S-killed", ("w", "load"))
    await consumers.made(filters=200)
    await short_lease(wire, TTL, "killed")
    async with former(server.url, "killed", consumers.stream, lines[-1]) as before, await Wire.connect(server.url) as others:
        await before.change("w")
        await before.until_stopped()
        await Consumers(others, consumers.stream, ("load",)).queue("load", queued)
        before.send(signal.SIGCONT)
        await asyncio.sleep(0.05)
        before.send(signal.SIGKILL)

        async def nothing() -> None:
            """Nobody goes on."""

        watched = Consumers(wire, consumers.stream, ("w",))
        behind = await succeed(server.url, "killed", watched.seen, nothing, patience=60.0)
    assert (behind.proven, behind.late) == (True, 0)
    assert await watched.seen() == [2], "it was sent, and executed"


async def test_after_a_clean_end_nobody_waits(server: Server) -> None:
    async with one(server.url) as first, one(server.url) as second:
        async with first.ours.lease.take():
            pass
        began = time.monotonic()
        async with second.ours.lease.take():
            assert time.monotonic() - began < 2
    assert first.said == second.said == ["clean", ""]


async def test_a_leader_that_vanished_is_known_long_after_its_entry(server: Server, wire: Wire) -> None:
    await short_lease(wire, TTL, "prod")
    async with one(server.url) as first, one(server.url) as second:
        await first.ours.lease.acquire()
        first.die()

        async def forgotten() -> bool:
            return await second.ours.lease.show() is None

        await until(forgotten)
        await second.ours.lease.acquire()
        assert second.said == ["waiting", "proven"]
        await second.ours.lease.release()


async def test_who_dies_at_the_fence_leaves_what_it_waited_for_to_the_next(server: Server, wire: Wire) -> None:
    await short_lease(wire, TTL, "prod")
    async with one(server.url) as first, one(server.url, patience=SECONDS) as second, one(server.url) as third:
        await first.ours.lease.acquire()
        (name,) = first.ours.lease.holder.links
        assert first.ours.lease._renewer is not None
        first.ours.lease._renewer.cancel()  # it stands still, and its connection is there
        waiting = asyncio.create_task(second.ours.lease.acquire(SECONDS))
        await eventually(lambda: second.said == ["waiting"])
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert name in second.ours.lease.holder.links
        second.die()
        await third.ours.lease.acquire(SECONDS)
        assert third.said == ["waiting", "unproven"]
        assert f"its connection {name.cid} to {name.server} is still open" in third.news[-1].why
        assert name not in third.ours.lease.holder.links
        await third.ours.lease.release()


async def test_who_ends_in_an_orderly_way_at_the_fence_leaves_it_to_the_next_as_well(server: Server, wire: Wire) -> None:
    await short_lease(wire, TTL, "prod")
    async with one(server.url) as first, one(server.url, patience=SECONDS) as second, one(server.url) as third:
        await first.ours.lease.acquire()
        (name,) = first.ours.lease.holder.links
        assert first.ours.lease._renewer is not None
        first.ours.lease._renewer.cancel()  # it stands still, and its connection is there
        waiting = asyncio.create_task(second.ours.lease.acquire(SECONDS))
        await eventually(lambda: second.said == ["waiting"])
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await second.ours.lease.release()
        assert await third.ours.lease.show() is None
        await third.ours.lease.acquire(SECONDS)
        assert third.said == ["waiting", "unproven"]
        assert f"its connection {name.cid} to {name.server} is still open" in third.news[-1].why
        await third.ours.lease.release()


@pytest.mark.parametrize("how", ["dies", "releases", "dies and is forgotten"])
async def test_who_loses_its_own_connection_at_the_fence_forgets_nobody_it_waited_for(
    server: Server, wire: Wire, how: str
) -> None:
    await short_lease(wire, TTL, "prod")
    async with one(server.url) as first, one(server.url, patience=SECONDS) as second, one(server.url) as third:
        await first.ours.lease.acquire()
        (name,) = first.ours.lease.holder.links
        assert first.ours.lease._renewer is not None
        first.ours.lease._renewer.cancel()  # it stands still, and its connection is there
        waiting = asyncio.create_task(second.ours.lease.acquire(SECONDS))
        await eventually(lambda: second.said == ["waiting"])
        fence = second.ours.lease._fence
        assert fence is not None
        assert fence.term._link is not None
        own = fence.term.name
        fence.term._link.cut()

        async def told() -> bool:
            noted = recorded((await wire.stream_info("KV_reconciler-prod"))["config"]) or ()
            return bool(fence.term._link) and own not in (*second.ours.lease.holder.links, *noted)

        await until(told)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        if how == "releases":
            await second.ours.lease.release()
        else:
            second.die()
        if how == "dies and is forgotten":

            async def forgotten() -> bool:
                return await third.ours.lease.show() is None

            await until(forgotten)
        await third.ours.lease.acquire(SECONDS)
        assert third.said == ["waiting", "unproven"]
        assert f"its connection {name.cid} to {name.server} is still open" in third.news[-1].why
        await third.ours.lease.release()


async def test_who_does_not_know_what_it_waits_for_at_the_fence_gives_nothing_back(server: Server, wire: Wire) -> None:
    await short_lease(wire, TTL, "prod")
    connection, _ = await hold(server, "prod")
    async with connection:
        connection.cut()
    async with one(server.url) as second, one(server.url) as third:
        waiting = asyncio.create_task(second.ours.lease.acquire(SECONDS))
        await eventually(lambda: second.said == ["waiting"])
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await second.ours.lease.release()
        await third.ours.lease.acquire(SECONDS)
        assert third.said == ["waiting", "unproven"]
        await third.ours.lease.release()


async def test_the_note_of_a_leader_before_does_not_land_behind_a_proven_fence(server: Server, wire: Wire) -> None:
    """Of one that stood still just before it sent it, and whose own connection to the lease is there."""
    await short_lease(wire, TTL, "prod")
    async with one(server.url) as first, one(server.url) as second:
        await first.ours.lease.acquire()
        late = first.ours.lease.holder.links
        first.die()
        await second.ours.lease.acquire(SECONDS)
        assert second.said == ["waiting", "proven"]
        fence = first.ours.lease._fence
        assert fence is not None
        fence._held = lambda: True  # it had asked before it stood still
        await fence._record(first.ours.lease._bucket, late)
        noted = recorded((await wire.stream_info("KV_reconciler-prod"))["config"])
        assert noted == second.ours.lease.holder.links != late
        await second.ours.lease.release()


async def test_a_leader_of_which_nothing_is_known_is_not_proven_to_be_gone(server: Server, wire: Wire) -> None:
    await short_lease(wire, TTL, "prod")
    await wire.client.request("$KV.reconciler-prod.writer", b"", headers={"KV-Operation": "PURGE", "Nats-Rollup": "sub"})
    await wire.expect("STREAM.PURGE.KV_reconciler-prod")
    async with one(server.url) as only, only.ours.lease.take():
        assert only.said == ["waiting", "unproven"]
        assert "it is not known over which connection" in only.news[-1].why


ACCOUNTS = """
accounts {
  A { jetstream: enabled, users: [{user: a, password: a}, {user: c, password: c}]
      exports: [{service: "$JS.API.>"}, {service: "$KV.>"}] }
  B { users: [{user: b, password: b}]
      imports: [{service: {account: A, subject: "$JS.API.>"}, to: "A.API.>"}
                {service: {account: A, subject: "$KV.>"}, to: "A.API.$KV.>"}] }
}
"""
NOTED = "$JS.API.STREAM.UPDATE.KV_reconciler-prod"
GRANTS = """
authorization { users: [
  {user: a, password: a}
  {user: b, password: b, permissions: {publish: {deny: ["%s"]}}}
] }
"""


@pytest.mark.parametrize(
    ("config", "prefix", "why"),
    [
        pytest.param(ACCOUNTS, "A.API", "the leader before was in the account A, and this process is in B", id="account"),
        pytest.param(GRANTS % CONNECTIONS, "", f'publish "{CONNECTIONS}"', id="connections"),
        pytest.param(
            GRANTS % "$JS.API.STREAM.UPDATE.KV_reconciler-prod",
            "",
            'publish "$JS.API.STREAM.UPDATE.KV_reconciler-prod"',
            id="update",
        ),
    ],
)
async def test_what_cannot_be_asked_is_unproven_and_named(tmp_path: Path, config: str, prefix: str, why: str) -> None:
    with Server(tmp_path / "s", config=config) as server:
        async with await Wire.connect(server.url, user="a", password="a") as wire:
            await short_lease(wire, TTL, "prod")
        async with one(_as(server, "a")) as first, one(_as(server, "b"), js_api_prefix=prefix) as second:
            await first.ours.lease.acquire()
            first.die()
            await second.ours.lease.acquire(SECONDS)
            assert second.said == ["waiting", "unproven"]
            assert why in second.news[-1].why
            await second.ours.lease.release()


async def test_a_server_that_says_nothing_has_not_said_that_a_connection_is_gone(cluster: Cluster) -> None:
    first, second, _ = cluster.servers
    async with one(first.url) as before, one(second.url, patience=1.5) as after:
        await before.ours.lease.acquire(SECONDS)
        (name,) = before.ours.lease.holder.links
        assert name.server == first.name
        assert not name.alone
        fence = after.ours.lease._fence
        assert fence is not None
        await after.ours.lease._prepare_bucket()
        await fence.open(after.ours.lease._bucket, _unheard, lambda: True)
        first.freeze()
        try:
            reason = await fence._open_still(name, time.monotonic() + 1.0)
        finally:
            first.thaw()
        assert f"{first.name} does not say whether its connection is gone" in reason
        assert "is still open" in await fence._open_still(name, time.monotonic())
        await before.ours.lease.release()
        assert await fence._open_still(name, time.monotonic() + SECONDS) == ""
        await fence.end()


async def _unheard(_links: tuple[LinkName, ...]) -> None:
    """Nobody writes it down."""


async def test_nothing_is_changed_before_the_fence_is_passed_nor_when_the_term_is_over(server: Server, wire: Wire) -> None:
    await wire.expect("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
    async with one(server.url) as only:
        with pytest.raises(NotSent):
            await only.ours.writer.write(CHANGED)
        fence = only.ours.lease._fence
        assert fence is not None
        await fence.open(only.ours.lease._bucket, _unheard, lambda: True)
        with pytest.raises(NotSent):
            await only.ours.writer.write(CHANGED)
        async with only.ours.lease.take():
            assert (await only.ours.writer.write(CHANGED))["config"]["max_msgs"] == 5
        with pytest.raises(NotSent):
            await only.ours.writer.write(CHANGED)


async def test_a_change_without_an_answer_ends_its_connection_and_stays_named_until_it_is_settled(
    server: Server, wire: Wire
) -> None:
    await wire.expect("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
    async with Proxy(server.port) as proxy, one(proxy.url, timeout=1.0) as only, only.ours.lease.take() as lease:
        (before,) = lease.holder.links

        def swallowed(request: Request) -> Verdict:
            return Verdict.MUTE if request.subject.endswith("UPDATE.S") else Verdict.PASS

        proxy.rule = swallowed
        with pytest.raises(NoAnswer):
            await only.ours.writer.write(CHANGED)
        proxy.rule = lambda _: Verdict.PASS

        async def both_named() -> bool:
            state = await lease.show()
            return state is not None and len(state.holder.links) == 2

        await until(both_named)
        now, silent = lease.holder.links
        assert silent == before
        assert now.cid != before.cid
        assert await lease.settled()
        assert lease._fence is not None
        assert lease._fence.term.names == (now,)
        again = replace(CHANGED, config=CHANGED.config.replace(b"5", b"6"))
        assert (await only.ours.writer.write(again))["config"]["max_msgs"] == 6
    assert now in (recorded((await wire.stream_info("KV_reconciler-prod"))["config"]) or ())


async def test_who_does_not_know_what_became_of_a_change_does_not_end_cleanly(server: Server) -> None:
    async with Proxy(server.port) as proxy, one(proxy.url, timeout=1.0) as first, one(server.url) as second:
        async with first.ours.lease.take():
            await first.ours.writer.write(MADE)
            proxy.rule = lambda request: Verdict.MUTE if request.subject.endswith("UPDATE.S") else Verdict.PASS
            with pytest.raises(NoAnswer):
                await first.ours.writer.write(CHANGED)
        await second.ours.lease.acquire()
        assert second.said == ["waiting", "proven"]
        await second.ours.lease.release()


async def test_a_note_without_an_answer_is_waited_for_like_a_change(server: Server) -> None:
    """It could overwrite that of the next term."""
    async with Proxy(server.port) as proxy, one(proxy.url, timeout=1.0) as first, one(server.url) as second:
        async with first.ours.lease.take() as lease:
            assert lease._fence is not None
            names = lease._fence.term.names
            proxy.rule = lambda request: Verdict.MUTE if request.subject == NOTED else Verdict.PASS
            assert "did not take a write" in await lease._fence._record(lease._bucket, names, within=0.5)
            assert lease._fence.term.names == names
        await second.ours.lease.acquire()
        assert second.said == ["waiting", "proven"]
        await second.ours.lease.release()


async def test_a_server_that_starts_again_gets_another_connection_for_changes(server: Server, wire: Wire) -> None:
    await wire.expect("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
    async with one(server.url) as only, only.ours.lease.take() as lease:
        (before,) = lease.holder.links
        server.restart()
        await eventually(lambda: lease.holder.links != (before,))
        (now,) = lease.holder.links
        assert now.server_id != before.server_id
        assert before.alone
        assert now.alone

        async def changed() -> bool:
            try:
                await only.ours.writer.write(CHANGED)
            except NotSent:
                return False
            return True

        await until(changed)


NAMED = '[{"server": "s", "server_id": "i", "cid": 1, "account": "", "alone": false}]'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "{}",
        "[]",
        "[1]",
        '[{"server": "s"}]',
        '[{"server": "s", "server_id": "i", "cid": true, "account": "", "alone": false}]',
    ],
)
def test_what_somebody_else_has_written_there_names_no_connection(text: str) -> None:
    assert parse_links(text) is None
    assert recorded({"metadata": {"reconciler.links": text}}) is None
    assert recorded({"metadata": None}) is None
    assert parse_links(NAMED) == (LinkName("s", "i", 1),)


async def test_a_domain_that_takes_no_write_is_unproven_and_named(tmp_path: Path) -> None:
    async with hub_and_leaves(tmp_path, "leaf") as hub:
        await short_lease(hub.wire, TTL, "prod")
        said = []
        for cut in (False, True):
            async with one(hub.server.url) as before, one(hub.server.url, timeout=1.0, domains=("leaf",)) as after:
                await before.ours.lease.acquire(SECONDS)
                before.die()
                if cut:
                    hub.leaves["leaf"].link.cut()
                await after.ours.lease.acquire(SECONDS)
                said.append(after.news[-1])
                await after.ours.lease.release()
    assert [news.state.value for news in said] == ["proven", "unproven"]
    assert "the domain leaf did not take a write" in said[1].why
