"""The write lease: contenders, crashes, freezes, clean releases."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from reconciler.errors import LeaseHeld, LeaseLost, NoAnswer, NoResponders, Refused
from reconciler.jetstream.api import JetStreamApi
from reconciler.jetstream.domains import DomainApis
from reconciler.jetstream.leading.holder import Holder
from reconciler.jetstream.leading.lease import KvLease, bucket_name
from reconciler.jetstream.read.reader import JetStreamReader
from reconciler.jetstream.writer import JetStreamWriter
from reconciler.model.identity import Key
from reconciler.procedures.requests import CreateStream
from tests.support.account.connecting import Connect
from tests.support.account.wire import Wire, eventually
from tests.support.clock.fake import Still
from tests.support.clock.until import SECONDS, until
from tests.support.cluster.servers import Cluster
from tests.support.daemon.engine import Watcher, order_of, ports_on
from tests.support.server.process import Server
from tests.support.server.proxy import Proxy

TTL = 4.0
"""Where a test waits for its end: a machine that stands still for as long as this loses a lease, and rightly so."""
LONG = 60.0
"""A TTL that no test outlasts: what ends sooner did not end by it."""

HOLDER = """
import asyncio, sys
from reconciler.errors import LeaseLost
from reconciler.jetstream.api import JetStreamApi
from reconciler.jetstream.transport.connection import Connection
from reconciler.jetstream.leading.holder import Holder
from reconciler.jetstream.leading.lease import KvLease
from reconciler.jetstream.transport.settings import ConnectionSettings

async def main():
    connection = await Connection.open(ConnectionSettings(servers=(sys.argv[1],)))
    lease = KvLease(JetStreamApi(connection), "prod", Holder(source="elsewhere"), ttl=float(sys.argv[2]))
    await lease.acquire()
    print("held", flush=True)
    while lease.held():
        await asyncio.sleep(0.01)
    print("lost", flush=True)

