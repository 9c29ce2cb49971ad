"""What was planned a moment ago is not what is there now: nothing is written on a belief that no longer holds.

Every update replaces the whole configuration, so one that only meant to change a description takes back whatever somebody
else has set since, and the messages with it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from reconciler.engine.apply.outcome import Outcome, Word
from reconciler.engine.apply.run_once import ApplyOptions, apply_plan
from reconciler.engine.planning import Planned
from reconciler.engine.ports import LiveWriter
from reconciler.model.desired import Declared
from reconciler.model.kinds.common import Intent, State
from reconciler.procedures.requests import Write
from tests.support.account.wire import Json, Wire
from tests.support.cluster.servers import Cluster
from tests.support.daemon.engine import Engine, Start
from tests.support.server.process import Server
from tests.support.values.build import consumer, stream

pytestmark = pytest.mark.differs

OPTIONS = ApplyOptions(timeout=20.0, continue_=True)
WORKERS = 64


@dataclass
class Freezing:
    """A writer whose server stands still from its first write on: the write is taken by the kernel, and not executed."""

    writer: LiveWriter
    server: Server
    frozen: asyncio.Event = field(default_factory=asyncio.Event)

    def fits(self, write: Write, level: int = 0) -> None:
        """As the writer says."""
        self.writer.fits(write, level)

    async def write(self, write: Write, level: int = 0) -> Json:
        """The server's answer, when it goes on."""
        if not self.frozen.is_set():
            self.server.freeze()
            self.frozen.set()
        return await self.writer.write(write, level)


def _stream(**spec: Any) -> Declared:
    return stream("S", {"subjects": ["s.>"], "maxMsgs": 20, **spec})


