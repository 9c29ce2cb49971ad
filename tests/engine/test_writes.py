"""The one way for every write: the pace, the turn, and what silence closes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from reconciler.engine.ports import Ports
from reconciler.engine.writing.judging import StepJudge
from reconciler.engine.writing.throttle import Throttle
from reconciler.engine.writing.turns import Rank
from reconciler.engine.writing.writes import Order, Writes
from reconciler.errors import LeaseLost, Moved, NoAnswer, TooLarge, Unsettled
from reconciler.jetstream.clock import SystemClock
from reconciler.model.identity import Key
from reconciler.procedures.requests import (
    Absent,
    ConsumerInfo,
    CreateConsumer,
    CreateStream,
    DeleteConsumer,
    DeleteStream,
    PauseConsumer,
    PurgeStream,
    Read,
    ResetConsumer,
    StreamInfo,
    UpdateConsumer,
    UpdateStream,
    Write,
    changed_by,
    changes_what_exists,
)
from tests.support.account.wire import Wire, eventually
from tests.support.daemon.engine import Engine, Right, Start, order_of
from tests.support.server.process import Server

S = Key("Stream", "S")


class Losing(SystemClock):
    """Whoever waits has lost the lease by then."""

    def __init__(self, lease: Right) -> None:
        self._lease = lease

    async def sleep(self, seconds: float) -> None:
        """Takes it away."""
        assert seconds > 0
        self._lease.held = False


def _paced(engine: Engine, rate: float, clock: SystemClock) -> Ports:
    writes = Writes(engine.ports.reader, engine.writer, clock, Throttle(rate, clock))
    return replace(engine.ports, writes=writes)


async def test_a_lease_that_was_lost_while_a_write_waited_for_its_turn_is_noticed(engine: Engine, wire: Wire) -> None:
    ports = _paced(engine, 1, Losing(engine.lease))
    await ports.writes.send(CreateStream(Key("Stream", "A"), b'{"name":"A","subjects":["a"]}'), order_of(ports))
    with pytest.raises(LeaseLost):
        await ports.writes.send(CreateStream(Key("Stream", "B"), b'{"name":"B","subjects":["b"]}'), order_of(ports))
    assert (await wire.expect("STREAM.NAMES"))["streams"] == ["A"]


@dataclass
class Delayed:
    """A judge that says yes, after a while."""

    seconds: float = 0.0
    asked: int = 0

    async def judged(self, write: Write) -> Write:
        """Yes."""
        self.asked += 1
        await asyncio.sleep(self.seconds)
        return write


@dataclass
class Desk:
    """A writer and a reader in one: it notes what comes, and answers when it is told to."""

    sent: list[Write] = field(default_factory=list)
    most: int = 0
    """The most writes that were in flight at once."""
    silent: set[Key] = field(default_factory=set)
    """What is not answered."""
    answering: asyncio.Event = field(default_factory=asyncio.Event)
    fact: Any = field(default_factory=Absent)
    _flying: int = 0

    def fits(self, write: Write, level: int = 0) -> None:
        """Everything does."""

    async def write(self, write: Write, level: int = 0) -> dict[str, Any]:
        """Takes it."""
        del level
        self.sent.append(write)
        self._flying += 1
        self.most = max(self.most, self._flying)
        try:
            await self.answering.wait()
        finally:
            self._flying -= 1
        if changed_by(write) in self.silent:
            msg = "nothing came back in time"
            raise NoAnswer(msg)
        return {"config": {}, "success": True}

    async def read(self, _: Read) -> Any:
        """As it is."""
        return self.fact


def _writes(desk: Any, clock: Any = None) -> Writes:
    clock = clock or SystemClock()
    return Writes(desk, desk, clock, Throttle(0, clock))


def _order(judge: Any = None, rank: Rank = Rank.COMMIT) -> Order:
    return Order(permit=Right(), judge=judge or Delayed(), normal=lambda _, __: {}, rank=rank)


def _deletes(count: int, domain: str = "") -> list[DeleteStream]:
    return [DeleteStream(Key("Stream", f"S{number}", "", domain)) for number in range(count)]


async def test_of_changes_one_is_in_flight_and_creates_go_beside_it() -> None:
    desk = Desk()
    writes = _writes(desk)
    creates: list[Write] = [CreateStream(Key("Stream", f"C{number}"), b"{}") for number in range(3)]
    tasks = [asyncio.create_task(writes.send(one, _order())) for one in (*_deletes(5), *creates)]
    await eventually(lambda: len(desk.sent) == 4)
    assert [type(one) for one in desk.sent].count(DeleteStream) == 1
    desk.answering.set()
    await asyncio.gather(*tasks)
    assert len(desk.sent) == 8


async def test_while_a_change_waits_or_looks_four_creates_are_in_flight_else_all() -> None:
    for changing, expected in ((False, 20), (True, 4)):
        desk = Desk()
        writes = _writes(desk)
        tasks = [asyncio.create_task(writes.send(_deletes(1)[0], _order(Delayed(30))))] if changing else []
        await asyncio.sleep(0)
        creates = [CreateStream(Key("Stream", f"C{number}"), b"{}") for number in range(20)]
        tasks += [asyncio.create_task(writes.send(one, _order())) for one in creates]
        await eventually(lambda: len(desk.sent) == expected)  # noqa: B023 - waited for within the round
        await asyncio.sleep(0.01)
        assert len(desk.sent) == expected
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_slow_look_gives_the_turn_back_and_gets_a_slow_one() -> None:
    desk = Desk()
    desk.answering.set()
    writes, slow = _writes(desk), Delayed(0.8)
    first, second = _deletes(2)
    late = asyncio.create_task(writes.send(first, _order(slow)))
    await asyncio.sleep(0)
    await asyncio.wait_for(writes.send(second, _order()), 0.75)  # not before the turn was given back, and before the look is over
    assert desk.sent == [second]
    await late
    assert desk.sent == [second, first]
    assert slow.asked == 3


async def test_silence_closes_its_domain_and_no_other_until_looks_show_what_became_of_it() -> None:
    desk = Desk(fact={"created": "then", "config": {}})
    desk.answering.set()
    writes, (here, there) = _writes(desk), (_deletes(1)[0], _deletes(1, "leaf")[0])
    desk.silent.add(here.stream)
    with pytest.raises(NoAnswer):
        await writes.send(here, _order())
    with pytest.raises(Unsettled):
        await writes.send(_deletes(2)[1], _order())
    await writes.send(there, _order())
    await writes.send(CreateStream(Key("Stream", "C"), b"{}"), _order())
    began = asyncio.get_running_loop().time()
    await writes.settled()
    assert asyncio.get_running_loop().time() - began > 1.5  # two looks, far enough apart
    await writes.send(_deletes(2)[1], _order())


async def test_a_silence_ends_though_somebody_edits_all_the_time() -> None:
    class Edited(Desk):
        looks = 0

        async def read(self, _: Read) -> Any:
            self.looks += 1
            return {"created": "then", "config": {"description": str(self.looks)}, "state": {"first_seq": self.looks}}

    desk = Edited()
    desk.answering.set()
    writes, (here, other) = _writes(desk), _deletes(2)
    desk.silent.add(here.stream)
    with pytest.raises(NoAnswer):
        await writes.send(here, _order())
    await asyncio.wait_for(writes.settled(), 10)
    await asyncio.sleep(0)
    await writes.send(other, _order())


async def test_a_look_that_shows_that_it_was_executed_ends_the_silence() -> None:
    desk = Desk(fact=Absent())
    desk.answering.set()
    writes, (here, other) = _writes(desk), _deletes(2)
    desk.silent.add(here.stream)
    with pytest.raises(NoAnswer):
        await writes.send(here, _order())
    began = asyncio.get_running_loop().time()
    await writes.settled()
    assert asyncio.get_running_loop().time() - began < 1.0
    await writes.send(other, _order())


async def test_the_right_is_looked_at_after_the_look() -> None:
    """Else what was lost while it was looked and judged would still be used."""
    desk = Desk()
    desk.answering.set()
    right = Right()

    class Losing(Delayed):
        async def judged(self, write: Write) -> Write:
            right.held = False
            return write

    with pytest.raises(LeaseLost):
        await _writes(desk).send(_deletes(1)[0], replace(_order(Losing()), permit=right))
    assert desk.sent == []


def test_what_ends_by_itself_is_no_change_of_what_exists() -> None:
    consumer = Key("Consumer", "c", "S")
    beside: tuple[Write, ...] = (
        CreateConsumer(consumer, b""),
        CreateStream(S, b""),
        PauseConsumer(consumer, "2099-01-01T00:00:00Z"),
    )
    changes: tuple[Write, ...] = (
        UpdateConsumer(consumer, b""),
        UpdateStream(S, b""),
        DeleteConsumer(consumer),
        DeleteStream(S),
        PurgeStream(S, 1, ">"),
        ResetConsumer(consumer, 1),
        PauseConsumer(consumer, ""),
    )
    assert not any(map(changes_what_exists, beside))
    assert all(map(changes_what_exists, changes))


@pytest.mark.parametrize(
    ("given", "now", "stands"),
    [
        ({}, {}, True),
        ({}, {"num_ack_pending": 5}, True),
        ({}, {"created": "later"}, False),
        ({}, {"config": {"filter_subject": "s.b"}}, False),
        ({"paused": True}, {"paused": False}, False),
        ({}, {"delivered": {"consumer_seq": 9, "stream_seq": 9}, "ack_floor": {"consumer_seq": 3, "stream_seq": 3}}, False),
        ({}, {"delivered": {"consumer_seq": 9, "stream_seq": 9}, "ack_floor": {"consumer_seq": 7, "stream_seq": 7}}, True),
    ],
)
async def test_a_step_is_sent_while_what_it_was_computed_from_stands(given: Any, now: Any, stands: bool) -> None:
    consumer = Key("Consumer", "c", "S")
    state = {"delivered": {"consumer_seq": 5, "stream_seq": 5}, "ack_floor": {"consumer_seq": 5, "stream_seq": 5}}
    before = {"created": "then", "config": {"filter_subject": "s.a"}, **state, **given}
    judge = StepJudge(Desk(fact={**before, **now}), {ConsumerInfo(consumer): before})  # type: ignore[arg-type]  # it only reads
    write = ResetConsumer(consumer, 6)
    if stands:
        assert await judge.judged(write) is write
    else:
        with pytest.raises(Moved):
            await judge.judged(write)


async def test_an_origin_that_was_made_anew_meanwhile_is_not_purged() -> None:
    before = {"created": "then", "config": {}, "state": {"last_seq": 30}}
    judge = StepJudge(Desk(fact={**before, "state": {"last_seq": 31}}), {StreamInfo(S): before})  # type: ignore[arg-type]  # it only reads
    write = PurgeStream(S, 21, "s.a")
    assert await judge.judged(write) is write
    judge = StepJudge(Desk(fact={**before, "created": "later"}), {StreamInfo(S): before})  # type: ignore[arg-type]  # it only reads
    with pytest.raises(Moved):
        await judge.judged(write)


async def test_what_is_too_large_is_not_sent_and_costs_nobody_the_connection(tmp_path: Path, start: Start) -> None:
    with Server(tmp_path / "small", config="max_payload: 16384") as server:
        engine = await start(server)
        long = orjson.dumps({"name": "S", "subjects": ["s"], "description": "x" * 3000, "metadata": {"m": "x" * 16000}})
        with pytest.raises(TooLarge, match=r"takes 19,\d{3} bytes to write, and the server takes 16,384"):
            await engine.ports.writes.send(CreateStream(S, long), order_of(engine.ports))
        fits = orjson.dumps({"name": "c", "metadata": {"m": ""}})
        config = fits.replace(b'""', b'"' + b"x" * (16384 - len(fits)) + b'"')
        with pytest.raises(TooLarge, match="and the server takes 16,384"):
            await engine.ports.writes.send(CreateConsumer(Key("Consumer", "c", "S"), config), order_of(engine.ports))
        assert engine.connection.connected
        assert engine.connection.reconnects == 0


async def test_a_change_whose_answer_takes_long_lets_others_go_on_elsewhere() -> None:
    desk = Desk()
    writes, (here, other), (there,) = _writes(desk), _deletes(2), _deletes(1, "leaf")
    tasks = [asyncio.create_task(writes.send(one, _order())) for one in (here, other, there)]
    await eventually(lambda: there in desk.sent)
    assert desk.sent == [here, there]
    desk.answering.set()
    await asyncio.gather(*tasks)
    assert desk.sent == [here, there, other]