asyncio.run(main())
"""


@asynccontextmanager
async def another_process(url: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that holds the lease when this yields."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLDER, url, str(TTL), stdout=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    assert process.stdout is not None
    try:
        assert await asyncio.wait_for(process.stdout.readline(), SECONDS) == b"held\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def lease_of(api: JetStreamApi, ttl: float = TTL, **holder: str) -> KvLease:
    return KvLease(api, "prod", Holder(**holder), ttl=ttl)  # type: ignore[arg-type]  # only text fields are given


async def seconds_to(acquire: Callable[[], Awaitable[None]]) -> float:
    started = time.monotonic()
    await acquire()
    return time.monotonic() - started


async def test_one_of_two_contenders_gets_it_and_the_other_learns_who(api: JetStreamApi) -> None:
    first, second = lease_of(api, LONG, host="one", source="/manifests"), lease_of(api, LONG, host="two")
    results = await asyncio.gather(first.acquire(0), second.acquire(0), return_exceptions=True)
    assert [type(result) for result in results if result is not None] == [LeaseHeld]
    winner, loser = (first, second) if first.held() else (second, first)
    assert winner.held()
    assert not loser.held()
    with pytest.raises(LeaseHeld, match=rf"held by {winner.holder.host} \(pid {os.getpid()}.*\) since .*, last renewed 20"):
        await loser.acquire(0)
    with pytest.raises(LeaseLost):
        loser.check()
    winner.check()
    await winner.release()


async def test_it_is_renewed_beyond_its_ttl(api: JetStreamApi) -> None:
    async with lease_of(api).take() as held:
        with pytest.raises(LeaseHeld):
            await lease_of(api).acquire(TTL * 1.5)
        assert held.held()


async def test_a_released_lease_is_taken_at_once_again_and_again(api: JetStreamApi) -> None:
    for _ in range(3):
        lease = lease_of(api, LONG)
        assert await seconds_to(lease.acquire) < LONG / 4
        await lease.release()
        assert not lease.held()


async def test_waiting_ends_with_the_release(api: JetStreamApi) -> None:
    first, second = lease_of(api, LONG), lease_of(api, LONG)
    await first.acquire()
    waiting = asyncio.ensure_future(second.acquire())
    await asyncio.sleep(0.2)
    assert not waiting.done()
    await first.release()
    assert await seconds_to(lambda: waiting) < LONG / 4
    await second.release()


async def test_release_does_not_touch_a_successor(api: JetStreamApi) -> None:
    clock = Still()
    late = KvLease(api, "prod", Holder(host="late"), ttl=TTL, clock=clock)
    await late.acquire()  # and its clock stands still: it never renews
    successor = lease_of(api, host="successor")
    await successor.acquire()
    await late.release()
    state = await successor.show()
    assert state is not None
    assert state.holder.host == "successor"
    assert successor.held()
    await successor.release()


async def test_the_holder_stops_by_its_own_clock_before_the_server_forgets_it(api: JetStreamApi) -> None:
    clock = Still()
    lease = KvLease(api, "prod", ttl=10.0, clock=clock)
    await lease.acquire()
    clock.now += 7.9
    lease.check()
    clock.now += 0.2
    with pytest.raises(LeaseLost):
        lease.check()
    await lease.release()


async def test_a_lease_is_counted_from_before_it_was_asked_for(api: JetStreamApi, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Still()
    lease = KvLease(api, "prod", ttl=10.0, clock=clock)
    update = lease._bucket.update

    async def late(key: str, value: bytes, revision: int, last: int | None) -> int | None:
        written = await update(key, value, revision, last)
        clock.now += 3.0
        return written

    monkeypatch.setattr(lease._bucket, "update", late)
    await lease.acquire()
    clock.now += 4.9
    lease.check()
    clock.now += 0.2
    with pytest.raises(LeaseLost):
        lease.check()
    await lease.release()


async def test_a_killed_holder_is_followed_when_the_server_has_forgotten_it(api: JetStreamApi, server: Server) -> None:
    async with another_process(server.url) as process:
        process.kill()
        successor = lease_of(api)
        await successor.acquire(SECONDS)
        await successor.release()


async def test_a_frozen_holder_is_followed_and_knows_when_it_wakes(api: JetStreamApi, server: Server) -> None:
    async with another_process(server.url) as process:
        process.send_signal(signal.SIGSTOP)
        async with lease_of(api).take(SECONDS) as successor:
            process.send_signal(signal.SIGCONT)
            assert process.stdout is not None
            assert await asyncio.wait_for(process.stdout.readline(), SECONDS) == b"lost\n"
            assert successor.held()


async def test_a_holder_that_is_cut_off_stops_in_time(connect: Connect, server: Server) -> None:
    lease = lease_of(JetStreamApi(await connect(server.url)))
    await lease.acquire()
    server.freeze()
    frozen = time.monotonic()
    asked = time.monotonic()
    while lease.held():
        assert asked < frozen + TTL
        await asyncio.sleep(0.01)
        asked = time.monotonic()  # before it answers: whatever time passes in between proves nothing against it
    server.thaw()


async def test_a_short_outage_does_not_cost_the_lease(connect: Connect, server: Server) -> None:
    connection = await connect(server.url)
    lease = KvLease(JetStreamApi(connection), "prod", ttl=20.0)
    await lease.acquire()
    server.restart()
    back = asyncio.Event()
    connection.on_state_change(lambda connected: back.set() if connected else None)
    await back.wait()
    before = await lease.show()
    while await lease.show() == before:
        lease.check()
        await asyncio.sleep(0.05)
    lease.check()
    await lease.release()


async def test_a_renewal_that_fails_is_tried_again_as_long_as_the_lease_lasts(connect: Connect, server: Server) -> None:
    lease = KvLease(JetStreamApi(await connect(server.url, timeout=1.0)), "prod", ttl=6.0)
    await lease.acquire()
    before = await lease.show()
    with capture_logs() as logs:
        server.stop()
        await eventually(lambda: any(one["event"] == "lease.renewal_failed" for one in logs))
        server.start()
        await lease._connection.wait_connected()
        while await lease.show() == before:
            lease.check()
            await asyncio.sleep(0.05)
    assert not [one for one in logs if one["event"] == "lease.lost"]
    lease.check()
    await lease.release()


async def test_nothing_comes_between_the_check_of_the_lease_and_the_way_out_of_the_process(
    api: JetStreamApi, server: Server
) -> None:
    """Else a process that freezes there would send, when it wakes, all that it had ready."""
    async with lease_of(api, LONG).take() as lease:
        apis = DomainApis(api.connection)
        ports = ports_on(JetStreamReader(apis), JetStreamWriter(apis), lease, Watcher())
        before = server.monitor("varz")["in_msgs"]
        sending = [ports.writes.send(CreateStream(Key("Stream", name), b"{}"), order_of(ports)) for name in ("A", "B", "C")]
        for number, one in enumerate(sending, 1):
            one.send(None)  # as far as it goes by itself: the event loop does not run meanwhile
            server.wait_for(lambda: server.monitor("varz")["in_msgs"] == before + number)  # noqa: B023 - asked at once
        for one in sending:
            one.close()


async def test_a_holder_that_is_cut_off_takes_back_what_is_on_its_way(server: Server, connect: Connect) -> None:
    async with Proxy(server.port, window=1024) as proxy, await Wire.connect(server.url) as wire:
        api = JetStreamApi(await connect(proxy.url, timeout=30.0))
        lease = lease_of(api, 2.0)  # shorter than it takes the connection to notice by itself, and to take everything back
        await lease.acquire()
        proxy.stall()
        long = {"long": "x" * 100_000}
        names = [f"S{number}" for number in range(10)]
        asked = [asyncio.create_task(api.create_stream(name, {"name": name, "metadata": long})) for name in names]
        await lease.until_lost()
        proxy.mend()
        assert {type(one) for one in await asyncio.gather(*asked, return_exceptions=True)} == {NoAnswer}
        await api.connection.wait_connected()
        await lease.acquire()
        assert (await wire.expect("STREAM.NAMES"))["streams"] == ["KV_reconciler-prod"]
        await lease.release()


async def test_a_lease_that_somebody_ended_is_not_used_before_its_holder_has_noticed(api: JetStreamApi) -> None:
    holder, successor = lease_of(api, host="alive"), lease_of(api)
    await holder.acquire()
    state = await successor.show()
    assert state is not None
    assert await successor.evict(state)
    await successor.acquire()
    assert successor.held()
    assert not holder.held()
    assert await holder.until_lost() == "taken by another process, or removed"
    await successor.release()


async def test_a_renewal_never_takes_the_lease_back_from_a_successor(api: JetStreamApi) -> None:
    clock = Still()
    holder = KvLease(api, "prod", Holder(host="late"), ttl=TTL, clock=clock)
    await holder.acquire()
    successor = lease_of(api, host="successor")
    state = await successor.show()
    assert state is not None
    assert await successor.evict(state)
    await successor.acquire()
    clock.now += TTL / 2  # now it renews, once
    assert await asyncio.wait_for(holder.until_lost(), 5) == "taken by another process, or removed"
    assert not holder.held(), "however long it would have been its own"
    state = await successor.show()
    assert state is not None
    assert state.holder.host == "successor"
    assert successor.held()
    await successor.release()


async def test_it_says_since_when_it_is_held(api: JetStreamApi) -> None:
    lease = lease_of(api, LONG, at="long ago")
    await lease.acquire()
    state = await lease.show()
    assert state is not None
    assert state.holder.at.startswith("20")
    await lease.release()


async def test_the_same_process_takes_its_own_lease_again(api: JetStreamApi) -> None:
    lease = lease_of(api, LONG)
    await lease.acquire()
    assert await seconds_to(lease.acquire) < LONG / 4
    await lease.release()


async def test_show_and_evict(api: JetStreamApi) -> None:
    lease = lease_of(api, LONG, host="gone", source="git", revision="abc")
    assert await lease.show() is None
    await lease.acquire()
    state = await lease_of(api).show()
    assert state is not None
    assert (state.holder, state.holder.revision) == (lease.holder, "abc")
    renewed_meanwhile = type(state)(state.holder, state.lease_revision + 1, state.renewed)
    assert not await lease.evict(renewed_meanwhile)
    assert await lease.evict(state)
    assert await lease.show() is None
    await lease.release()


async def test_a_bucket_without_ttl_is_refused(api: JetStreamApi) -> None:
    await api.create_stream("KV_reconciler-prod", {"name": "KV_reconciler-prod", "subjects": ["$KV.reconciler-prod.>"]})
    with pytest.raises(Refused, match="has no TTL"):
        await lease_of(api).acquire()


async def test_works_on_every_version(any_server: Server, connect: Connect) -> None:
    async with lease_of(JetStreamApi(await connect(any_server.url)), LONG).take() as lease:
        lease.check()


async def test_a_cluster_keeps_it_on_three_peers(cluster: Cluster, connect: Connect) -> None:
    api = JetStreamApi(await connect(*cluster.url.split(",")))
    lease = KvLease(api, "clustered", ttl=TTL)

    async def taken() -> bool:
        """A bucket that was made just now may have no leader yet; who wants the lease asks again."""
        with suppress(NoResponders):
            await lease.acquire()
        return lease.held()

    await until(taken)
    try:
        config = (await api.stream_info("KV_reconciler-clustered"))["config"]
        assert (config["num_replicas"], config["storage"], config["max_msgs_per_subject"]) == (3, "file", 1)
        assert config["max_age"] == TTL * 1e9
    finally:
        await lease.release()


def test_owners_never_share_a_bucket() -> None:
    owners = ["default/prod", "default_2Fprod", "default-prod", "default.prod", "Default/prod", "prüf", "a b", "a", ""]
    names = [bucket_name(owner) for owner in owners]
    assert len(set(names)) == len(names)
    assert names[0] == "reconciler-default_2Fprod"
    assert bucket_name("prod-1") == "reconciler-prod-1"
    assert all(name.isascii() and name.replace("-", "").replace("_", "").isalnum() for name in names)
