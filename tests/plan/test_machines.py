"""Which changes become procedures, which are blocked instead, and which half-done ones go on."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from reconciler.model.identity import Key
from reconciler.model.kinds.common import Intent, State
from reconciler.model.marker import Journal, Marker, read_marker
from reconciler.model.residue import Residue
from reconciler.model.seen.live import Live
from reconciler.plan.change import Action, Change, Plan, Remembered, Rules
from reconciler.procedures.holds import hold_key
from reconciler.procedures.requests import Absent, Message, NextMessage, StreamInfo, Unanswered
from tests.support.values.build import OLD, consumer, consumer_info, desired, live, marked, stream, stream_info
from tests.support.values.planned import plan

ORDERS = stream("ORDERS", {"subjects": ["orders.>"]})
ONE = consumer("ORDERS", "billing", {"filterSubjects": ["orders.a"]})
TWO = consumer("ORDERS", "billing", {"filterSubjects": ["orders.a", "orders.b"]})
SLOWER = consumer("ORDERS", "billing", {"filterSubjects": ["orders.a"], "maxWaiting": 9})
SEARCH = NextMessage(ORDERS.key, "orders.b", 1)
COUNT = StreamInfo(ORDERS.key, "orders.a")
FOUND = Message(3, "2026-01-01T00:00:00Z")


def _stored(declared: Any = ONE, facts: dict[Any, Any] | None = None, level: int = 5, **info: Any) -> Live:
    at = {"delivered": {"consumer_seq": 10, "stream_seq": 40}, "ack_floor": {"consumer_seq": 10, "stream_seq": 40}}
    reader = consumer_info("ORDERS", marked(declared), **(at | info))
    full = stream_info(marked(ORDERS), messages=50, last_seq=50)
    return live(full, reader, level=level, facts=facts or {})


def _one(result: Plan) -> Change:
    assert len(result.changes) == 1, result.changes
    return result.changes[0]


def _allow(what: str, key: str) -> Rules:
    return Rules(allow=frozenset({(what, key)}))


def test_an_added_filter_asks_what_is_stored_before_deciding() -> None:
    assert SEARCH in plan(desired(ORDERS, TWO), _stored(), Rules()).questions


def test_an_added_filter_without_stored_matches_is_only_checked_afterwards() -> None:
    change = _one(plan(desired(ORDERS, TWO), _stored(facts={SEARCH: Absent()}), Rules()))
    assert change.procedure is not None
    assert (change.procedure.expected_duplicates, change.procedure.point_of_no_return) == (0, "")


def test_a_question_nobody_answered_blocks_instead_of_guessing() -> None:
    change = _one(plan(desired(ORDERS, TWO), _stored(facts={SEARCH: Unanswered("permission denied")}), Rules()))
    assert (change.action, change.reasons[0].code) == (Action.BLOCKED, "unknown")


def test_an_added_filter_over_a_backlog_is_a_procedure_with_its_duplicates() -> None:
    facts = {SEARCH: FOUND, COUNT: {"state": {"subjects": {"orders.a": 12}}}}
    change = _one(plan(desired(ORDERS, TWO), _stored(facts=facts, num_pending=2), Rules()))
    assert change.action is Action.PROCEDURE
    assert change.procedure is not None
    assert (change.procedure.name, change.procedure.expected_duplicates) == ("filter-add", 10)


@pytest.mark.parametrize(("level", "spec"), [(3, {}), (5, {"deliverPolicy": "new"})])
def test_where_the_cursor_cannot_go_back_it_is_blocked_with_the_range(level: int, spec: dict[str, Any]) -> None:
    before = consumer("ORDERS", "billing", {"filterSubjects": ["orders.a"], **spec})
    after = consumer("ORDERS", "billing", {"filterSubjects": ["orders.a", "orders.b"], **spec})
    state = _stored(before, {SEARCH: FOUND}, level)
    change = _one(plan(desired(ORDERS, after), state, Rules()))
    assert (change.action, change.reasons[0].code) == (Action.BLOCKED, "position-loss")
    assert "from sequence 3 on" in change.reasons[0].message
    allowed = _one(plan(desired(ORDERS, after), state, _allow("position-loss", "Consumer/ORDERS/billing")))
    assert (allowed.action, allowed.machine) == (Action.UPDATE, None)


def test_an_immutable_field_needs_permission_and_then_a_procedure() -> None:
    assert _one(plan(desired(ORDERS, SLOWER), _stored(), Rules())).reasons[0].code == "immutable"
    change = _one(plan(desired(ORDERS, SLOWER), _stored(), _allow("recreate", "Consumer/ORDERS/billing")))
    assert change.action is Action.PROCEDURE
    assert change.touches == (hold_key(SLOWER.key),)


def test_a_pause_by_a_person_blocks_a_procedure() -> None:
    state = _stored(facts={SEARCH: FOUND}, paused=True)
    assert _one(plan(desired(ORDERS, TWO), state, Rules())).reasons[0].code == "paused-by-person"


def test_a_half_done_procedure_goes_on() -> None:
    journal = Journal("filter-add", "pause", TWO.digest, '{"added":["orders.b"]}')
    config = marked(ONE)
    config["metadata"] |= Marker(owner="default", spec=ONE.digest, journal=journal, key=ONE.key.mark).to_metadata()
    half_done = consumer_info("ORDERS", config, paused=True)
    change = _one(plan(desired(ORDERS, TWO), live(stream_info(marked(ORDERS)), half_done), Rules()))
    assert change.action is Action.PROCEDURE
    assert "goes on with filter-add" in change.notes[0]
    assert read_marker(orjson.loads(change.config)["metadata"], change.key.mark).journal is None, "else it would never be cleared"


def test_what_a_procedure_left_different_is_so_until_the_manifest_changes() -> None:
    left = (Residue("deliver_policy", "by_start_sequence", None), Residue("opt_start_seq", 7, None))
    config = marked(ONE, deliver_policy="by_start_sequence", opt_start_seq=7)
    config["metadata"] |= Marker(owner="default", spec=ONE.digest, residue=left, key=ONE.key.mark).to_metadata()
    state = live(stream_info(marked(ORDERS)), consumer_info("ORDERS", config))
    assert plan(desired(ORDERS, ONE), state, Rules()).changes == ()
    newer = consumer("ORDERS", "billing", {"filterSubjects": ["orders.a"], "deliverPolicy": "new"})
    change = _one(plan(desired(ORDERS, newer), state, Rules()))
    assert (change.action, [reason.code for reason in change.reasons]) == (Action.BLOCKED, ["immutable"])


def _hold() -> dict[str, Any]:
    journal = Journal("recreate-consumer", "hold", SLOWER.digest, '{"consumer":"billing","start":7}')
    name = hold_key(SLOWER.key).name
    metadata = Marker(owner="default", journal=journal, key=hold_key(SLOWER.key).mark).to_metadata()
    return consumer_info("ORDERS", {"name": name, "durable_name": name, "metadata": metadata}, paused=True)


def test_a_consumer_lost_between_delete_and_create_is_found_by_its_hold() -> None:
    change = _one(plan(desired(ORDERS, SLOWER), live(stream_info(marked(ORDERS)), _hold()), Rules()))
    assert change.action is Action.PROCEDURE
    assert change.procedure is not None
    assert change.procedure.name == "recreate-consumer"


def test_a_hold_that_makes_no_sense_starts_no_new_consumer() -> None:
    hold = _hold()
    hold["config"]["metadata"]["reconciler.procedure"] = "nonsense"
    change = _one(plan(desired(ORDERS, SLOWER), live(stream_info(marked(ORDERS)), hold), Rules()))
    assert [reason.code for reason in change.reasons] == ["damaged-mark"]


@pytest.mark.parametrize(
    "journal",
    [
        Journal("filter-add", "pause", "x", '{"added":[]}'),
        Journal("recreate-consumer", "hold", "x", '{"consumer":"another","start":7}'),
    ],
)
def test_what_is_only_called_like_a_hold_begins_nothing(journal: Journal) -> None:
    hold = _hold()
    hold["config"]["metadata"] = Marker(owner="default", journal=journal, key=hold_key(SLOWER.key).mark).to_metadata()
    there = live(stream_info(marked(ORDERS)), hold, consumer_info("ORDERS", marked(SLOWER)))
    assert not [change for change in plan(desired(ORDERS, SLOWER), there, Rules()).changes if change.key == SLOWER.key]
    change = _one(plan(desired(ORDERS, SLOWER), live(stream_info(marked(ORDERS)), hold), Rules()))
    assert change.action is Action.CREATE


def test_somebody_elses_damaged_hold_is_in_nobodys_way() -> None:
    hold = _hold()
    hold["config"]["metadata"] |= {"reconciler.procedure": "nonsense", "reconciler.owner": "somebody"}
    change = _one(plan(desired(ORDERS, SLOWER), live(stream_info(marked(ORDERS)), hold), Rules()))
    assert change.action is Action.CREATE


def test_a_hold_left_beside_the_finished_consumer_is_taken_away() -> None:
    done = consumer_info("ORDERS", marked(SLOWER))
    change = _one(plan(desired(ORDERS, SLOWER), live(stream_info(marked(ORDERS)), done, _hold()), Rules()))
    assert change.action is Action.PROCEDURE


def test_a_consumer_seen_before_is_restored_behind_its_floor() -> None:
    memory = Remembered(owned={ONE.key: ONE.digest}, floors={ONE.key: 40}, created={ORDERS.key: OLD})
    change = _one(plan(desired(ORDERS, ONE), live(stream_info(marked(ORDERS))), Rules(), memory))
    assert change.procedure is not None
    assert change.procedure.name == "restore-consumer"
    as_declared = consumer("ORDERS", "billing", {"filterSubjects": ["orders.a"]}, Intent(on_missing="policy"))
    change = _one(plan(desired(ORDERS, as_declared), live(stream_info(marked(ORDERS))), Rules(), memory))
    assert change.action is Action.CREATE


def test_a_declared_pause_is_set_remembered_and_lifted_only_if_it_is_ours() -> None:
    until = "2099-01-01T00:00:00Z"
    paused = consumer("ORDERS", "billing", {"filterSubjects": ["orders.a"]}, Intent(pause_until=until))
    change = _one(plan(desired(ORDERS, paused), _stored(), Rules()))
    assert change.procedure is not None
    assert change.procedure.name == "set-pause"
    assert orjson.loads(change.config)["metadata"]["reconciler.pauseUntil"] == until
    by_person = marked(ONE, pause_until=until)
    state = live(stream_info(marked(ORDERS)), consumer_info("ORDERS", by_person, paused=True))
    assert plan(desired(ORDERS, ONE), state, Rules()).changes == ()


def test_a_pause_that_is_declared_no_more_ends() -> None:
    until = "2099-01-01T00:00:00Z"
    config = marked(ONE, pause_until=until)
    config["metadata"]["reconciler.pauseUntil"] = until
    state = live(stream_info(marked(ORDERS)), consumer_info("ORDERS", config, paused=True))
    change = _one(plan(desired(ORDERS, ONE), state, Rules()))
    assert change.procedure is not None
    assert change.procedure.name == "set-pause"


def test_a_subject_that_moves_between_streams_is_one_procedure() -> None:
    old = [stream("A", {"subjects": ["x", "y"]}), stream("B", {"subjects": ["z"]})]
    new = [stream("A", {"subjects": ["y"]}), stream("B", {"subjects": ["x", "z"]})]
    change = _one(plan(desired(*new), live(*(stream_info(marked(one)) for one in old)), Rules()))
    assert (change.key, change.action, change.touches) == (Key("Stream", "A"), Action.PROCEDURE, (Key("Stream", "B"),))
    assert [field.path for field in change.fields] == ["subjects", "Stream/B.subjects"]


def test_a_subject_somebody_else_listens_to_blocks_at_plan_time() -> None:
    theirs = stream_info(stream("THEIRS", {"subjects": ["x.*"]}).config)
    change = _one(plan(desired(stream("MINE", {"subjects": ["x.y"]})), live(theirs), Rules()))
    assert (change.action, change.reasons[0].code) == (Action.BLOCKED, "subject-overlap")


def test_a_renamed_stream_gives_its_subjects_to_the_new_one() -> None:
    old, new = stream("OLD", {"subjects": ["x"]}), stream("NEW", {"subjects": ["x"]})
    gone = stream("OLD", {}, Intent(state=State.ABSENT))
    result = plan(desired(new, gone), live(stream_info(marked(old))), Rules())
    assert [(str(c.key), c.action) for c in result.changes] == [
        ("Stream/NEW", Action.PROCEDURE),
        ("Stream/OLD", Action.DELETE),
    ]
    kept = plan(desired(new), live(stream_info(marked(old))), Rules())
    assert kept.changes[0].reasons[0].code == "subject-overlap"
