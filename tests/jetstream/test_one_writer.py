"""Whatever becomes of the entry of the lease, no two processes believe at the same moment that it is theirs."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from reconciler.cli.pen import pen
from reconciler.engine.daemon.election import stand
from reconciler.errors import LeaseHeld
from reconciler.jetstream.api import JetStreamApi
from reconciler.jetstream.clock import SystemClock
from reconciler.jetstream.domains import DomainApis
from reconciler.jetstream.leading.fence import FenceNews
from reconciler.jetstream.leading.holder import Holder
from reconciler.jetstream.leading.kv import BucketState
from reconciler.jetstream.leading.lease import KvLease, bucket_name
from reconciler.jetstream.transport.connection import Connection
from reconciler.jetstream.transport.settings import ConnectionSettings
from reconciler.model.identity import Key
from tests.support.account.connecting import Connect
from tests.support.account.wire import Wire, eventually
from tests.support.clock.until import until
from tests.support.cluster.servers import Cluster
from tests.support.daemon.leadership import short_lease
from tests.support.server.binaries import DEFAULT_VERSIONS
from tests.support.server.process import Server

TTL = 4.0
LONG = 60.0
"""A TTL that no test outlasts: what ends sooner did not end by it."""
SOON = LONG / 4
_AFTER = 1.5
"""Seconds to go on looking when there is somebody again."""


async def delete_entry(wire: Wire, owner: str) -> None:
    """As `nats kv del` does it, and as processes released that were of versions before."""
    await _put(wire, owner, {"KV-Operation": "DEL"})


async def purge_entry(wire: Wire, owner: str) -> None:
    """As `nats kv purge` does it."""
    await _put(wire, owner, {"KV-Operation": "PURGE", "Nats-Rollup": "sub"})


async def purge_bucket(wire: Wire, owner: str) -> None:
    await wire.expect(f"STREAM.PURGE.KV_reconciler-{owner}")


async def delete_bucket(wire: Wire, owner: str) -> None:
    await wire.expect(f"STREAM.DELETE.KV_reconciler-{owner}")


async def lower_max_age(wire: Wire, owner: str) -> None:
    name = f"KV_reconciler-{owner}"
    config = (await wire.stream_info(name))["config"]
    await wire.expect(f"STREAM.UPDATE.{name}", {**config, "max_age": 500_000_000, "duplicate_window": 500_000_000})


async def _put(wire: Wire, owner: str, headers: dict[str, str]) -> None:
    answer = await wire.client.request(f"$KV.reconciler-{owner}.writer", b"", headers=headers, timeout=5)
    assert "error" not in json.loads(answer.data)


Removal = Callable[[Wire, str], Awaitable[None]]
REMOVALS: dict[str, Removal] = {
    "delete-entry": delete_entry,
    "purge-entry": purge_entry,
    "purge-bucket": purge_bucket,
    "delete-bucket": delete_bucket,
    "lower-max-age": lower_max_age,
}


@dataclass
class Two:
    """Two processes of one owner that want to lead, as far as the lease knows, and who of them believed what and when."""

    first: KvLease
    second: KvLease
    both: float = 0.0
    """Seconds in which both believed that it was theirs."""
    changes: list[tuple[bool, bool]] = field(default_factory=list)

    @property
    def held(self) -> tuple[bool, bool]:
        """By which of them."""
        return self.first.held(), self.second.held()

    async def watch(self) -> None:
        """Looks all the time."""
        before, at = self.held, time.monotonic()
        while True:
            await asyncio.sleep(0.003)
            found, now = self.held, time.monotonic()
            self.both += now - at if before == found == (True, True) else 0.0
            if found != before:
                self.changes.append(found)
            before, at = found, now


@asynccontextmanager
async def two(first: str, second: str, owner: str, ttl: float = TTL) -> AsyncIterator[Two]:
    """The first leads when this yields, and has just renewed; the second has seen it."""
    async with AsyncExitStack() as stack:

        async def lease_at(url: str) -> KvLease:
            connection = await stack.enter_async_context(await Connection.open(ConnectionSettings(servers=(url,), timeout=5.0)))
            return KvLease(JetStreamApi(connection), owner, Holder(host=url), ttl=ttl)

        both = Two(await lease_at(first), await lease_at(second))
        for lease in (both.first, both.second):
            standing = asyncio.create_task(stand(lease, SystemClock(), lambda **_: None))
            stack.push_async_callback(_ended, standing)
            await eventually(both.first.held)
        state = await both.second.show()
        assert state is not None

        async def renewed() -> bool:
            now = await both.second.show()
            return now is not None and now.lease_revision != state.lease_revision

        await until(renewed)
        stack.push_async_callback(_ended, asyncio.create_task(both.watch()))
        yield both


async def _ended(task: asyncio.Task[None]) -> None:
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _somebody_again(both: Two) -> None:
    """Waits until the first has stopped, and somebody holds it again, for a while longer."""
    await eventually(lambda: any(not first for first, _ in both.changes))
    await eventually(lambda: True in both.held)
    await asyncio.sleep(_AFTER)


@pytest.mark.parametrize("removal", REMOVALS)
async def test_who_finds_the_entry_removed_waits_until_its_holder_has_stopped(any_server: Server, removal: str) -> None:
    async with two(any_server.url, any_server.url, "prod") as both, await Wire.connect(any_server.url) as wire:
        await REMOVALS[removal](wire, "prod")
        await _somebody_again(both)
        assert (both.both, both.changes[0]) == (0.0, (False, False)), both.changes


@pytest.mark.slow
@pytest.mark.parametrize("version", DEFAULT_VERSIONS)
async def test_nor_do_they_overlap_where_the_holder_cannot_know_that_it_was_removed(tmp_path: Path, version: str) -> None:
    """Its server is frozen, and in the rest of the cluster the entry goes."""
    with Cluster(tmp_path, version=version) as cluster:
        stopped, *rest = cluster.servers
        async with AsyncExitStack() as stack:
            wire = await stack.enter_async_context(await Wire.connect(rest[1].url))
            pairs = {}
            for name in REMOVALS:
                pairs[name] = await stack.enter_async_context(two(stopped.url, rest[0].url, name, 10.0))

            async def removed(name: str) -> None:
                async def gone() -> bool:
                    try:
                        await REMOVALS[name](wire, name)
                    except (AssertionError, TimeoutError):
                        return False  # whoever leads there was elected not a moment ago
                    return True

                await until(gone)

            stopped.freeze()
            try:
                await asyncio.gather(*(removed(name) for name in REMOVALS))
                await asyncio.gather(*(_somebody_again(both) for both in pairs.values()))
            finally:
                stopped.thaw()
            await asyncio.sleep(_AFTER)
            assert {name: both.both for name, both in pairs.items()} == dict.fromkeys(REMOVALS, 0.0)
            assert all(both.changes[0] == (False, False) for both in pairs.values())


@pytest.mark.parametrize("removal", REMOVALS)
async def test_who_starts_anew_waits_as_well(server: Server, connect: Connect, removal: str) -> None:
    """It has never seen the holder, and finds what the server remembers, or a mark of the owner."""
    async with await Wire.connect(server.url) as wire:
        if removal == "delete-bucket":  # of which a server remembers nothing
            metadata = {"reconciler.owner": "prod"}
            await wire.expect("STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "metadata": metadata})
        before = KvLease(JetStreamApi(await connect(server.url)), "prod")
        await before.acquire()
        await before._stop_renewing()  # it stands still, and believes
        until_when = before._deadline
        await REMOVALS[removal](wire, "prod")
        apis = DomainApis(await connect(server.url))
        after = pen(apis, "prod", Holder(), patience=0.0).lease

        async def gone() -> bool:
            return await after.show() is None

        if removal == "lower-max-age":
            await until(gone)
        with pytest.raises(LeaseHeld, match="is gone without a release: nobody may take it for"):
            await after.acquire(0)
        await after.acquire()
        assert before._clock.monotonic() > until_when
        await after.release()


async def test_where_nobody_ever_led_the_first_one_begins_at_once(server: Server, wire: Wire, connect: Connect) -> None:
    """In an account that is empty, and in one that others use; a bucket that somebody has just made is none that was used."""
    for owner in ("empty", "beside", "made"):
        if owner == "beside":
            metadata = {"reconciler.owner": "another"}
            await wire.expect("STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "metadata": metadata})
        if owner == "made":
            made = {"name": "KV_reconciler-made", "subjects": ["$KV.reconciler-made.>"], "max_age": int(LONG * 1e9)}
            await wire.expect("STREAM.CREATE.KV_reconciler-made", made)
        lease = pen(DomainApis(await connect(server.url)), owner, Holder()).lease
        await lease.acquire(0)
        await lease.release()


@pytest.mark.parametrize("declared", [True, False])
async def test_a_consumer_with_a_mark_is_looked_for_on_declared_streams(
    server: Server, wire: Wire, connect: Connect, declared: bool
) -> None:
    """A consumer on the stream of somebody else; elsewhere least grants let nobody look."""
    await wire.expect("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
    config = {"durable_name": "c", "ack_policy": "explicit", "metadata": {"reconciler.owner": "prod"}}
    await wire.expect("CONSUMER.CREATE.S.c", {"stream_name": "S", "action": "create", "config": config})
    streams = [Key("Stream", "S" if declared else "ANOTHER")]
    lease = pen(DomainApis(await connect(server.url)), "prod", Holder(), streams=lambda: streams).lease
    if not declared:
        await lease.acquire(0)
        await lease.release()
        return
    with pytest.raises(LeaseHeld, match="is gone without a release: nobody may take it for"):
        await lease.acquire(0)


async def test_who_may_not_look_for_traces_waits(tmp_path: Path, connect: Connect) -> None:
    """And then it goes on: nobody is known to have led."""
    denied = 'authorization { users: [{user: a, password: a, permissions: {publish: {deny: ["$JS.API.STREAM.LIST"]}}}] }'
    with Server(tmp_path / "s", config=denied) as server:
        url = server.url.replace("nats://", "nats://a:a@")
        said: list[FenceNews] = []
        lease = pen(DomainApis(await connect(url)), "prod", Holder(), tell=said.append).lease
        with pytest.raises(LeaseHeld, match=r"is gone without a release \(or was never held, which cannot be seen\)"):
            await lease.acquire(0)
        await lease.acquire()
        await lease.release()
        assert [news.state.value for news in said] == ["clean", ""]


async def test_a_holder_that_names_an_endless_time_is_not_waited_for_without_end(
    server: Server, wire: Wire, connect: Connect
) -> None:
    """Nobody believes for longer than the bucket, or we ourselves, would."""
    await short_lease(wire, TTL, "prod")
    before = KvLease(JetStreamApi(await connect(server.url)), "prod", ttl=TTL)
    after = KvLease(JetStreamApi(await connect(server.url)), "prod", ttl=TTL)
    await before.acquire()
    await before._stop_renewing()
    before.holder = replace(before.holder, ttl=1e12)
    await before._write(before._revision)
    with pytest.raises(LeaseHeld, match="is held by"):
        await after.acquire(0)
    await delete_entry(wire, "prod")
    with pytest.raises(LeaseHeld, match="nobody may take it for"):
        await after.acquire(0)
    began = time.monotonic()
    await after.acquire(SOON)
    assert time.monotonic() - began < SOON
    assert not before.held()
    await after.release()


async def test_a_holder_stops_as_soon_as_it_finds_that_its_bucket_was_deleted(
    server: Server, wire: Wire, connect: Connect
) -> None:
    lease = KvLease(JetStreamApi(await connect(server.url)), "prod", ttl=6.0)
    await lease.acquire()
    await delete_bucket(wire, "prod")
    assert await lease.until_lost() == "its bucket was deleted"
    assert not lease.held()


async def test_who_came_and_was_removed_between_the_look_and_the_write_is_waited_out(
    server: Server, wire: Wire, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = [KvLease(JetStreamApi(await connect(server.url)), "prod", ttl=LONG) for _ in range(2)]
    update = second._bucket.update

    async def late(key: str, value: bytes, revision: int, last: int | None) -> int | None:
        await first.acquire(0)
        await purge_bucket(wire, "prod")
        return await update(key, value, revision, last)

    monkeypatch.setattr(second._bucket, "update", late)
    with pytest.raises(LeaseHeld, match="is gone without a release"):
        await second.acquire(0)
    assert (first.held(), second.held()) == (True, False)
    await first.release()


async def test_a_release_is_what_its_holder_says(server: Server, wire: Wire, connect: Connect) -> None:
    """And what a version before has left where nothing was on its way says nothing: an upgrade waits for one TTL at most."""
    lease = KvLease(JetStreamApi(await connect(server.url)), "prod", ttl=LONG)
    after = KvLease(JetStreamApi(await connect(server.url)), "prod", ttl=LONG)
    await lease.acquire()
    await lease.release()
    began = time.monotonic()
    await after.acquire()
    assert time.monotonic() - began < SOON
    await delete_entry(wire, "prod")
    with pytest.raises(LeaseHeld, match="is gone without a release"):
        await lease.acquire(0)


async def test_who_ends_the_lease_of_a_holder_that_is_gone_waits_as_long_as_that_believed(
    server: Server, wire: Wire, connect: Connect
) -> None:
    """However long the bucket keeps its entry."""
    config = {"subjects": ["$KV.reconciler-prod.>"], "max_age": int(LONG * 1e9), "max_msgs_per_subject": 1}
    await wire.expect("STREAM.CREATE.KV_reconciler-prod", {"name": "KV_reconciler-prod", **config})
    lease = KvLease(JetStreamApi(await connect(server.url)), "prod", ttl=TTL)
    await lease.acquire()
    assert lease._deadline - lease._clock.monotonic() <= TTL
    await lease._stop_renewing()
    after = KvLease(JetStreamApi(await connect(server.url)), "prod", ttl=TTL)
    with pytest.raises(LeaseHeld, match="is held by"):
        await after.acquire(0)
    state = await after.show()
    assert state is not None
    assert await after.evict(state)
    began = time.monotonic()
    await after.acquire(LONG)
    assert TTL - 0.5 < time.monotonic() - began < SOON
    assert not lease.held()
    await after.release()


@pytest.mark.parametrize(
    ("last", "written", "still"),
    [
        pytest.param(7, "2026-01-01T00:00:57Z", 3.0, id="written"),
        pytest.param(0, "0001-01-01T00:00:00Z", 60.0, id="never-written"),
        pytest.param(7, "2025-01-01T00:00:00Z", 60.0, id="restored"),
    ],
)
def test_a_bucket_is_still_since_its_last_write_or_since_it_was_made(last: int, written: str, still: float) -> None:
    state = {"last_seq": last, "last_ts": written}
    info = {"config": {}, "created": "2026-01-01T00:00:00Z", "ts": "2026-01-01T00:01:00Z", "state": state}
    found = BucketState.of(info)
    assert (found.last, found.still) == (last, still)


def test_the_bucket_has_the_name_that_is_used_here() -> None:
    assert bucket_name("prod") == "reconciler-prod"
