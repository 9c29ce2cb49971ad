"""Subjects that change hands while publishers publish: every acknowledged message reaches a reader."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from reconciler.engine.apply.outcome import Verdict, Word
from reconciler.engine.apply.run_once import ApplyOptions, apply_plan
from reconciler.engine.memory import Recollection
from reconciler.engine.planning import make_plan
from reconciler.errors import NoAnswer
from reconciler.model.kinds.common import Intent
from reconciler.plan.change import Rules
from reconciler.procedures.requests import Write
from tests.support.account.wire import Wire, eventually
from tests.support.daemon.engine import Engine
from tests.support.server.process import Server
from tests.support.values.build import consumer, desired, stream

SYNC = Rules(policy="sync")
INTEREST = {"retention": "interest"}
BATCH = 200  # fewer than a consumer lets be unacknowledged
LOSS = frozenset({("data-loss", "Stream/S")})


@dataclass
class Publisher:
    """Publishes to one subject without a pause; knows what which stream acknowledged."""

    wire: Wire
    subject: str
    acknowledged: dict[str, set[int]] = field(default_factory=dict)
    running: bool = True

    async def publish(self) -> None:
        """Until told to stop; a refusal is a publisher's affair."""
        while self.running:
            try:
                answer = json.loads((await self.wire.client.request(self.subject, b"", timeout=1)).data)
            except Exception:  # noqa: BLE001, S112 - nobody listens just now
                continue
            if "seq" in answer:
                self.acknowledged.setdefault(answer["stream"], set()).add(answer["seq"])


@asynccontextmanager
async def publishing(wire: Wire, subject: str) -> AsyncIterator[Publisher]:
    """Somebody publishes from before the block until after it."""
    publisher = Publisher(wire, subject)
    tasks = [asyncio.ensure_future(publisher.publish()) for _ in range(3)]
    try:
        yield publisher
    finally:
        publisher.running = False
        await asyncio.gather(*tasks)


async def _kept(wire: Wire, name: str, reader: str) -> set[int]:
    """Everything this reader can have."""
    inbox = wire.client.new_inbox()
    replies = await wire.client.subscribe(inbox)
    body = json.dumps({"batch": BATCH, "no_wait": True}).encode()
    got: set[int] = set()
    more = True
    while more:
        await wire.client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{name}.{reader}", body, reply=inbox)
        for _ in range(BATCH):
            message = await replies.next_msg(timeout=10)
            more = message.reply.startswith("$JS.ACK")
            if not more:
                break  # 404: nothing more
            got.add(int(message.reply.split(".")[5]))
            await message.respond(b"+ACK")
    await replies.unsubscribe()
    return got


async def test_a_subject_moves_between_readers_of_an_interest_stream(engine: Engine, wire: Wire) -> None:
    orders = stream("S", {"subjects": ["s.>"], **INTEREST})
    await engine.apply(
        orders, consumer("S", "a", {"filterSubjects": ["s.x", "s.y"]}), consumer("S", "b", {"filterSubjects": ["s.z"]})
    )
    moved = (orders, consumer("S", "a", {"filterSubjects": ["s.x"]}), consumer("S", "b", {"filterSubjects": ["s.y", "s.z"]}))
    planned = await engine.plan(*moved)
    async with publishing(wire, "s.y") as publisher:
        await eventually(lambda: len(publisher.acknowledged.get("S", ())) > 20)
        applied = await apply_plan(planned, engine.ports, ApplyOptions(timeout=20.0))
        assert applied.verdict is Verdict.IN_PLACE, [(str(o.change.key), o.word, o.why) for o in applied.outcomes]
    assert publisher.acknowledged["S"] == await _kept(wire, "S", "b")


async def test_a_renamed_reader_stays_until_its_successor_is_there(engine: Engine, wire: Wire) -> None:
    orders = stream("S", {"subjects": ["s.>"], **INTEREST})
    await engine.apply(orders, consumer("S", "old"))
    impossible = consumer("S", "new", {"replicas": 3})  # on a single server
    applied = await engine.apply(orders, impossible, rules=SYNC)
    assert {outcome.change.key.name: outcome.word for outcome in applied.outcomes} == {
        "new": Word.FAILED,
        "old": Word.SKIPPED,
    }
    await wire.publish("s.x", 3)
    assert (await wire.stream_info("S"))["state"]["messages"] == 3


