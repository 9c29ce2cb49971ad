"""Every procedure on real servers, crashed around every write: ids compared, nothing skipped, nothing lost, nothing left over."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import orjson
import pytest
import pytest_asyncio
from nats.aio.msg import Msg

from reconciler.model.identity import Key
from reconciler.model.marker import RESIDUE, Marker
from reconciler.procedures.filter_add import FilterAdd
from reconciler.procedures.machine import Abort, Done
from reconciler.procedures.move_subject import MoveSubject, StreamTarget
from reconciler.procedures.recreate_consumer import RecreateConsumer
from reconciler.procedures.requests import ResetConsumer
from reconciler.procedures.restore_consumer import RestoreConsumer
from tests.support.account.shop import Shop, names, shop_at
from tests.support.account.wire import Wire, eventually
from tests.support.cluster.servers import Cluster
from tests.support.server.process import Server
from tests.support.world.driver import NO_CRASH, Crash
from tests.support.world.wire_driver import run

pytestmark = pytest.mark.differs

RETENTIONS = ("limits", "interest", "workqueue")
CRASHES = [NO_CRASH, *(Crash(write=number, executed=executed) for number in range(8) for executed in (False, True))]
CHANGE = {"max_waiting": 7}


@pytest_asyncio.fixture
async def shop(any_server: Server) -> AsyncIterator[Shop]:
    """A shop on each server version under test; its retention is the test's to choose."""
    async with await Wire.connect(any_server.url) as wire:
        yield await shop_at(wire)


def fresh(shop: Shop, retention: str) -> Shop:
    """Another stream on the same server."""
    return Shop(shop.wire, shop.level, retention, shop.replicas)


async def passed_by(shop: Shop) -> None:
    """C has done 2 and 5, and an end-of-stream pull has moved its real cursor past everything."""
    await shop.open("a")
    await shop.publish("babbac")
    assert await shop.pull(3) == [2, 5]


async def test_control_a_plain_update_skips_what_is_stored(shop: Shop) -> None:
    await passed_by(shop)
    body = {"stream_name": shop.stream, "action": "update", "config": shop.config("a", "b", spec="new") | {"name": "c"}}
    await shop.wire.expect(f"CONSUMER.CREATE.{shop.stream}.c", body)
    assert await shop.pull() == []


@pytest.mark.parametrize("retention", RETENTIONS)
async def test_filter_add(shop: Shop, retention: str) -> None:
    for crash in CRASHES:
        here = fresh(shop, retention)
        await passed_by(here)
        result = await run(FilterAdd(here.target("a", "b")), here.wire, crash)
        if here.level < 4:
            assert isinstance(result.end, Abort)
            assert result.end.code == "position-loss"
            assert result.writes == []
            return
        assert isinstance(result.end, Done), crash
        await here.assert_tidy()
        await here.publish("b")
        expected = [1, 3, 4, 7] if retention == "workqueue" else [1, 2, 3, 4, 5, 7]
        assert await here.pull_everything(1, 3, 4, 7) == expected, crash
        assert (await run(FilterAdd(here.target("a", "b")), here.wire)).writes == []


@pytest.mark.parametrize("retention", RETENTIONS)
async def test_filter_add_with_nothing_stored(shop: Shop, retention: str) -> None:
    here = fresh(shop, retention)
    await here.open("a")
    await here.publish("aac")
    assert await here.pull() == [1, 2]
    assert isinstance((await run(FilterAdd(here.target("a", "b")), here.wire)).end, Done)
    await here.assert_tidy()
    await here.publish("b")
    assert await here.pull_everything(4) == [4]  # a pull right behind the publish may come before it


@pytest.mark.parametrize("kind", [FilterAdd, RecreateConsumer])
async def test_a_frozen_process_goes_on_after_its_pause_ran_out(shop: Shop, kind: type[FilterAdd | RecreateConsumer]) -> None:
    if shop.level < 4:
        pytest.skip("no RESET")
    for frozen_at in range(3, 13):
        here = fresh(shop, "limits")
        await passed_by(here)
        steps = itertools.count()

        async def freeze(here: Shop = here, steps: Iterator[int] = steps, frozen_at: int = frozen_at) -> None:
            if next(steps) == frozen_at and await here.exists():
                await here.outlast_pause()

        change = CHANGE if kind is RecreateConsumer else {}
        target = replace(here.target("a", "b", **change), deadline=15 * 10**7)
        assert isinstance((await run(kind(target), here.wire, between=freeze)).end, Done)
        await here.assert_tidy()
        await here.pull_everything(1, 3, 4)
        assert set(here.taken) == {1, 2, 3, 4, 5}, frozen_at


