"""The supervisor on a real server, with small machines that show what it must do."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import orjson
import pytest

from reconciler.engine.apply.outcome import Later, No, Result
from reconciler.model import units
from reconciler.model.identity import Key
from reconciler.procedures.machine import Abort, Ask, Do, Done, Observation, Procedure, Step, Wait
from reconciler.procedures.requests import Absent, CreateStream, Read, StreamInfo, UpdateStream
from tests.support.account.wire import Wire, eventually
from tests.support.clock.fake import Ahead, Late
from tests.support.daemon.engine import Engine, Start, supervisor_on
from tests.support.daemon.machine import STREAM, Machine
from tests.support.server.process import Server

SECOND = 10**9


def _config(description: str) -> bytes:
    return orjson.dumps({"name": "S", "subjects": ["s"], "description": description})


async def _run(engine: Engine, machine: Procedure, seconds: float = 20.0) -> Result:
    deadline = engine.ports.clock.monotonic() + seconds
    return await supervisor_on(engine.ports).run(machine, 0, deadline)


async def test_a_machine_is_stepped_from_reading_over_writing_and_waiting_to_its_end(engine: Engine, wire: Wire) -> None:
    seen: list[Any] = []

    def think(observation: Observation, memory: Any) -> Step:
        seen.append(memory)
        fact = observation.facts.get(StreamInfo(STREAM))
        if fact is None:
            return Ask((StreamInfo(STREAM),), memory)
        if isinstance(fact, Absent):
            return Do(CreateStream(STREAM, _config("one")), "creating", "created")
        assert isinstance(fact, dict)
        if fact["config"]["description"] == "one":
            return Do(UpdateStream(STREAM, _config("two")), "updating", "updated")
        if memory == "updated":
            return Wait(observation.now + SECOND // 10, "waiting", observation.now + SECOND // 10)
        assert observation.now >= memory
        return Done(("all is well",))

    result = await _run(engine, Machine(think))
    assert result == Done(("all is well",))
    assert (await wire.stream_info("S"))["config"]["description"] == "two"
    assert engine.watcher.steps == ["Stream/S: creating", "Stream/S: updating"]
    assert seen[:2] == [None, None]
    assert seen[2] == "created"


async def test_only_what_a_write_did_not_concern_still_counts_after_it(engine: Engine, wire: Wire) -> None:
    await wire.expect("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
    other = Key("Stream", "T")
    seen: list[set[Read]] = []

    def think(observation: Observation, memory: Any) -> Step:
        seen.append(set(observation.facts))
        if memory:
            return Done()
        if not observation.facts:
            return Ask((StreamInfo(STREAM), StreamInfo(other)))
        return Do(UpdateStream(STREAM, _config("one")), "updating", "updated", keeps=(StreamInfo(other),))

    await _run(engine, Machine(think))
    assert seen == [set(), {StreamInfo(STREAM), StreamInfo(other)}, {StreamInfo(other)}]


async def test_the_time_of_a_procedure_is_the_servers(engine: Engine, wire: Wire) -> None:
    await wire.expect("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
    times: list[tuple[int, str]] = []

    def think(observation: Observation, _: Any) -> Step:
        fact = observation.facts.get(StreamInfo(STREAM))
        if not isinstance(fact, dict):
            return Ask((StreamInfo(STREAM),))
        times.append((observation.now, fact["ts"]))
        return Done()

    late = replace(engine, ports=replace(engine.ports, clock=Late()))
    await _run(late, Machine(think))
    ((now, said),) = times
    assert abs(now - units.parse_time(said)) < SECOND


async def test_an_abort_says_why(engine: Engine) -> None:
    result = await _run(engine, Machine(lambda _, __: Abort("paused-by-person", "somebody paused it")))
    assert result == No("paused-by-person: somebody paused it")


async def test_a_hopeless_request_ends_the_procedure_with_the_servers_words(engine: Engine) -> None:
    result = await _run(engine, Machine(lambda _, __: Do(UpdateStream(STREAM, _config("x")), "updating")))
    assert isinstance(result, No)
    assert "stream not found" in result.why


async def test_when_the_time_is_over_it_is_left_for_the_next_pass(engine: Engine) -> None:
    result = await _run(engine, Machine(lambda observation, _: Wait(observation.now + 3600 * SECOND, "waiting")), seconds=0.2)
    assert isinstance(result, Later)


async def test_what_is_waited_for_long_is_told_once_for_each_step(engine: Engine) -> None:
    def think(observation: Observation, memory: Any) -> Step:
        polls, made = memory or (0, False)
        if polls == 40:
            return Done() if made else Do(CreateStream(STREAM, _config("one")), "creating", (35, True))
        return Wait(observation.now + SECOND // 40, "it comes to rest", (polls + 1, made))

    await _run(replace(engine, ports=replace(engine.ports, clock=Ahead())), Machine(think), seconds=300)
    assert engine.watcher.steps == ["Stream/S: waiting: it comes to rest", "Stream/S: creating"]


async def test_without_the_lease_nothing_is_written(engine: Engine, wire: Wire) -> None:
    engine.lease.held = False
    async with wire.audit() as audit:
        result = await _run(engine, Machine(lambda _, __: Do(CreateStream(STREAM, _config("x")), "creating")))
    assert (type(result), audit.writes("reconciler")) == (Later, [])


async def test_a_server_that_is_away_is_not_asked_without_a_pause(server: Server, start: Start) -> None:
    engine = await start(server, timeout=0.3)
    server.stop()
    await eventually(lambda: not engine.connection.connected)
    asked: list[Any] = []

    def think(_: Observation, __: Any) -> Step:
        asked.append(None)
        return Ask((StreamInfo(STREAM),))

    result = await _run(engine, Machine(think), seconds=1.5)
    assert isinstance(result, Later)
    assert len(asked) < 60


@pytest.mark.parametrize("lost", [True, False])
async def test_silence_makes_it_look_again_as_after_a_crash(server: Server, start: Start, lost: bool) -> None:
    """Whether the silent request was executed or not, the machine finds out by reading."""
    engine = await start(server, timeout=0.3)
    memories: list[Any] = []
    trouble = asyncio.Event()
    stop, start_again = (server.kill, server.start) if lost else (server.freeze, server.thaw)

    def think(observation: Observation, memory: Any) -> Step:
        memories.append(memory)
        if memory is None or not observation.facts:  # at first, after silence, and when it has come since it was asked for
            return Ask((StreamInfo(STREAM),), "asked")
        if isinstance(observation.facts[StreamInfo(STREAM)], dict):
            return Done()
        if not trouble.is_set():
            trouble.set()
            stop()
        return Do(CreateStream(STREAM, _config("x")), "creating", None)

    async def end_trouble() -> None:
        await trouble.wait()
        await eventually(lambda: not engine.connection.connected)
        start_again()

    ending = asyncio.create_task(end_trouble())
    result = await _run(engine, Machine(think))
    await ending
    assert result == Done()
    assert memories.count(None) > 1