@pytest.mark.parametrize("reader", ["c", "d"])
async def test_a_subject_moves_to_an_interest_stream(engine: Engine, wire: Wire, reader: str) -> None:
    known = consumer("B", "c", {"filterSubjects": ["z"]})
    await engine.apply(stream("A", {"subjects": ["x", "y"]}), stream("B", {"subjects": ["z"], **INTEREST}), known)
    moved = {"A": ["x"], "B": ["y", "z"]}
    streams = [stream("A", {"subjects": moved["A"]}), stream("B", {"subjects": moved["B"], **INTEREST})]
    readers = {"c": known, reader: consumer("B", reader, {"filterSubjects": ["y", "z"] if reader == "c" else ["y"]})}
    async with publishing(wire, "y") as publisher:
        await eventually(lambda: len(publisher.acknowledged.get("A", ())) > 20)
        assert (await engine.apply(*streams, *readers.values())).verdict is Verdict.IN_PLACE
        await eventually(lambda: len(publisher.acknowledged.get("B", ())) > 20)
    assert publisher.acknowledged["B"] == await _kept(wire, "B", reader)


@pytest.mark.parametrize("successor", ["b", "new"])
async def test_a_subject_moves_between_readers_of_a_workqueue_in_one_apply(engine: Engine, successor: str) -> None:
    work = stream("S", {"subjects": ["s.>"], "retention": "workqueue"})
    other = consumer("S", "b", {"filterSubjects": ["s.z"]})
    await engine.apply(work, consumer("S", "c", {"filterSubjects": ["s.x", "s.y"]}), other)
    readers = {
        "b": other,
        successor: consumer("S", successor, {"filterSubjects": ["s.y", *(["s.z"] if successor == "b" else [])]}),
    }
    applied = await engine.apply(work, consumer("S", "c", {"filterSubjects": ["s.x"]}), *readers.values())
    assert applied.verdict is Verdict.IN_PLACE


async def test_a_stream_that_goes_hands_its_subjects_over_first(engine: Engine, wire: Wire) -> None:
    await engine.apply(stream("OLD", {"subjects": ["o.>"]}), consumer("OLD", "c"))
    await wire.publish("o.1", 2)
    rules = Rules(policy="sync", allow=frozenset({("data-loss", "Stream/OLD")}))
    applied = await engine.apply(stream("NEW", {"subjects": ["o.>"]}), rules=rules)
    assert [(str(o.change.key), o.word) for o in applied.outcomes] == [
        ("Stream/NEW", Word.APPLIED),
        ("Stream/OLD", Word.APPLIED),
    ]


async def test_a_refused_move_is_taken_back_also_after_a_lost_answer(engine: Engine, wire: Wire) -> None:
    await engine.apply(stream("A", {"subjects": ["x", "y"]}), stream("B", {"subjects": ["z"]}))
    real = engine.writer
    lost = iter([True])

    class Forgetful:
        """Executes everything; the first answer is lost."""

        def fits(self, write: Write, level: int = 0) -> None:
            real.fits(write, level)

        async def write(self, write: Write, level: int = 0) -> dict[str, Any]:
            answer = await real.write(write, level)
            if next(lost, False):
                msg = "no answer"
                raise NoAnswer(msg)
            return answer

    impossible = stream("B", {"subjects": ["y", "z"], "replicas": 3})  # on a single server
    planned = await engine.plan(stream("A", {"subjects": ["x"]}), impossible)
    applied = await apply_plan(planned, engine.through(Forgetful()), ApplyOptions(timeout=20.0))
    assert applied.verdict is Verdict.FAILED
    assert (await wire.stream_info("A"))["config"]["subjects"] == ["x", "y"]


async def test_consumers_of_a_stream_made_anew_are_made_anew(engine: Engine) -> None:
    allowed = Intent(allow=frozenset({"recreate"}))
    await engine.apply(stream("S"), consumer("S", "c"), consumer("S", "d"), consumer("S", "e"))
    anew = (stream("S", {"storage": "memory"}, allowed), consumer("S", "c", {"ackWait": "9s"}), consumer("S", "d"))
    applied = await engine.apply(*anew, consumer("S", "e", {"maxWaiting": 9}, allowed))
    assert [(str(o.change.key), o.word) for o in applied.outcomes] == [
        ("Stream/S", Word.APPLIED),
        ("Consumer/S/c", Word.APPLIED),
        ("Consumer/S/d", Word.APPLIED),
        ("Consumer/S/e", Word.APPLIED),
    ]
    assert applied.verdict is Verdict.IN_PLACE