async def test_filter_add_waits_for_what_is_in_flight(shop: Shop) -> None:
    if shop.level < 4:
        pytest.skip("no RESET")
    await shop.open("a")
    await shop.publish("baa")
    await shop.pull(2, finish=False)
    steps = itertools.count()

    async def work() -> None:
        if next(steps) == 9:
            await shop.finish(2, 3)

    await run(FilterAdd(shop.target("a", "b", ack_wait=10**10)), shop.wire, between=work)
    await shop.assert_tidy()
    assert await shop.pull() == [1, 2, 3]


async def at_work(shop: Shop) -> None:
    """C has done 1 to 3; 4 and 5 wait."""
    await shop.open("a")
    await shop.publish("aaaaa")
    assert await shop.pull(3) == [1, 2, 3]


async def test_control_delete_and_create_replays(shop: Shop) -> None:
    await at_work(shop)
    await shop.wire.expect(f"CONSUMER.DELETE.{shop.stream}.c")
    await shop.create("c", shop.config("a", spec="new", **CHANGE))
    assert await shop.pull() == [1, 2, 3, 4, 5]


async def test_control_delete_and_create_loses_on_interest(shop: Shop) -> None:
    here = fresh(shop, "interest")
    await at_work(here)
    for name in ("other", "c"):
        await here.wire.expect(f"CONSUMER.DELETE.{here.stream}.{name}")
    await here.create("c", here.config("a", spec="new", **CHANGE))
    assert await here.pull() == []


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("retention", RETENTIONS)
async def test_recreate_consumer(shop: Shop, retention: str, alone: bool) -> None:
    for crash in CRASHES:
        here = fresh(shop, retention)
        await at_work(here)
        if alone and retention == "interest":
            await here.wire.expect(f"CONSUMER.DELETE.{here.stream}.other")
        machine = RecreateConsumer(here.target("a", **CHANGE))
        assert isinstance((await run(machine, here.wire, crash)).end, Done), crash
        await here.assert_tidy()
        info = await here.wire.consumer_info(here.stream, "c")
        assert info["config"]["max_waiting"] == 7
        assert (RESIDUE in info["config"]["metadata"]) == (here.level < 4 and retention != "workqueue")
        await here.publish("a")
        assert await here.pull_everything(4, 5, 6) == [4, 5, 6], crash
        assert (await run(machine, here.wire)).writes == []


async def test_recreate_keeps_what_another_consumer_still_needs(shop: Shop) -> None:
    here = fresh(shop, "interest")
    await at_work(here)
    await run(RecreateConsumer(here.target("a", **CHANGE)), here.wire)
    assert (await here.wire.stream_info(here.stream))["state"]["messages"] == 5


@pytest.mark.parametrize(
    "policy",
    [
        {"deliver_policy": "new"},
        {"deliver_policy": "by_start_sequence", "opt_start_seq": 2},
        {"deliver_policy": "by_start_time", "opt_start_time": "2024-01-01T00:00:00Z"},
        {"deliver_policy": "by_start_time", "opt_start_time": "2040-01-01T00:00:00Z"},
        {"deliver_policy": "last_per_subject"},
    ],
    ids=str,
)
async def test_recreate_with_any_declared_start(shop: Shop, policy: dict[str, Any]) -> None:
    await at_work(shop)
    machine = RecreateConsumer(shop.target("a", **policy))
    assert isinstance((await run(machine, shop.wire)).end, Done)
    await shop.assert_tidy()
    assert await shop.pull() == [4, 5]
    assert (await run(machine, shop.wire)).writes == []


async def test_recreate_while_a_worker_sits_on_a_message(shop: Shop) -> None:
    await shop.open("a")
    await shop.publish("aaa")
    await shop.pull(2, finish=False)
    await shop.finish(2)
    await run(RecreateConsumer(shop.target("a", **CHANGE)), shop.wire)
    assert await shop.pull() == [1, 2, 3]


