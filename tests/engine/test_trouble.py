"""When what failed is tried again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.engine.daemon.backoff import FIRST, MOST
from reconciler.engine.daemon.trouble import AFTER_A_NO, NEVER, Trouble
from reconciler.model.identity import Key
from reconciler.plan.change import Action, Cause, Change
from reconciler.procedures.set_pause import SetPause
from tests.support.clock.fake import Clock

A = Key("Consumer", "a", "S")
CHANGE = Change(key=A, action=Action.UPDATE, cause=Cause.DRIFT, config=b"ours", live_config=b"theirs")
PROCEDURE = replace(CHANGE, action=Action.PROCEDURE, machine=SetPause(A, b"{}", ""))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def trouble(clock: Clock) -> Trouble:
    return Trouble(clock)


def test_what_was_not_answered_is_tried_again_soon_and_then_less_often(trouble: Trouble, clock: Clock) -> None:
    assert 0 <= trouble.failed(CHANGE, for_good=False) <= FIRST
    for _ in range(20):
        wait = trouble.failed(CHANGE, for_good=False)
        assert trouble.due_in(CHANGE) == pytest.approx(wait)
        clock.now += wait
        assert trouble.due_in(CHANGE) == 0.0
    assert wait <= MOST


def test_a_no_holds_until_manifest_or_live_state_change_or_five_minutes_are_over(trouble: Trouble, clock: Clock) -> None:
    assert trouble.failed(CHANGE, for_good=True) == AFTER_A_NO
    clock.now += AFTER_A_NO - 1
    assert trouble.due_in(CHANGE) == 1.0
    clock.now += 1
    assert trouble.due_in(CHANGE) == 0.0


@pytest.mark.parametrize("different", [replace(CHANGE, config=b"newer"), replace(CHANGE, live_config=b"newer")])
def test_after_a_no_another_manifest_or_live_state_is_tried_at_once(trouble: Trouble, different: Change) -> None:
    trouble.failed(CHANGE, for_good=True)
    assert trouble.due_in(different) == 0.0
    assert trouble.due_in(CHANGE) == 0.0


def test_a_failed_procedure_waits_for_a_change_or_a_person(trouble: Trouble, clock: Clock) -> None:
    assert trouble.failed(PROCEDURE, for_good=True) == NEVER
    clock.now += 10 * MOST
    assert trouble.due_in(PROCEDURE) == NEVER
    trouble.forget(A)
    assert trouble.due_in(PROCEDURE) == 0.0


def test_somebodys_edit_ends_the_wait_for_an_answer_but_not_a_no(trouble: Trouble) -> None:
    trouble.failed(CHANGE, for_good=True)
    trouble.changed(A)
    assert trouble.due_in(CHANGE) == AFTER_A_NO
    trouble.forget_all()
    for _ in range(10):
        trouble.failed(CHANGE, for_good=False)
    trouble.changed(A)
    assert trouble.due_in(CHANGE) == 0.0


def test_what_is_in_place_again_is_not_counted_any_more(trouble: Trouble) -> None:
    bucket = replace(CHANGE, key=Key("KeyValue", "settings"))
    trouble.failed(CHANGE, for_good=False)
    trouble.failed(bucket, for_good=True)
    assert trouble.counts() == {"Consumer": 1, "KeyValue": 1}
    trouble.keep([Key("Stream", "KV_settings")])
    assert trouble.counts() == {"KeyValue": 1}
