"""What is tried now, and why the rest waits: a row of the table in `engine.daemon.due` each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from reconciler.engine.apply.outcome import result_of
from reconciler.engine.daemon.due import divide
from reconciler.engine.daemon.fights import TIMES
from reconciler.engine.daemon.state import DaemonState
from reconciler.errors import ApiError
from reconciler.model.identity import Key
from reconciler.plan.change import Action, Cause, Change, Reason
from reconciler.procedures.set_pause import SetPause
from tests.support.daemon.state import DRIFT, THEIRS, A, B, S, state_of

MANIFEST = replace(DRIFT, cause=Cause.MANIFEST)
MISSING = replace(DRIFT, action=Action.CREATE, cause=Cause.MISSING)
PROCEDURE = replace(MANIFEST, action=Action.PROCEDURE, machine=SetPause(A, b"{}", ""))


@pytest.mark.parametrize("change", [DRIFT, MANIFEST, MISSING, PROCEDURE], ids=["drift", "manifest", "missing", "procedure"])
def test_what_nothing_is_in_the_way_of_is_tried_now(change: Change) -> None:
    assert divide(state_of(), [change], ()) == ([change], {})


def fought_over(state: DaemonState) -> None:
    for _ in range(TIMES + 1):
        state.agenda.drifted(A, (THEIRS,))


def refused(state: DaemonState) -> None:
    state.refused = (Reason("mass-change", "too much"),)


def failed(state: DaemonState) -> None:
    state.agenda.ended(DRIFT, result_of(ApiError(400, 10012, "no")))


CASES: dict[str, tuple[Callable[[DaemonState], object], Change]] = {
    "is blocked": (lambda _: None, DRIFT.blocked(Reason("data-loss", "it would be lost"))),
    "is left as it is: follower": (lambda state: setattr(state, "leading", False), DRIFT),
    "is left as it is: another server": (lambda state: setattr(state, "trusted", False), DRIFT),
    "is left as it is: ending": (lambda state: setattr(state, "stopping", True), DRIFT),
    "is left as it is: refused": (refused, DRIFT),
    "is being worked on": (lambda state: state.busy.add(A), DRIFT),
    "is being worked on: touched": (lambda state: state.busy.add(B), replace(MANIFEST, touches=(B,))),
    "was aborted by request": (lambda state: state.aborted.update({A: ""}), PROCEDURE),
    "is fought over": (fought_over, DRIFT),
    "failed, and is tried again later": (failed, DRIFT),
}


@pytest.mark.parametrize("reason", CASES)
def test_what_waits_is_not_tried_and_its_dependants_are_told_why(reason: str) -> None:
    prepare, change = CASES[reason]
    state = state_of()
    prepare(state)
    assert divide(state, [change], ()) == ([], {A: reason.partition(":")[0]})


@pytest.mark.parametrize(("change", "tried"), [(DRIFT, False), (MISSING, False), (MANIFEST, True), (PROCEDURE, True)])
def test_with_drift_reported_only_what_others_made_is_left_to_them(change: Change, tried: bool) -> None:
    due, _ = divide(state_of(repair_drift=False), [change], ())
    assert due == ([change] if tried else [])


def test_with_drift_reported_only_what_we_never_had_is_made() -> None:
    new = replace(MISSING, key=B)
    assert divide(state_of(repair_drift=False), [new], ())[0] == [new]


def test_a_dry_run_tries_nothing() -> None:
    assert divide(state_of(dry_run=True), [DRIFT], ())[0] == []


def test_what_is_fought_over_is_in_the_queue_for_later() -> None:
    state = state_of()
    fought_over(state)
    divide(state, [DRIFT], ())
    assert state.agenda.depth == 1


def test_an_aborted_procedure_does_not_keep_plain_repairs_back() -> None:
    state = state_of()
    state.aborted[A] = ""
    assert divide(state, [DRIFT], ())[0] == [DRIFT]


@pytest.mark.parametrize(
    ("keys", "tried"),
    [({A}, True), ({S}, True), ({B}, False), ({Key("Stream", "T")}, False)],
    ids=["itself", "its stream", "a neighbour", "another stream"],
)
def test_a_hint_is_about_its_keys_and_what_hangs_on_them(keys: set[Key], tried: bool) -> None:
    due, waiting = divide(state_of(), [DRIFT], keys)
    assert due == ([DRIFT] if tried else [])
    assert waiting == {}


def test_a_hint_about_a_partner_is_about_a_change_that_touches_it() -> None:
    moving = replace(MANIFEST, key=S, touches=(Key("Stream", "T"),))
    assert divide(state_of(), [moving], {Key("Stream", "T")})[0] == [moving]


def test_a_bucket_is_meant_by_a_hint_about_its_stream() -> None:
    bucket = replace(DRIFT, key=Key("KeyValue", "settings"))
    assert divide(state_of(), [bucket], {Key("Stream", "KV_settings")})[0] == [bucket]
