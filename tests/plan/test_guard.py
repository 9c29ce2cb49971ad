"""Every guard rule: what it refuses or blocks, and what lets it through."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.model.desired import Governance
from reconciler.model.identity import Key
from reconciler.model.kinds.common import Intent, State
from reconciler.model.marker import Journal, Marker
from reconciler.model.units import format_time
from reconciler.plan.bounds import guard
from reconciler.plan.change import Action, Change, Mass, Plan, Remembered, Rules
from reconciler.procedures.requests import Absent, Message, NextMessage
from tests.support.values.build import NOW, consumer, consumer_info, desired, live, marked, stream, stream_info
from tests.support.values.planned import plan

SYNC = Rules(policy="sync")
MANY = [stream(f"S{number:02}", {"maxMsgs": 10}) for number in range(20)]


def _live_many(**changes: Any) -> list[dict[str, Any]]:
    return [stream_info(marked(declared, **changes)) for declared in MANY]


def _codes(result: Plan) -> list[str]:
    return [reason.code for reason in result.refused]


def _one(result: Plan) -> Change:
    assert len(result.changes) == 1, result.changes
    return result.changes[0]


def _allow(what: str, key: str) -> Rules:
    return Rules(policy="sync", allow=frozenset({(what, key)}))


def test_nothing_declared_while_we_own_something_refuses_everything() -> None:
    assert _codes(plan(desired(), live(*_live_many()), Rules())) == ["empty"]
    assert _codes(plan(desired(), live(_live_many()[0]), Rules())) == ["empty"]
    assert _codes(plan(desired(), live(), Rules())) == []


def _unnamed(config: dict[str, Any]) -> dict[str, Any]:
    """As an earlier version marked it."""
    return {**config, "metadata": {name: text for name, text in config["metadata"].items() if name != "reconciler.key"}}


@pytest.mark.parametrize("policy", ["upsert-only", "sync"])
def test_what_an_earlier_version_marked_is_ours_and_left_as_it_is(policy: str) -> None:
    origin, member = MANY[0], consumer("S00", "c", {})
    here = live(stream_info(_unnamed(marked(origin))), consumer_info("S00", _unnamed(marked(member))))
    nothing = plan(desired(), here, Rules(policy=policy))
    assert _codes(nothing) == ["empty"]
    assert "2 resources" in nothing.refused[0].message
    for scope in (None, frozenset({origin.key, member.key})):
        result = plan(desired(MANY[1]), here, Rules(policy=policy), scope=scope)
        left = {change.key: ([reason.code for reason in change.reasons], change.action) for change in result.left}
        assert left == {key: (["policy"], Action.BLOCKED) for key in (origin.key, member.key)}
        assert not any(change.key in left for change in result.changes)


@pytest.mark.parametrize("named", [True, False])
def test_a_stream_that_stays_for_its_mark_still_depends_on_what_it_copies(*, named: bool) -> None:
    origin = stream("S", {"subjects": ["s"]}, Intent(state=State.ABSENT))
    copy = marked(stream("COPY", {"sources": [{"name": "S"}]}))
    here = live(stream_info(marked(origin)), stream_info(copy if named else _unnamed(copy)))
    change = next(one for one in plan(desired(origin), here, SYNC).changes if one.key == origin.key)
    assert any("COPY" in reason.message for reason in change.reasons) is not named


def test_half_of_the_files_gone_refuses_under_sync() -> None:
    result = plan(desired(*MANY[:10]), live(*_live_many()), SYNC)
    assert _codes(result) == ["mass-change"]
    assert "10 of 20" in result.refused[0].message


def test_without_prune_absence_deletes_nothing_and_says_so() -> None:
    result = plan(desired(*MANY[:10]), live(*_live_many()), Rules())
    assert (result.changes, result.refused) == ((), ())
    assert "10 owned but no longer declared" in result.notes[0]


def test_mass_update_by_manifest_refuses_but_the_same_as_drift_does_not() -> None:
    edited = [stream(f"S{number:02}", {"maxMsgs": 11}) for number in range(20)]
    assert _codes(plan(desired(*edited), live(*_live_many()), Rules())) == ["mass-change"]
    assert _codes(plan(desired(*MANY), live(*_live_many(max_msgs=99)), Rules())) == []


def test_mass_change_is_let_through_by_percentage_or_by_an_approved_fingerprint() -> None:
    edited = [stream(f"S{number:02}", {"maxMsgs": 11}) for number in range(20)]
    assert _codes(plan(desired(*edited), live(*_live_many()), Rules(max_change_percent=100))) == []
    refused = plan(desired(*edited), live(*_live_many()), Rules())
    approved = desired(*edited, governance=Governance(approve=refused.fingerprint))
    assert _codes(plan(approved, live(*_live_many()), Rules())) == []


def test_an_approval_is_for_the_plan_that_it_names() -> None:
    edited = [stream(f"S{number:02}", {"maxMsgs": 11}) for number in range(20)]
    other = plan(desired(*edited[:10], *MANY[10:]), live(*_live_many()), Rules()).fingerprint
    approved = desired(*edited, governance=Governance(approve=other))
    assert _codes(plan(approved, live(*_live_many()), Rules())) == ["mass-change"]


def test_a_limit_of_nothing_lets_nothing_through() -> None:
    edited = [stream("S00", {"maxMsgs": 11}), *MANY[1:]]
    assert _codes(plan(desired(*edited), live(*_live_many()), Rules())) == []
    assert _codes(plan(desired(*edited), live(*_live_many()), Rules(max_change_percent=0))) == ["mass-change"]


def test_what_is_made_anew_counts_as_much_as_what_is_deleted() -> None:
    anew = Intent(allow=frozenset({"recreate"}))
    edited = [stream(f"S{number:02}", {"maxMsgs": 10, "storage": "memory"}, anew) for number in range(20)]
    result = plan(desired(*edited), live(*_live_many()), Rules())
    assert {change.action for change in result.changes} == {Action.RECREATE}
    assert [reason.code for reason in result.refused] == ["mass-change"]
    assert "20 of 20 owned resources would be deleted or recreated" in result.refused[0].message


def test_what_is_wanted_counts_though_most_of_it_is_blocked() -> None:
    full = [stream_info(marked(one), messages=5) for one in MANY[10:15]]
    result = plan(desired(*MANY[:10]), live(*_live_many()[:10], *full, *_live_many()[15:]), SYNC)
    assert result.summary["delete"] == result.summary["blocked"] == 5
    assert "10 of 20 owned resources would be deleted" in result.refused[0].message
    assert list(result.stopped) == [Mass.REMOVED]


def test_what_was_wanted_a_moment_ago_is_counted_with_it_also_where_it_has_gone() -> None:
    fewer = desired(*MANY[:12]), live(*_live_many()[:16])
    assert _codes(plan(*fewer, SYNC)) == []
    before = Remembered(wanted={Mass.REMOVED: {one.key for one in MANY[14:]}})
    refused = plan(*fewer, SYNC, before)
    assert (
        "4 of 20 owned resources would be deleted or recreated, with those of the last hour 8 (40 %" in refused.refused[0].message
    )
    assert _codes(plan(desired(*MANY[:16]), live(*_live_many()[:16]), SYNC, before)) == [], "nothing is wanted any more"
    approve = desired(*MANY[:12], governance=Governance(approve=refused.fingerprint))
    assert plan(approve, fewer[1], SYNC, before).approved


def test_too_many_prunes_stop_neither_repairs_nor_creations_nor_updates() -> None:
    new, edited = stream("NEW"), stream("S00", {"maxMsgs": 11})
    drifted = [*_live_many()[:1], *(stream_info(marked(one, max_msgs=99)) for one in MANY[1:4]), *_live_many()[4:]]
    result = plan(desired(new, edited, *MANY[1:10]), live(*drifted), SYNC)
    assert _codes(result) == ["mass-change"]
    assert result.halted == ()
    stopped = {change.action for change in result.changes if guard.stops(result.stopped, change)}
    assert stopped == {Action.DELETE}
    assert {change.action for change in result.changes} == {Action.DELETE, Action.UPDATE, Action.CREATE}


def test_few_resources_are_not_judged_by_percentages() -> None:
    assert _codes(plan(desired(*MANY[:5]), live(*_live_many()[:9]), SYNC)) == []


@pytest.mark.parametrize(
    ("spec", "state", "names"),
    [
        ({"maxMsgs": 5}, {"messages": 9, "last_seq": 9}, "maxMsgs"),
        ({"maxBytes": "1KiB"}, {"messages": 9, "bytes": 4096}, "maxBytes"),
        ({"maxMsgsPerSubject": 1}, {"messages": 9}, "maxMsgsPerSubject"),
        ({"maxAge": "1h"}, {"messages": 9, "first_ts": format_time(NOW - 7200 * 10**9)}, "maxAge"),
        ({"retention": "interest"}, {"messages": 9}, "interest"),
    ],
)
def test_lowering_below_what_is_stored_is_blocked_until_allowed(spec: dict[str, Any], state: dict[str, Any], names: str) -> None:
    before, after = stream("ORDERS"), stream("ORDERS", spec)
    full = live(stream_info(marked(before), **state))
    change = _one(plan(desired(after), full, Rules()))
    assert (change.action, change.reasons[0].code) == (Action.BLOCKED, "data-loss")
    assert names in change.reasons[0].message
    assert _one(plan(desired(after), full, _allow("data-loss", "Stream/ORDERS"))).action is Action.UPDATE
    assert _one(plan(desired(after), live(stream_info(marked(before))), Rules())).action is Action.UPDATE


def test_lowering_that_drops_nothing_is_free() -> None:
    before, after = stream("ORDERS"), stream("ORDERS", {"maxMsgs": 10, "maxAge": "1h"})
    young = live(stream_info(marked(before), messages=9, first_ts=format_time(NOW - 60 * 10**9)))
    assert _one(plan(desired(after), young, Rules())).action is Action.UPDATE


def test_fewer_replicas_need_their_own_permission() -> None:
    before, after = stream("ORDERS", {"replicas": 3}), stream("ORDERS", {"replicas": 1})
    state = live(stream_info(marked(before)))
    assert _one(plan(desired(after), state, Rules())).reasons[0].code == "replicas"
    assert _one(plan(desired(after), state, _allow("replicas", "Stream/ORDERS"))).action is Action.UPDATE


def test_deleting_a_stream_others_hang_on_is_blocked() -> None:
    gone, own = stream("ORDERS", {}, Intent(state=State.ABSENT)), stream("ORDERS")
    theirs = consumer_info("ORDERS", consumer("ORDERS", "theirs").config)
    change = _one(plan(desired(gone), live(stream_info(marked(own)), theirs), Rules()))
    assert "consumer theirs" in change.reasons[0].message
    copy = stream_info(stream("COPY", {"mirror": {"name": "ORDERS"}}).config)
    change = _one(plan(desired(gone), live(stream_info(marked(own)), copy), Rules()))
    assert "stream COPY" in change.reasons[0].message


@pytest.mark.parametrize("left", ["num_pending", "num_ack_pending"])
def test_deleting_a_consumer_with_work_left_is_blocked(left: str) -> None:
    orders, own = stream("ORDERS"), consumer("ORDERS", "billing")
    busy = consumer_info("ORDERS", marked(own), **{left: 3})
    change = _one(plan(desired(orders), live(stream_info(marked(orders)), busy), SYNC))
    assert change.reasons[0].code == "data-loss"
    key = "Consumer/ORDERS/billing"
    assert _one(plan(desired(orders), live(stream_info(marked(orders)), busy), _allow("data-loss", key))).action is Action.DELETE


def test_protected_names_go_only_by_tombstone_or_by_name() -> None:
    orders, own = stream("ORDERS"), consumer("ORDERS", "billing")
    state = live(stream_info(marked(orders)), consumer_info("ORDERS", marked(own)))
    governed = desired(orders, governance=Governance(protect_names=True))
    assert _one(plan(governed, state, SYNC)).reasons[0].code == "protected-name"
    assert _one(plan(governed, state, _allow("delete", "Consumer/ORDERS/billing"))).action is Action.DELETE
    tombstone = desired(
        orders, consumer("ORDERS", "billing", {}, Intent(state=State.ABSENT)), governance=Governance(protect_names=True)
    )
    assert _one(plan(tombstone, state, Rules())).action is Action.DELETE


def test_a_removed_filter_with_undelivered_matches_is_a_loss() -> None:
    orders = stream("ORDERS", {"subjects": ["orders.>"]})
    before = consumer("ORDERS", "billing", {"filterSubjects": ["orders.a", "orders.b"]})
    after = consumer("ORDERS", "billing", {"filterSubjects": ["orders.a"]})
    busy = consumer_info("ORDERS", marked(before), num_pending=1, ack_floor={"consumer_seq": 4, "stream_seq": 4})
    question = NextMessage(orders.key, "orders.b", 5)
    asked = plan(desired(orders, after), live(stream_info(marked(orders)), busy), Rules())
    assert question in asked.questions
    for fact, code in ((Message(6, "2026-01-01T00:00:00Z"), "data-loss"), (Absent(), "")):
        answered = live(stream_info(marked(orders)), busy, facts={question: fact})
        change = _one(plan(desired(orders, after), answered, Rules()))
        assert (change.reasons[0].code if change.reasons else "") == code


def test_a_consumer_of_everything_that_is_narrowed_leaves_the_rest_behind() -> None:
    orders, before = stream("ORDERS", {"subjects": ["orders.>"]}), consumer("ORDERS", "billing")
    after = consumer("ORDERS", "billing", {"filterSubjects": ["orders.a"]})
    busy = consumer_info("ORDERS", marked(before), num_pending=1, ack_floor={"consumer_seq": 4, "stream_seq": 4})
    found = {NextMessage(orders.key, ">", 5): Message(6, "2026-01-01T00:00:00Z")}
    change = _one(plan(desired(orders, after), live(stream_info(marked(orders)), busy, facts=found), Rules()))
    assert [reason.code for reason in change.reasons] == ["data-loss"]


@pytest.mark.parametrize(
    ("before", "after", "state", "lost"),
    [
        ({}, {"maxDeliver": 3}, {"num_ack_pending": 2, "num_redelivered": 1}, True),
        ({"maxDeliver": 5}, {"maxDeliver": 3}, {"num_ack_pending": 2, "num_redelivered": 1}, True),
        ({}, {"maxDeliver": 1}, {"num_ack_pending": 2}, True),
        ({}, {"maxDeliver": 3}, {"num_ack_pending": 2}, False),
        ({}, {"maxDeliver": 3}, {"num_pending": 9}, False),
        ({"maxDeliver": 3}, {"maxDeliver": 5}, {"num_ack_pending": 2, "num_redelivered": 1}, False),
        ({"maxDeliver": 3}, {}, {"num_ack_pending": 2, "num_redelivered": 1}, False),
    ],
)
def test_what_was_delivered_as_often_as_is_allowed_now_is_given_up(
    before: dict[str, Any], after: dict[str, Any], state: dict[str, int], lost: bool
) -> None:
    orders, own, wanted = stream("ORDERS"), consumer("ORDERS", "billing", before), consumer("ORDERS", "billing", after)
    busy = live(stream_info(marked(orders)), consumer_info("ORDERS", marked(own), **state))
    assert _one(plan(desired(orders, wanted), busy, Rules())).action is (Action.BLOCKED if lost else Action.UPDATE)
    allowed = plan(desired(orders, wanted), busy, _allow("data-loss", "Consumer/ORDERS/billing"))
    assert _one(allowed).action is Action.UPDATE


@pytest.mark.parametrize("waiting", ["num_pending", "num_ack_pending"])
def test_a_consumer_that_is_to_go_when_nobody_reads_takes_along_what_interest_keeps_for_it(waiting: str) -> None:
    own, wanted = consumer("ORDERS", "billing"), consumer("ORDERS", "billing", {"inactiveThreshold": "1h"})
    for retention, blocked in (("interest", True), ("limits", False), ("workqueue", False)):
        orders = stream("ORDERS", {"retention": retention})
        for state, lost in (({waiting: 3}, blocked), ({}, False)):
            seen = live(stream_info(marked(orders)), consumer_info("ORDERS", marked(own), **state))
            change = _one(plan(desired(orders, wanted), seen, Rules()))
            assert [reason.code for reason in change.reasons] == (["data-loss"] if lost else []), retention


@pytest.mark.parametrize("waiting", ["num_pending", "num_ack_pending"])
def test_what_an_origin_on_interest_keeps_for_a_copy_alone_is_lost_with_it(waiting: str) -> None:
    origin, copy = stream("S", {"retention": "interest"}), stream("COPY", {"sources": [{"name": "S"}]})
    through = {"name": "x", "durable_name": "x", "sourcing": True, "metadata": {"_nats.src.stream": "COPY"}}
    infos = stream_info(marked(origin)), stream_info(marked(copy))
    state = live(*infos, consumer_info("S", through, **{waiting: 2}))
    change = _one(plan(desired(origin, stream("COPY")), state, Rules()))
    assert [reason.code for reason in change.reasons] == ["data-loss"]
    assert "not copied yet: 2 messages of Stream/S" in change.reasons[0].message
    taken_in = live(*infos, consumer_info("S", through))
    assert _one(plan(desired(origin, stream("COPY")), taken_in, Rules())).action is Action.UPDATE


def test_more_consumers_than_the_server_accepts_are_blocked_with_the_number_to_declare() -> None:
    orders = stream("ORDERS")
    crowd = [consumer("ORDERS", f"c{number}") for number in range(1001)]
    result = plan(desired(orders, *crowd), live(stream_info(marked(orders)), level=5), Rules())
    assert {change.reasons[0].code for change in result.changes} == {"max-consumers"}
    assert plan(desired(orders, *crowd), live(stream_info(marked(orders)), level=4), Rules()).summary["create"] == 1001


def test_with_a_stream_go_its_consumers_and_they_count() -> None:
    crowd = [consumer("S00", f"c{number:02}") for number in range(20)]
    state = live(*_live_many()[:3], *(consumer_info("S00", marked(one)) for one in crowd))
    result = plan(desired(*MANY[1:3]), state, SYNC)
    assert [str(change.key) for change in result.changes] == ["Stream/S00"]
    assert "21 of 23" in result.refused[0].message


def test_a_stream_whose_consumers_were_not_seen_is_not_removed() -> None:
    gone, own = stream("ORDERS", {}, Intent(state=State.ABSENT)), stream("ORDERS")
    state = live(stream_info(marked(own)), unknown={own.key: "its consumers did not answer"})
    assert _one(plan(desired(gone), state, Rules())).reasons[0].code == "unknown"
    anew = stream("ORDERS", {"storage": "memory"}, Intent(allow=frozenset({"recreate", "data-loss"})))
    assert _one(plan(desired(anew), state, Rules())).reasons[0].code == "unknown"


def test_age_is_judged_by_the_clock_of_the_server() -> None:
    before, after = stream("ORDERS"), stream("ORDERS", {"maxAge": "1h"})
    info = stream_info(marked(before), messages=9, first_ts=format_time(NOW)) | {"ts": format_time(NOW + 7200 * 10**9)}
    assert _one(plan(desired(after), live(info), Rules())).reasons[0].code == "data-loss"


ALLOWED = _allow("position-loss", "Stream/COPY")


@pytest.mark.parametrize(
    ("before", "after", "again"),
    [
        ([{"name": "S", "filterSubject": "s.a"}], [{"name": "S", "filterSubject": "s.>"}], True),
        ([{"name": "S", "subjectTransforms": [{"src": "s.>", "dest": "s.>"}]}], [{"name": "S"}], True),
        ([{"name": "S"}], [{"name": "S"}, {"name": "T"}], False),
        ([{"name": "S"}], [{"name": "T"}], False),
        ([{"name": "S", "filterSubject": "s.a"}], [{"name": "S", "filterSubject": f"s.{x}"} for x in "ab"], False),
    ],
)
def test_a_source_that_would_be_copied_again_is_blocked(before: list[Any], after: list[Any], again: bool) -> None:
    was, shall = stream("COPY", {"sources": before}), stream("COPY", {"sources": after})
    state = live(stream_info(marked(was), messages=5, last_seq=5))
    change = _one(plan(desired(shall), state, Rules()))
    assert [reason.code for reason in change.reasons] == (["position-loss"] if again else [])
    assert _one(plan(desired(shall), state, ALLOWED)).action is Action.UPDATE
    assert _one(plan(desired(shall), live(stream_info(marked(was))), Rules())).action is Action.UPDATE


@pytest.mark.parametrize("times", [1, 2])
def test_messages_delivered_too_often_are_kept_by_their_consumer_and_lost_with_it(times: int) -> None:
    orders = stream("ORDERS", {"subjects": ["orders.>"], "retention": "interest"})
    own = consumer("ORDERS", "billing", {"filterSubjects": ["orders.a"], "maxDeliver": times})
    state = (stream_info(marked(orders)), consumer_info("ORDERS", marked(own)))
    question = NextMessage(orders.key, "orders.a", 1)
    assert question in plan(desired(orders), live(*state), SYNC).questions
    kept = live(*state, facts={question: Message(6, "2026-01-01T00:00:00Z")})
    assert _one(plan(desired(orders), kept, SYNC)).reasons[0].code == "data-loss"
    assert _one(plan(desired(orders), live(*state, facts={question: Absent()}), SYNC)).action is Action.DELETE


def test_a_target_nobody_declared_is_refused_and_half_a_move_blocked() -> None:
    assert _codes(plan(desired(MANY[0]), live(), Rules(targets=frozenset({Key("Stream", "TYPO")})))) == ["unknown-target"]
    old = [stream("A", {"subjects": ["x", "y"]}), stream("B", {"subjects": ["z"]})]
    new = [stream("A", {"subjects": ["x"]}), stream("B", {"subjects": ["y", "z"]})]
    state = live(*(stream_info(marked(one)) for one in old))
    for one in new:
        assert _one(plan(desired(*new), state, Rules(targets=frozenset({one.key})))).reasons[0].code == "depends-on"
    both = Rules(targets=frozenset(one.key for one in new))
    assert _one(plan(desired(*new), state, both)).action is Action.PROCEDURE


def test_a_fingerprint_names_everything_that_moves() -> None:
    old = [stream("A", {"subjects": ["x", "y"]}), stream("B", {"subjects": ["z"]})]
    state = live(*(stream_info(marked(one)) for one in old))
    names = {
        plan(
            desired(stream("A", {"subjects": ["x"]}), stream("B", {"subjects": ["y"], "maxMsgs": most})), state, Rules()
        ).fingerprint
        for most in (5, 6)
    }
    assert len(names) == 2


def test_a_fingerprint_names_what_is_there_and_what_goes_along() -> None:
    found = {plan(desired(MANY[0]), live(_live_many(max_msgs=most)[0]), Rules()).fingerprint for most in (7, 8)}
    assert len(found) == 2
    own = [consumer("S00", name) for name in ("billing", "shipping")]
    with_one = [live(*_live_many()[:2], consumer_info("S00", marked(one))) for one in own]
    assert len({plan(desired(MANY[1]), state, SYNC).fingerprint for state in with_one}) == 2


def test_the_hold_of_a_consumer_that_is_to_go_goes_with_it() -> None:
    orders, gone = stream("ORDERS"), consumer("ORDERS", "billing", {}, Intent(state=State.ABSENT))
    journal = Journal("recreate-consumer", "hold", "x", '{"consumer":"billing","start":1}')
    hold = {"name": "_reconciler_hold_billing", "durable_name": "_reconciler_hold_billing"}
    mark = "Consumer/ORDERS/_reconciler_hold_billing"
    hold["metadata"] = Marker(owner="default", journal=journal, key=mark).to_metadata()  # type: ignore[assignment]  # JSON
    change = _one(plan(desired(orders, gone), live(stream_info(marked(orders)), consumer_info("ORDERS", hold)), Rules()))
    assert (change.key.name, change.action) == ("_reconciler_hold_billing", Action.DELETE)


def _hold_beside(**consumer_there: Any) -> Plan:
    """A consumer that is not declared any more, and the hold that a procedure left beside it, with messages to come."""
    journal = Journal("recreate-consumer", "hold", "x", '{"consumer":"billing","start":1}')
    mark = "Consumer/ORDERS/_reconciler_hold_billing"
    hold = {"name": "_reconciler_hold_billing", "metadata": Marker(owner="default", journal=journal, key=mark).to_metadata()}
    orders, billing = stream("ORDERS"), marked(consumer("ORDERS", "billing"))
    there = [consumer_info("ORDERS", billing, **consumer_there)] if consumer_there else []
    kept = consumer_info("ORDERS", hold, num_pending=3, created="2026-01-02T00:00:00Z")
    return plan(desired(orders), live(stream_info(marked(orders)), *there, kept), Rules(policy="sync", max_change_percent=100))


@pytest.mark.parametrize(
    ("there", "action"),
    [
        ({"created": "2026-01-01T00:00:00Z"}, Action.DELETE),
        ({"created": "2026-01-03T00:00:00Z", "delivered": {"consumer_seq": 1, "stream_seq": 1}}, Action.DELETE),
        ({"created": "2026-01-03T00:00:00Z"}, Action.BLOCKED),
        ({}, Action.BLOCKED),
    ],
    ids=["still itself", "made anew, and at work", "made anew, nothing delivered", "away"],
)
def test_the_hold_of_an_undeclared_consumer_goes_where_that_one_has_its_own_position(
    there: dict[str, Any], action: Action
) -> None:
    found = {change.key.name: change.action for change in _hold_beside(**there).changes}
    assert found["_reconciler_hold_billing"] is action


def test_nobody_can_make_a_removal_look_small_with_streams_of_his_own() -> None:
    declared = [stream(f"K{number}") for number in range(12)]
    theirs = [stream_info({"name": f"F{number}", "metadata": {"reconciler.owner": "default"}}) for number in range(40)]
    infos = [*(stream_info(marked(one)) for one in declared), *theirs]
    assert [reason.code for reason in plan(desired(*declared[:7]), live(*infos), SYNC).refused] == ["mass-change"]


def test_a_mark_without_a_name_is_no_reason_to_remove_anything() -> None:
    def before(config: dict[str, Any]) -> dict[str, Any]:
        return {**config, "metadata": {name: text for name, text in config["metadata"].items() if name != "reconciler.key"}}

    kept, left, own = stream("KEPT"), stream("LEFT"), consumer("KEPT", "billing")
    for mark, removed in ((before, []), (dict, ["Consumer/KEPT/billing", "Stream/LEFT"])):
        infos = [stream_info(marked(kept)), stream_info(mark(marked(left))), consumer_info("KEPT", mark(marked(own)))]
        found = plan(desired(kept), live(*infos), SYNC)
        assert sorted(str(change.key) for change in found.changes) == removed
        said = any("2 owned but no longer declared, by marks of an earlier version" in note for note in found.notes)
        assert said is not bool(removed)
    gone = [stream("LEFT", {}, Intent(state=State.ABSENT)), consumer("KEPT", "billing", {}, Intent(state=State.ABSENT))]
    infos = [stream_info(marked(kept)), stream_info(before(marked(left))), consumer_info("KEPT", before(marked(own)))]
    assert {change.action for change in plan(desired(kept, *gone), live(*infos), Rules()).changes} == {Action.DELETE}


def test_a_stream_takes_protected_consumers_with_it_only_by_name() -> None:
    others, orders, own = [stream(f"K{number}") for number in range(9)], stream("ORDERS"), consumer("ORDERS", "billing")
    infos = [stream_info(marked(one)) for one in (*others, orders)]
    state = live(*infos, consumer_info("ORDERS", marked(own)))
    governed = desired(*others, governance=Governance(protect_names=True))
    kept = plan(governed, state, SYNC)
    assert {str(change.key): change.reasons[0].code for change in kept.changes} == {
        "Consumer/ORDERS/billing": "protected-name",
        "Stream/ORDERS": "protected-name",
    }
    assert _one(plan(governed, state, _allow("delete", "Stream/ORDERS"))).action is Action.DELETE


def test_what_is_lost_stays_in_the_plan_after_it_was_allowed() -> None:
    gone, own = stream("ORDERS", {}, Intent(state=State.ABSENT)), stream("ORDERS")
    full = live(stream_info(marked(own), messages=3), consumer_info("ORDERS", consumer("ORDERS", "theirs").config))
    change = _one(plan(desired(gone), full, _allow("data-loss", "Stream/ORDERS")))
    assert change.notes == (
        "its consumers go with it: theirs",
        "allowed (data-loss): the stream holds 3 messages",
        "allowed (data-loss): others hang on it: consumer theirs",
    )


def test_an_update_that_loses_says_so_though_it_was_allowed() -> None:
    shrinks, full = stream("ORDERS", {"maxMsgs": 2}), live(stream_info(marked(stream("ORDERS")), messages=3))
    change = _one(plan(desired(shrinks), full, _allow("data-loss", "Stream/ORDERS")))
    assert (change.action, change.notes) == (Action.UPDATE, ("allowed (data-loss): maxMsgs 2 is below the 3 messages stored",))


def test_what_is_allowed_of_nothing_is_told() -> None:
    result = plan(desired(stream("ORDERS")), live(), _allow("data-loss", "Stream/ORDER"))
    assert result.notes == ("`--allow data-loss=Stream/ORDER` allows nothing: Stream/ORDER is neither declared nor live",)
    assert not plan(desired(stream("ORDERS")), live(), _allow("data-loss", "Stream/ORDERS")).notes


def test_what_is_suspended_is_in_nobodys_way() -> None:
    left, other = stream("ORDERS", {"maxMsgs": 5}, Intent(suspend=True)), stream("OTHER")
    result = plan(desired(left, other), live(stream_info(marked(stream("ORDERS")))), Rules())
    assert (len(result.blocked), result.in_the_way) == (1, ())