async def _edit_consumer(wire: Wire, name: str, **changes: Any) -> None:
    """Another client changes a consumer of S."""
    config = (await wire.consumer_info("S", name))["config"] | changes
    config.pop("filter_subject", None)
    await wire.expect(f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": config, "action": "update"})


async def _edit_stream(wire: Wire, **changes: Any) -> Json:
    """Another client changes S."""
    return await wire.expect("STREAM.UPDATE.S", (await wire.stream_info("S"))["config"] | changes)


async def _carry_out(engine: Engine, planned: Planned) -> dict[str, Outcome]:
    """Apply a plan that was made before; how each change ended."""
    applied = await apply_plan(planned, engine.ports, OPTIONS)
    return {str(outcome.change.key): outcome for outcome in applied.outcomes}


async def test_an_edited_description_does_not_take_back_room_that_was_filled_since(any_server: Server, start: Start) -> None:
    engine = await start(any_server)
    await engine.apply(_stream())
    planned = await engine.plan(_stream(description="another"))
    async with await Wire.connect(any_server.url) as wire:
        await _edit_stream(wire, max_msgs=1000)
        await wire.publish("s.x", 300)
        ended = await _carry_out(engine, planned)
        assert (await wire.stream_info("S"))["state"]["messages"] == 300
    assert ended["Stream/S"].word is not Word.APPLIED


async def test_a_stream_that_another_owner_has_made_anew_is_left_alone(any_server: Server, start: Start) -> None:
    engine = await start(any_server)
    await engine.apply(_stream())
    planned = await engine.plan(_stream(description="another"))
    async with await Wire.connect(any_server.url) as wire:
        config = (await wire.stream_info("S"))["config"]
        await wire.expect("STREAM.DELETE.S")
        theirs = {**config, "max_msgs": 1000, "metadata": {"reconciler.owner": "billing", "reconciler.spec": "theirs"}}
        await wire.expect("STREAM.CREATE.S", theirs)
        await wire.publish("s.x", 500)
        await _carry_out(engine, planned)
        found = await wire.stream_info("S")
        assert found["state"]["messages"] == 500
        assert found["config"]["metadata"]["reconciler.owner"] == "billing"


async def test_a_filter_with_something_to_deliver_by_now_is_not_removed(any_server: Server, start: Start) -> None:
    engine = await start(any_server)
    origin = stream("S", {"subjects": ["s.>"], "retention": "interest"})
    await engine.apply(origin, consumer("S", "c", {"filterSubjects": ["s.a", "s.b"]}))
    planned = await engine.plan(origin, consumer("S", "c", {"filterSubjects": ["s.a"]}))
    async with await Wire.connect(any_server.url) as wire:
        await wire.publish("s.b", 50)
        await _carry_out(engine, planned)
        assert (await wire.stream_info("S"))["state"]["messages"] == 50


async def test_a_late_update_of_another_field_does_not_take_back_a_filter(any_server: Server, start: Start) -> None:
    engine = await start(any_server)
    await engine.apply(_stream(), consumer("S", "c", {"filterSubjects": ["s.a"]}))
    planned = await engine.plan(_stream(), consumer("S", "c", {"filterSubjects": ["s.a"], "maxDeliver": 5}))
    async with await Wire.connect(any_server.url) as wire:
        await _edit_consumer(wire, "c", filter_subjects=["s.a", "s.b"])
        await wire.publish("s.b", 3)
        await _carry_out(engine, planned)
        assert set((await wire.consumer_info("S", "c"))["config"]["filter_subjects"]) == {"s.a", "s.b"}


async def test_a_delete_looks_at_the_consumers_of_the_stream(any_server: Server, start: Start) -> None:
    engine = await start(any_server)
    await engine.apply(_stream())
    planned = await engine.plan(replace(_stream(), intent=Intent(state=State.ABSENT)), max_change_percent=100)
    async with await Wire.connect(any_server.url) as wire:
        theirs = {"durable_name": "theirs", "ack_policy": "explicit"}
        await wire.expect("CONSUMER.CREATE.S.theirs", {"stream_name": "S", "config": theirs, "action": "create"})
        await _carry_out(engine, planned)
        assert "error" not in await wire.call("STREAM.INFO.S")


async def test_a_server_that_thaws_executes_one_stale_write_at_most(any_server: Server, start: Start) -> None:
    """A former leader: its server stood still with what the leader had sent, and the lease went to somebody else meanwhile."""
    engine = await start(any_server, timeout=5.0)
    room = _stream(maxConsumers=5000)
    await engine.apply(room, *(consumer("S", f"w{number}") for number in range(WORKERS)))
    changed = [consumer("S", f"w{number}", {"maxDeliver": 5}) for number in range(WORKERS)]
    planned = await engine.plan(room, *changed, max_change_percent=100)
    writer = Freezing(engine.writer, any_server)
    applying = asyncio.create_task(apply_plan(planned, engine.through(writer), OPTIONS))
    await writer.frozen.wait()
    await asyncio.sleep(0.3)  # whatever leaves the process has left it
    engine.lease.held = False
    any_server.thaw()
    await applying
    async with await Wire.connect(any_server.url) as wire:
        configs = [(await wire.consumer_info("S", f"w{number}"))["config"] for number in range(WORKERS)]
    assert sum(config["max_deliver"] == 5 for config in configs) <= 1


async def test_a_server_of_a_cluster_that_thaws_executes_one_stale_write_at_most(cluster: Cluster, start: Start) -> None:
    """The leader's own server stands still, the others go on; what it had taken in is executed when it goes on as well."""
    near, far = cluster.servers[0], cluster.servers[1]
    engine = await start(near, timeout=5.0)
    room = stream("THAW", {"subjects": ["thaw.>"], "replicas": 3, "maxConsumers": 5000})
    names = [f"w{number}" for number in range(WORKERS)]
    await engine.apply(room, *(consumer("THAW", name) for name in names))
    changed = [consumer("THAW", name, {"maxDeliver": 5}) for name in names]
    planned = await engine.plan(room, *changed, max_change_percent=100)
    writer = Freezing(engine.writer, near)
    applying = asyncio.create_task(apply_plan(planned, engine.through(writer), OPTIONS))
    await writer.frozen.wait()
    await asyncio.sleep(0.3)
    engine.lease.held = False
    near.thaw()
    await applying
    async with await Wire.connect(far.url) as wire:
        configs = [(await wire.consumer_info("THAW", name))["config"] for name in names]
    assert sum(config["max_deliver"] == 5 for config in configs) <= 1