async def test_the_first_update_after_a_start_of_the_server_is_no_failure(engine: Engine, server: Server) -> None:
    """It echoes what was there before it."""
    work = stream("S", {"subjects": ["s.>"]})
    await engine.apply(work, consumer("S", "c", {"filterSubjects": ["s.a"]}))
    for change in ({"ackWait": "77s"}, {"filterSubjects": ["s.a", "s.b"]}):
        lost = engine.connection.reconnects
        server.restart()
        await eventually(lambda lost=lost: engine.connection.reconnects > lost)  # type: ignore[misc]  # bound at once
        applied = await engine.apply(work, consumer("S", "c", {"filterSubjects": ["s.a"], **change}))
        assert applied.verdict is Verdict.IN_PLACE


async def test_a_floor_of_another_stream_of_that_name_means_nothing(engine: Engine, wire: Wire) -> None:
    work, reader = stream("S", {"subjects": ["s.>"]}), consumer("S", "c", {"ackPolicy": "none"})
    await engine.apply(work, reader)
    await wire.publish("s.a", 5)
    await _kept(wire, "S", "c")
    before = await engine.plan(work, reader)
    recollection = Recollection("default")
    recollection.learn(before.live)
    await wire.expect("STREAM.DELETE.S")
    await engine.apply(work)
    await wire.publish("s.a", 8)
    planned = await make_plan(desired(work, reader), Rules(), engine.ports.reader, recollection.memory)
    await apply_plan(planned, engine.ports, ApplyOptions(timeout=20.0))
    assert await _kept(wire, "S", "c") == set(range(1, 9))


async def test_tighter_consumer_limits_reach_consumers_that_say_nothing(engine: Engine) -> None:
    await engine.apply(stream("S"), consumer("S", "c"))
    tight = stream("S", {"consumerLimits": {"maxAckPending": 100}})
    for wanted in ((tight, consumer("S", "c"), consumer("S", "new")), (stream("S"), consumer("S", "c"))):
        assert (await engine.apply(*wanted)).verdict is Verdict.IN_PLACE


async def test_a_stream_turns_to_interest_under_its_publishers(engine: Engine, wire: Wire) -> None:
    await engine.apply(stream("S", {"subjects": ["y"]}))
    planned = await engine.plan(stream("S", {"subjects": ["y"], **INTEREST}), consumer("S", "c"), allow=LOSS)
    async with publishing(wire, "y") as publisher:
        await eventually(lambda: len(publisher.acknowledged.get("S", ())) > 20)
        applied = await apply_plan(planned, engine.ports, ApplyOptions(timeout=20.0))
        assert applied.verdict is Verdict.IN_PLACE, [(str(o.change.key), o.word, o.why) for o in applied.outcomes]
    assert publisher.acknowledged["S"] == await _kept(wire, "S", "c")


@pytest.mark.parametrize("spec", [{"maxMsgs": 2}, {"maxBytes": "50B"}, {"maxMsgsPerSubject": 2}, INTEREST])
async def test_what_was_published_since_is_not_dropped_by_a_lower_limit(engine: Engine, wire: Wire, spec: dict[str, Any]) -> None:
    await engine.apply(stream("S", {"subjects": ["y"]}))
    planned = await engine.plan(stream("S", {"subjects": ["y"], **spec}))
    await wire.publish("y", 5)
    applied = await apply_plan(planned, engine.ports, ApplyOptions(timeout=20.0))
    assert applied.verdict is Verdict.FAILED
    assert "plan again" in applied.outcomes[0].why
    assert (await wire.stream_info("S"))["state"]["messages"] == 5


@pytest.mark.parametrize("copy", [{"sources": [{"name": "S"}]}, {"mirror": {"name": "S"}}])
async def test_a_copy_is_not_cut_off_before_it_has_everything(engine: Engine, wire: Wire, copy: dict[str, Any]) -> None:
    """The server keeps a consumer on the origin for it, and on interest the messages go with that."""
    orders = stream("S", {"subjects": ["s.>"], **INTEREST})
    await engine.apply(orders, stream("COPY", copy))
    async with asyncio.timeout(10):
        while not (names := (await wire.expect("CONSUMER.NAMES.S"))["consumers"]):  # noqa: ASYNC110 - the server does not signal it
            await asyncio.sleep(0.05)
    await wire.expect(f"CONSUMER.PAUSE.S.{names[0]}", {"pause_until": "2099-01-01T00:00:00Z"})
    await wire.publish("s.a", 5)
    for wanted in ([orders, stream("COPY", {"subjects": ["c"]})], [orders]):
        applied = await engine.apply(*wanted, rules=SYNC)
        assert [reason.code for reason in applied.refused] == ["data-loss"]
    assert (await wire.stream_info("S"))["state"]["messages"] == 5
