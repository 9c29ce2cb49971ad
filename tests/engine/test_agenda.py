"""When something is tried again: one table, and nobody else who knows times."""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from dataclasses import replace

import pytest

from reconciler.engine.apply.outcome import After, Later, No, Outcome, Result, Unsure, Word, result_of
from reconciler.engine.daemon.agenda import Agenda
from reconciler.engine.daemon.backoff import MOST
from reconciler.errors import (
    AccessDenied,
    ApiError,
    LeaseLost,
    Moved,
    NoAnswer,
    NoResponders,
    NotSent,
    ReconcilerError,
    Refused,
    Rewritten,
    TooLarge,
    Unreachable,
    Unsettled,
)
from reconciler.model.identity import Key
from reconciler.plan.change import Cause
from reconciler.procedures.machine import Done
from tests.support.clock.fake import Clock
from tests.support.daemon.state import DRIFT, A

NOT_NOW = (10002, 10008, 10009, 10023, 10028, 10047, 10118)
SILENT = result_of(NoAnswer("no answer"))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Refused(("something else is wanted",)), After.NOTHING),
        (Unsettled("another change has no answer"), After.OTHERS),
        (LeaseLost("gone"), After.A_LOOK),
        (NotSent("away"), After.A_LOOK),
        *((kind("it says"), After.A_WHILE) for kind in (NoResponders, Unreachable, Moved)),
        *((ApiError(500, code, "not now"), After.A_WHILE) for code in NOT_NOW),
        (NoAnswer("silence"), Unsure),
        *((ApiError(400, code, "no"), No) for code in (10012, 10069, 10052)),
        (AccessDenied("publish", "x"), No),
        (Rewritten("dropped"), No),
        (TooLarge(A, 20, 10), No),
    ],
)
def test_every_kind_of_error_says_what_it_waits_for(error: ReconcilerError, expected: After | type[Result]) -> None:
    result = result_of(error)
    assert (result.after if isinstance(result, Later) else type(result)) is expected
    outcome = Outcome(DRIFT, result)
    assert (outcome.why, outcome.cause) == (str(error), error)


@pytest.mark.parametrize(
    ("result", "word"),
    [
        (Done(("copied 3",)), Word.APPLIED),
        (No("paused-by-person: somebody paused it"), Word.FAILED),
        (Later("waits for Stream/S", After.OTHERS), Word.SKIPPED),
        (Later("stopped between two steps"), Word.UNFINISHED),
        (result_of(ApiError(503, 10023, "not now")), Word.FAILED),
        *((result_of(kind("it says")), Word.UNFINISHED) for kind in (Moved, NotSent, Unsettled, NoAnswer, LeaseLost)),
    ],
)
def test_users_read_one_word_for_how_it_ended(result: Result, word: Word) -> None:
    assert Outcome(DRIFT, result).word is word


async def _nothing_is_due(agenda: Agenda) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(agenda.take(), 0.05)


async def test_what_was_looked_at_before_its_time_is_tried_when_it_has_come() -> None:
    """A hint, or the failure itself, has it looked at early: that must not take it off the list."""
    clock = Clock()
    agenda = Agenda(clock)
    for _ in range(8):
        wait = agenda.ended(DRIFT, SILENT)
    assert 0 < wait <= MOST
    agenda.look([A])
    work = await agenda.take()
    assert agenda.not_now(DRIFT)
    agenda.done(work)
    clock.now += wait
    agenda.done(await asyncio.wait_for(agenda.take(), 1))
    assert not agenda.not_now(DRIFT)


async def test_who_waits_for_others_is_looked_at_when_something_has_arrived() -> None:
    agenda = Agenda(Clock())
    assert agenda.ended(DRIFT, Later("waits for Stream/S", After.OTHERS)) == math.inf
    await _nothing_is_due(agenda)
    agenda.arrived()
    assert (await asyncio.wait_for(agenda.take(), 1)).keys == {A}


@pytest.mark.parametrize("error", [Moved("it has moved"), NoAnswer("no answer")])
async def test_a_removal_that_failed_takes_a_look_at_everything(error: ReconcilerError) -> None:
    """No look at one key removes anything."""
    clock = Clock()
    agenda = Agenda(clock)
    clock.now += agenda.ended(replace(DRIFT, cause=Cause.PRUNE), result_of(error))
    assert (await asyncio.wait_for(agenda.take(), 1)).everything


async def test_a_no_is_put_off_or_where_nobody_comes_back_never_tried_again() -> None:
    agenda = Agenda(Clock(), after_a_no=math.inf)
    assert agenda.ended(DRIFT, result_of(ApiError(400, 10052, "no"))) == math.inf
    assert agenda.not_now(DRIFT) == "is failed"
    await _nothing_is_due(agenda)


async def test_nothing_is_tried_more_often_than_its_backoff_allows() -> None:
    """Whatever else asks for it to be looked at."""
    clock = Clock()
    agenda, tries = Agenda(clock), 0
    for _ in range(6000):  # ten minutes, with a hint every tenth of a second
        agenda.look([A])
        work = await agenda.take()
        if not agenda.not_now(DRIFT):
            tries += 1
            agenda.ended(DRIFT, SILENT)
        agenda.done(work)
        clock.now += 0.1
    assert 20 <= tries <= 120  # a delay is anything up to the bound


async def test_what_does_not_answer_is_asked_less_and_less_often_until_it_does() -> None:
    clock = Clock()
    agenda, asked = Agenda(clock), 0
    agenda.silent([A])
    for _ in range(6000):  # ten minutes
        clock.now += 0.1
        with suppress(TimeoutError):
            agenda.done(await asyncio.wait_for(agenda.take(), 0.001))
            asked += 1
            assert agenda.is_silent([A])
            agenda.silent([A])
    assert 15 <= asked <= 100
    agenda.answered([A])
    assert not agenda.is_silent([A])


async def test_as_many_procedures_as_there_is_room_for_have_their_turn_and_first_what_was_begun() -> None:
    agenda, waits = Agenda(Clock()), Later("waits", After.A_TURN)
    keys = [Key("Consumer", name, "S") for name in "abcd"]
    for key in keys:
        assert agenda.ended(replace(DRIFT, key=key, continues=key.name == "c"), waits) == math.inf
    assert not agenda.due
    agenda.procedure_ended([A], Done(), 2)
    assert (await agenda.take()).keys == frozenset((keys[2], keys[0]))
    agenda.procedure_ended([A], Done(), 9)
    assert (await agenda.take()).keys == frozenset((keys[1], keys[3]))


@pytest.mark.parametrize("settled", [None, [Key("Consumer", "a", "S")]])
async def test_a_turn_is_not_spent_on_what_is_no_longer_wanted(settled: list[Key] | None) -> None:
    agenda, waits = Agenda(Clock()), Later("waits", After.A_TURN)
    gone, wanted = (replace(DRIFT, key=Key("Consumer", name, "S")) for name in "ab")
    for change in (gone, wanted):
        agenda.ended(change, waits)
    agenda.planned([wanted], settled)
    agenda.procedure_ended([], Done())
    assert (await agenda.take()).keys == frozenset([wanted.key])
