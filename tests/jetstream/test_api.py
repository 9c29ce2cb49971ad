"""Raw API calls, errors, paging and the key-value bucket against real servers."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from reconciler.errors import ApiError, NoResponders
from reconciler.jetstream.api import JetStreamApi
from reconciler.jetstream.leading.kv import KeyValueBucket
from reconciler.jetstream.read.paging import ByteBudget, pages, read_head
from reconciler.jetstream.read.reader import JetStreamReader
from reconciler.model.identity import Key
from reconciler.procedures.requests import Absent, ConsumerInfo, NextMessage, StreamInfo
from tests.support.account.connecting import Connect
from tests.support.server.process import Server

pytestmark = pytest.mark.differs


async def make_stream(api: JetStreamApi, name: str = "S") -> dict[str, Any]:
    return await api.create_stream(name, {"name": name, "subjects": [f"{name.lower()}.>"], "storage": "memory"})


async def test_an_error_names_request_and_codes(api: JetStreamApi) -> None:
    with pytest.raises(ApiError, match=r"STREAM\.INFO\.NOPE: stream not found \(404/10059\)") as caught:
        await api.stream_info("NOPE")
    assert caught.value.absent


async def test_only_the_servers_own_not_found_says_that_something_is_not_there(api: JetStreamApi) -> None:
    await make_stream(api)
    reader, stream = JetStreamReader(lambda _: api), Key("Stream", "S")
    for read in (StreamInfo(Key("Stream", "NOPE")), ConsumerInfo(Key("Consumer", "c", "S")), NextMessage(stream, "s.a", 1)):
        assert await reader.read(read) == Absent()
    with pytest.raises(ApiError) as refused:
        await reader.read(NextMessage(stream, "", 0))  # no request at all
    assert (refused.value.absent, refused.value.transient) == (False, False)


async def test_create_and_update_say_which_they_mean(any_server: Server, connect: Connect) -> None:
    api = JetStreamApi(await connect(any_server.url))
    await make_stream(api)
    config = {"name": "c", "durable_name": "c", "ack_policy": "explicit", "filter_subjects": ["s.a", "s.b"]}
    with pytest.raises(ApiError) as missing:
        await api.update_consumer("S", "c", config)
    assert missing.value.err_code == 10149
    created = await api.create_consumer("S", "c", config)
    assert created["config"]["filter_subjects"] == ["s.a", "s.b"]
    with pytest.raises(ApiError) as differs:
        await api.create_consumer("S", "c", {**config, "description": "other"})
    assert differs.value.err_code == 10148
    updated = await api.update_consumer("S", "c", {**config, "description": "other"})
    assert updated["config"]["description"] == "other"
    assert (await api.consumer_info("S", "c"))["name"] == "c"
    await api.delete_consumer("S", "c")
    assert api.requests == {"STREAM.CREATE": 1, "CONSUMER.CREATE": 4, "CONSUMER.INFO": 1, "CONSUMER.DELETE": 1}


async def test_a_level_the_server_does_not_have_is_refused(api: JetStreamApi) -> None:
    with pytest.raises(ApiError) as caught:
        await api.create_stream("S", {"name": "S"}, level=99)
    assert (caught.value.code, caught.value.err_code) == (412, 10185)


async def test_pause_resume_and_reset(api: JetStreamApi) -> None:
    await make_stream(api)
    await api.create_consumer("S", "c", {"name": "c", "durable_name": "c", "ack_policy": "explicit"})
    assert (await api.pause_consumer("S", "c", "2099-01-01T00:00:00Z"))["paused"] is True
    assert (await api.pause_consumer("S", "c", None))["paused"] is False
    assert (await api.reset_consumer("S", "c", 5))["reset_seq"] == 5


async def test_next_message_and_delete(api: JetStreamApi) -> None:
    await make_stream(api)
    for subject in ("s.a", "s.b", "s.a"):
        await api.connection.request(subject, b"x")
    found = await api.next_message("S", "s.a", 2)
    assert found is not None
    assert found[0] == 3
    assert await api.next_message("S", "s.b", 3) is None
    await api.delete_message("S", 3)
    assert await api.next_message("S", "s.a", 2) is None
    assert (await api.stream_info("S", ">"))["state"]["subjects"] == {"s.a": 1, "s.b": 1}
    await api.purge_stream("S", {"filter": "s.b"})
    assert (await api.stream_info("S"))["state"]["messages"] == 1
    await api.delete_stream("S")
    with pytest.raises(ApiError):
        await api.delete_stream("S")


async def test_another_domain_has_its_own_prefix(api: JetStreamApi) -> None:
    with pytest.raises(NoResponders):
        await JetStreamApi(api.connection, domain="elsewhere").account_info()


async def test_all_pages_arrive_in_order_and_complete(api: JetStreamApi) -> None:
    await make_stream(api)
    names = [f"c{number:04}" for number in range(600)]
    await asyncio.gather(
        *(api.create_consumer("S", name, {"name": name, "durable_name": name, "mem_storage": True}) for name in names)
    )
    raw = [page async for page in api.consumer_pages("S")]
    assert [len(json.loads(page)["consumers"]) for page in raw] == [256, 256, 88]
    assert [consumer["name"] for page in raw for consumer in json.loads(page)["consumers"]] == names
    streams = [json.loads(page) async for page in api.stream_pages()]
    assert [stream["config"]["name"] for page in streams for stream in page["streams"]] == ["S"]
    with pytest.raises(ApiError):
        [page async for page in api.consumer_pages("NOPE")]


async def test_pages_bigger_than_anything_a_client_may_send(server: Server, connect: Connect) -> None:
    """120 concurrent lists of 1.1 MB each: unbounded, the server cuts the connection when we are slow to read."""
    api = JetStreamApi(await connect(server.url, timeout=30.0))  # consumers this large take a busy server seconds to make
    await make_stream(api)
    filters = [f"s.{number}.{'x' * 30}" for number in range(500)]
    gate = asyncio.Semaphore(16)

    async def create(number: int) -> None:
        async with gate:
            name = f"c{number}"
            config = {"name": name, "durable_name": name, "filter_subjects": filters, "mem_storage": True}
            await api.create_consumer("S", name, config)

    async def listed() -> list[int]:
        return [len(page) async for page in api.consumer_pages("S", count=50)]

    await asyncio.gather(*(create(number) for number in range(50)))
    lists = asyncio.gather(*(listed() for _ in range(120)))
    await asyncio.sleep(0.01)
    time.sleep(1.0)  # noqa: ASYNC251 - a pass that is busy parsing does not read either
    sizes = await lists
    assert {len(size) for size in sizes} == {1}
    assert min(min(size) for size in sizes) > 900_000
    assert api.connection.reconnects == 0
    assert api.budget.in_use == 0


async def test_the_budget_bounds_what_is_in_flight() -> None:
    budget = ByteBudget(100)
    peak = 0

    async def read(size: int) -> None:
        nonlocal peak
        async with budget.reserve(size):
            peak = max(peak, budget.in_use)
            await asyncio.sleep(0)

    await asyncio.gather(*(read(size) for size in [30, 60, 90, 1000, 10] * 5))
    assert 60 < peak <= 100
    assert budget.in_use == 0


async def test_a_cancelled_wait_gives_its_place_away() -> None:
    budget = ByteBudget(100)
    async with budget.reserve(100):
        waiting = [asyncio.ensure_future(budget.reserve(100).__aenter__()) for _ in range(2)]
        await asyncio.sleep(0)
        waiting[0].cancel()
    await waiting[1]
    assert budget.in_use == 100


async def test_a_wait_that_is_given_up_in_the_moment_in_which_there_is_room_takes_none() -> None:
    budget = ByteBudget(100)
    async with budget.reserve(100):
        waiting = asyncio.ensure_future(budget.reserve(100).__aenter__())
        await asyncio.sleep(0)
        waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert budget.in_use == 0


async def test_a_list_that_grows_meanwhile_is_followed() -> None:
    total = 3

    async def fetch(offset: int) -> bytes:
        nonlocal total
        total = 9 if offset == 4 else total
        return json.dumps({"total": total, "offset": offset, "limit": 2}).encode()

    offsets = [read_head(page).offset async for page in pages(fetch, ByteBudget())]
    assert offsets == [0, 2]
    total = 5
    offsets = [read_head(page).offset async for page in pages(fetch, ByteBudget())]
    assert offsets == [0, 2, 4, 6, 8]


async def test_a_total_that_cannot_be_asks_for_so_many_pages_at_a_time_and_no_more() -> None:
    asked: list[int] = []

    async def fetch(offset: int) -> bytes:
        asked.append(offset)
        return b'{"total":1000000000000,"offset":%d,"limit":1}' % offset

    async with asyncio.timeout(10):
        async for page in pages(fetch, ByteBudget()):
            if read_head(page).offset == 3:
                break
    assert len(asked) < 2000


async def test_every_write_of_a_key_is_fenced(any_server: Server, connect: Connect) -> None:
    api = JetStreamApi(await connect(any_server.url))
    bucket = KeyValueBucket(api, "b")
    assert await bucket.look() is None
    await bucket.create_bucket(60.0)
    assert await bucket.get("k") is None
    first = await bucket.create("k", b"one")
    assert first is not None
    assert await bucket.create("k", b"two") is None
    second = await bucket.update("k", b"two", first)
    assert second is not None
    assert await bucket.update("k", b"three", first) is None
    assert not await bucket.delete("k", first)
    entry = await bucket.get("k")
    assert entry is not None
    assert (entry.value, entry.revision, entry.deleted) == (b"two", second, False)
    assert await bucket.delete("k", second)
    tombstone = await bucket.get("k")
    assert tombstone is not None
    assert tombstone.deleted
    assert await bucket.create("k", b"four") is None
    assert await bucket.update("k", b"four", tombstone.revision) is not None