async def test_recreate_a_push_consumer(shop: Shop) -> None:
    subject = f"to.{shop.stream}"
    push: dict[str, Any] = {"deliver_subject": subject, "ack_wait": 10**10}
    received: list[int] = []

    async def handle(message: Msg) -> None:
        received.append(int(message.reply.split(".")[5]))
        await message.respond(b"+ACK")

    await shop.wire.client.subscribe(subject, cb=handle)
    await shop.open("a", **push)
    await shop.publish("aaa")
    await eventually(lambda: len(received) == 3)
    await run(RecreateConsumer(shop.target("a", **push, idle_heartbeat=10**9 * 3600)), shop.wire)
    await shop.assert_tidy()
    await shop.publish("aa")
    await eventually(lambda: len(received) >= 5)
    assert received == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("retention", RETENTIONS)
async def test_restore_consumer(shop: Shop, retention: str) -> None:
    for crash in CRASHES[:11]:
        here = fresh(shop, retention)
        await at_work(here)
        await here.wire.expect(f"CONSUMER.DELETE.{here.stream}.c")
        assert isinstance((await run(RestoreConsumer(here.target("a"), floor=3), here.wire, crash)).end, Done), crash
        await here.assert_tidy()
        assert await here.pull_everything(4, 5) == [4, 5], crash


def stream_config(name: str, *subjects: str, spec: str) -> bytes:
    """A stream's configuration with subjects of its own."""
    return orjson.dumps({"name": name, "subjects": list(subjects), "metadata": Marker(owner="test", spec=spec).to_metadata()})


async def test_move_subject(shop: Shop) -> None:
    for crash in CRASHES[:13]:
        one, two, three = (next(names) for _ in range(3))
        live = {one: ("x.1", "x.2"), two: ("y.1",)}
        wanted = {one: ("y.1",), two: ("x.1",), three: ("x.2",)}
        for name, subjects in live.items():
            await shop.wire.expect(f"STREAM.CREATE.{name}", json.loads(stream_config(name, *subjects, spec="old")))
        configs = {name: stream_config(name, *subjects, spec="new") for name, subjects in wanted.items()}
        machine = MoveSubject(tuple(StreamTarget(Key("Stream", name), config) for name, config in configs.items()))
        assert isinstance((await run(machine, shop.wire, crash)).end, Done), crash
        for name, subjects in wanted.items():
            config = (await shop.wire.stream_info(name))["config"]
            assert tuple(config["subjects"]) == subjects, crash
            await shop.wire.expect(f"STREAM.DELETE.{name}")


async def test_move_subject_is_taken_back(shop: Shop) -> None:
    one, two = next(names), next(names)
    for name, subject in ((one, "x"), (two, "y")):
        await shop.wire.expect(f"STREAM.CREATE.{name}", json.loads(stream_config(name, subject, spec="old")))
    refused = orjson.dumps(json.loads(stream_config(two, "y", "x", spec="new")) | {"storage": "memory"})
    accepted = stream_config(one, "z", spec="new")
    targets = (StreamTarget(Key("Stream", one), accepted), StreamTarget(Key("Stream", two), refused))
    result = await run(MoveSubject(targets), shop.wire)
    assert isinstance(result.end, Abort)
    assert "storage" in result.end.message
    assert [(await shop.wire.stream_info(name))["config"]["subjects"] for name in (one, two)] == [["x"], ["y"]]


@pytest.mark.parametrize("retention", RETENTIONS)
async def test_in_a_cluster(cluster: Cluster, retention: str) -> None:
    async with await Wire.connect(cluster.url) as wire:
        shop = await shop_at(wire, retention=retention, replicas=3)
        await passed_by(shop)
        added = await run(FilterAdd(shop.target("a", "b")), wire)
        if retention == "interest":
            assert isinstance(added.end, Abort), "RESET would lose messages there"
            assert added.end.code == "position-loss"
        else:
            assert isinstance(added.end, Done)
            expected = [1, 3, 4] if retention == "workqueue" else [1, 2, 3, 4, 5]
            assert await shop.pull_everything(1, 3, 4) == expected
        filters = ("a",) if retention == "interest" else ("a", "b")
        again = await run(RecreateConsumer(shop.target(*filters, **CHANGE)), wire)
        assert isinstance(again.end, Done)
        assert retention != "interest" or not any(isinstance(write, ResetConsumer) for write in again.writes)
        await shop.assert_tidy()
        await shop.publish("a")
        assert await shop.pull_everything(7) == [7]
