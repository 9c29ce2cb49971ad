"""Procedures beside the passes: what they own, how they end, and how they are stopped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio

from reconciler.engine.apply.outcome import After, Later, Outcome, Word
from reconciler.engine.apply.procedures import Halt, Supervisor
from reconciler.engine.daemon.keeper import BY_REQUEST, SIDE_BY_SIDE, Keeper, Running, Starter, digests_of
from reconciler.model.identity import Key
from reconciler.model.kinds.common import Intent
from reconciler.plan.change import Action, Cause, Change
from reconciler.procedures.machine import Abort, Done, Observation, Step, Wait
from tests.support.daemon.engine import Engine, supervisor_on
from tests.support.daemon.machine import Machine
from tests.support.values.build import consumer, desired, stream

HOUR = 3600 * 10**9
A, B = Key("Consumer", "a", "S"), Key("Consumer", "b", "S")


def wait(observation: Observation, memory: Any) -> Step:
    """A procedure that waits for hours, and takes everything back when it is asked to."""
    if observation.failure:
        return Abort("refused", observation.failure)
    return Wait(observation.now + HOUR, "for nothing", memory)


@dataclass
class Bench:
    """A keeper, and how its procedures ended."""

    supervisor: Supervisor
    keeper: Keeper = field(init=False)
    ended: list[tuple[Running, Outcome]] = field(default_factory=list)
    owned_at_the_end: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.keeper = Keeper(asyncio.get_running_loop().time, self._end)

    def begin(self, think: Any, key: Key = A, touches: tuple[Key, ...] = ()) -> Running:
        """A procedure begins."""
        machine = Machine(think, key=key, touches=touches)
        change = Change(key=key, action=Action.PROCEDURE, cause=Cause.MANIFEST, machine=machine, touches=touches)
        running = Running(change, Halt(), digests_of(desired(stream("S"), consumer("S", "a")), {key, *touches}))
        self.keeper.begin(running, self.supervisor)
        return running

    async def until_ended(self, running: Running) -> Outcome:
        """How it ended."""
        assert running.task is not None
        await asyncio.wait_for(running.task, 5)
        return next(outcome for one, outcome in self.ended if one is running)

    def _end(self, running: Running, outcome: Outcome) -> None:
        self.ended.append((running, outcome))
        self.owned_at_the_end.append(any(self.keeper.owns(key) for key in running.keys))


@pytest_asyncio.fixture
async def bench(engine: Engine) -> AsyncIterator[Bench]:
    """With nothing left running."""
    bench = Bench(supervisor_on(engine.ports))
    yield bench
    await bench.keeper.stop_all()


async def test_it_owns_its_key_and_all_it_touches_until_it_has_ended(bench: Bench) -> None:
    running = bench.begin(wait, touches=(B,))
    assert bench.keeper.of(B) is running
    assert bench.keeper.owns(A)
    assert list(bench.keeper.running()) == [running]
    await bench.keeper.stop_all()
    assert not bench.keeper.running()
    assert bench.owned_at_the_end == [False]  # whoever hears of the end may plan its keys again


async def test_a_stopped_procedure_is_unfinished_and_an_aborted_one_has_taken_back_what_it_did(bench: Bench) -> None:
    stopped, aborted = bench.begin(wait), bench.begin(wait, B)
    stopped.halt.stop()
    aborted.halt.abort(BY_REQUEST)
    assert (await bench.until_ended(stopped)).word is Word.UNFINISHED
    outcome = await bench.until_ended(aborted)
    assert (outcome.word, BY_REQUEST in outcome.why) == (Word.FAILED, True)


async def test_a_procedure_that_crashes_is_a_failure_and_gives_its_keys_back(bench: Bench) -> None:
    def crash(*_: object) -> Step:
        raise ZeroDivisionError

    outcome = await bench.until_ended(bench.begin(crash))
    assert (outcome.word, "a bug in reconciler" in outcome.why) == (Word.FAILED, True)
    assert not bench.keeper.owns(A)
    assert (await bench.until_ended(bench.begin(lambda *_: Done()))).word is Word.APPLIED


async def test_what_works_towards_other_manifests_is_stopped_and_nothing_else(bench: Bench) -> None:
    outdated, kept = bench.begin(wait), bench.begin(wait, B)
    bench.keeper.stop_outdated(desired(stream("S"), consumer("S", "a")))
    await asyncio.sleep(0)
    assert not outdated.halt.requested.is_set()
    bench.keeper.stop_outdated(desired(stream("S"), consumer("S", "a", {"maxDeliver": 5})))
    assert (await bench.until_ended(outdated)).word is Word.UNFINISHED
    assert bench.keeper.owns(B)
    assert not kept.halt.requested.is_set()


@pytest.mark.parametrize("intent", [Intent(), Intent(prevent_update=True)], ids=["nothing", "not its state"])
def test_what_the_manifests_want_is_the_configuration_and_the_state(intent: Intent) -> None:
    assert digests_of(desired(stream("S", intent=intent)), {Key("Stream", "S")}) == digests_of(
        desired(stream("S")), {Key("Stream", "S")}
    )


async def test_one_that_there_is_no_room_for_is_not_begun_and_owns_nothing(bench: Bench) -> None:
    started = [bench.begin(wait, Key("Consumer", f"c{number}", "S")) for number in range(SIDE_BY_SIDE)]
    change = Change(key=A, action=Action.PROCEDURE, cause=Cause.MANIFEST, machine=Machine(wait, key=A))
    starter = Starter(bench.keeper, bench.supervisor, desired(stream("S"), consumer("S", "a")))
    waits = starter.begin(change)
    assert isinstance(waits, Later)
    assert waits.after is After.A_TURN
    assert not bench.keeper.owns(A)
    started[0].halt.stop()
    await bench.until_ended(started[0])
    starter.begin(change)
    assert bench.keeper.owns(A)
