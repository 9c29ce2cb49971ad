"""Carrying out plans while servers die, freeze, lie, and other people interfere."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.engine.apply.outcome import Outcome, Verdict, Word
from reconciler.engine.apply.run_once import ApplyOptions, apply_plan
from reconciler.errors import NoAnswer, Rewritten
from reconciler.model.desired import Declared
from reconciler.model.identity import Key
from reconciler.model.kinds.common import Intent, State
from reconciler.plan.change import Rules
from reconciler.procedures.requests import CreateStream
from tests.support.account.wire import Wire, eventually
from tests.support.daemon.engine import Engine, Start, order_of
from tests.support.server.process import Server
from tests.support.values.build import consumer, stream

OPTIONS = ApplyOptions(timeout=20.0)
WORK = stream("WORK", {"subjects": ["work.>"], "maxConsumers": 5000})


def _workers(count: int) -> list[Declared]:
    return [consumer("WORK", f"w{number}") for number in range(count)]


async def _names(wire: Wire, name: str) -> set[str]:
    return set((await wire.expect(f"CONSUMER.NAMES.{name}"))["consumers"] or ())


@pytest.mark.matrix
async def test_fields_the_server_drops_without_a_word_are_an_error(tmp_path: Path, start: Start) -> None:
    with Server(tmp_path / "old", version="2.11.11") as old:
        engine = await start(old)
        send, order = engine.ports.writes.send, order_of(engine.ports)
        with pytest.raises(Rewritten, match="dropped or rewrote allowAtomic"):
            await send(CreateStream(Key("Stream", "A"), b'{"name":"A","subjects":["a"],"allow_atomic":true}'), order)
        await send(CreateStream(Key("Stream", "B"), b'{"name":"B","subjects":["b"]}'), order)


async def test_a_failure_holds_back_only_what_depends_on_it(engine: Engine) -> None:
    impossible = stream("THREE", {"subjects": ["three.>"], "replicas": 3})  # on a single server
    hanging = consumer("THREE", "hanging")
    copy = stream("COPY", {"sources": [{"name": "THREE"}]})
    applied = await engine.apply(impossible, hanging, copy, WORK, consumer("WORK", "free"))
    assert applied.verdict is Verdict.PARTLY
    found = {str(outcome.change.key): outcome for outcome in applied.outcomes}
    assert {key: outcome.word for key, outcome in found.items()} == {
        "Stream/THREE": Word.FAILED,
        "Consumer/THREE/hanging": Word.SKIPPED,
        "Stream/COPY": Word.SKIPPED,
        "Stream/WORK": Word.APPLIED,
        "Consumer/WORK/free": Word.APPLIED,
    }
    assert "replicas > 1 not supported" in found["Stream/THREE"].why
    assert found["Consumer/THREE/hanging"].why == "waits for Stream/THREE, which is failed"


async def test_a_server_that_restarts_on_the_way_is_only_a_delay(server: Server, engine: Engine) -> None:
    started = asyncio.Event()
    engine.watcher.then = lambda _: started.set() if len(engine.watcher.outcomes) > 40 else None

    async def interrupt() -> None:
        await started.wait()
        server.kill()
        await eventually(lambda: not engine.connection.connected)
        server.start()

    interruption = asyncio.create_task(interrupt())
    applied = await engine.apply(WORK, *_workers(600), timeout=60.0)
    await interruption
    assert applied.verdict is Verdict.IN_PLACE
    async with await Wire.connect(server.url) as wire:
        assert await _names(wire, "WORK") == {f"w{number}" for number in range(600)}


async def test_a_server_that_is_silent_for_a_while_is_only_a_delay(server: Server, start: Start) -> None:
    engine = await start(server, timeout=1.0)
    started = asyncio.Event()
    engine.watcher.then = lambda _: started.set() if len(engine.watcher.outcomes) > 40 else None

    async def interrupt() -> None:
        await started.wait()
        server.freeze()
        await asyncio.sleep(2.5)  # longer than a request may take
        server.thaw()

    interruption = asyncio.create_task(interrupt())
    applied = await engine.apply(WORK, *_workers(300), timeout=60.0)
    await interruption
    assert applied.verdict is Verdict.IN_PLACE, [outcome.why for outcome in applied.outcomes if outcome.why][:3]


async def test_what_was_given_up_is_never_executed_later(server: Server, start: Start) -> None:
    engine = await start(server, timeout=1.0)
    planned = await engine.plan(WORK, *_workers(50))
    engine.watcher.then = lambda outcome: server.freeze() if outcome.change.key == WORK.key else None
    applied = await apply_plan(planned, engine.ports, ApplyOptions(timeout=3.0))
    assert applied.verdict is Verdict.PARTLY
    assert applied.unverified
    sent = {o.change.key.name for o in applied.outcomes if o.word is Word.APPLIED or isinstance(o.cause, NoAnswer)}
    never_sent = {f"w{number}" for number in range(50)} - sent
    assert never_sent
    server.thaw()
    async with await Wire.connect(server.url) as wire:
        await engine.connection.wait_connected()
        await engine.connection.flush()
        later = {"stream_name": "WORK", "config": {"durable_name": "later", "ack_policy": "explicit"}, "action": "create"}
        await wire.expect("CONSUMER.CREATE.WORK.later", later)  # by now everything that had arrived has been executed
        assert not await _names(wire, "WORK") & never_sent


async def test_nothing_is_written_after_the_lease_is_lost(engine: Engine, wire: Wire) -> None:
    await engine.apply(WORK)
    planned = await engine.plan(WORK, *_workers(200))
    engine.lease.checks = 0

    def lose(_: Outcome) -> None:
        engine.lease.held = False

    engine.watcher.then = lose
    async with wire.audit() as audit:
        applied = await apply_plan(planned, engine.ports, OPTIONS)
    assert applied.verdict is Verdict.PARTLY
    assert len(audit.writes("reconciler")) <= OPTIONS.concurrency
    last = applied.outcomes[-1]
    assert (last.word, last.why) == (Word.UNFINISHED, "the write lease is no longer ours")


async def test_a_stream_that_got_messages_since_it_was_planned_is_not_deleted(engine: Engine, wire: Wire) -> None:
    await engine.apply(WORK)
    planned = await engine.plan(replace(WORK, intent=Intent(state=State.ABSENT)), max_change_percent=100)
    await wire.publish("work.x")
    applied = await apply_plan(planned, engine.ports, OPTIONS)
    (outcome,) = applied.outcomes
    assert outcome.word is Word.UNFINISHED
    assert "no longer what was planned: data-loss: the stream holds 1 message" in outcome.why
    assert await wire.payloads("WORK") == ["0"]


async def test_a_consumer_that_was_changed_since_it_was_planned_is_not_deleted(engine: Engine, wire: Wire) -> None:
    worker = consumer("WORK", "w0")
    await engine.apply(WORK, worker)
    planned = await engine.plan(WORK, replace(worker, intent=Intent(state=State.ABSENT)), max_change_percent=100)
    config = (await wire.consumer_info("WORK", "w0"))["config"]
    request = {"stream_name": "WORK", "config": {**config, "filter_subject": "work.new"}, "action": "update"}
    await wire.expect("CONSUMER.CREATE.WORK.w0", request)
    applied = await apply_plan(planned, engine.ports, OPTIONS)
    assert "its configuration changed" in applied.outcomes[0].why
    assert await _names(wire, "WORK") == {"w0"}


async def test_a_name_somebody_took_since_it_was_planned_is_not_overwritten(engine: Engine, wire: Wire) -> None:
    planned = await engine.plan(WORK)
    await wire.expect("STREAM.CREATE.WORK", {"name": "WORK", "subjects": ["theirs.>"]})
    applied = await apply_plan(planned, engine.ports, OPTIONS)
    assert applied.verdict is Verdict.FAILED
    assert "created by somebody else since it was planned; plan again" in applied.outcomes[0].why
    assert (await wire.stream_info("WORK"))["config"]["subjects"] == ["theirs.>"]


async def test_a_recreated_stream_gets_its_consumers_back(engine: Engine, wire: Wire) -> None:
    await engine.apply(WORK, *_workers(3))
    allowed = Intent(allow=frozenset({"recreate", "data-loss"}))
    in_memory = stream("WORK", {"subjects": ["work.>"], "maxConsumers": 5000, "storage": "memory"}, allowed)
    applied = await engine.apply(in_memory, *_workers(3), rules=Rules(max_change_percent=100))
    assert applied.verdict is Verdict.IN_PLACE, (applied.refused, [outcome.why for outcome in applied.outcomes])
    assert (await wire.stream_info("WORK"))["config"]["storage"] == "memory"
    assert await _names(wire, "WORK") == {"w0", "w1", "w2"}


async def test_a_denied_write_ends_with_what_has_to_be_granted(tmp_path: Path, start: Start) -> None:
    user = '{user: part, password: x, permissions: {publish: {deny: ["$JS.API.STREAM.CREATE.>"]}}}'
    config = f"accounts {{ A {{ jetstream: enabled, users: [{user}] }} }}\nno_auth_user: part"
    with Server(tmp_path / "denying", config=config) as server:
        engine = await start(server)
        applied = await engine.apply(WORK)
    assert applied.verdict is Verdict.DENIED
    assert 'publish "$JS.API.STREAM.CREATE.WORK"; grant it' in applied.outcomes[0].why
