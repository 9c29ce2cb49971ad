"""The decision table of plan.decide, row by row."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.model.identity import Key
from reconciler.model.kinds.common import Intent, State
from reconciler.model.seen.live import Live
from reconciler.plan.change import Action, Cause, Change, Plan, Remembered, Rules
from tests.support.values.build import consumer, consumer_info, desired, live, marked, stream, stream_info
from tests.support.values.planned import plan

RULES = Rules()
ORDERS = stream("ORDERS", {"subjects": ["orders.>"], "maxAge": "7d"})
BILLING = consumer("ORDERS", "billing", {"filterSubjects": ["orders.paid"]})


def _live_orders(**changes: Any) -> dict[str, Any]:
    return stream_info(marked(ORDERS, **changes))


def _only(result: Plan) -> Change:
    assert len(result.changes) == 1, result.changes
    return result.changes[0]


def test_declared_and_not_live_is_created_with_our_marker() -> None:
    change = _only(plan(desired(ORDERS), live(), RULES))
    assert (change.action, change.cause) == (Action.CREATE, Cause.MISSING)
    assert b'"reconciler.owner":"default"' in change.config


def test_equal_and_ours_is_unchanged() -> None:
    result = plan(desired(ORDERS, BILLING), live(_live_orders(), consumer_info("ORDERS", marked(BILLING))), RULES)
    assert result.changes == ()
    assert result.summary["unchanged"] == 2


def test_a_field_somebody_changed_is_drift_with_exactly_that_field() -> None:
    change = _only(plan(desired(ORDERS), live(_live_orders(max_msgs=7)), RULES))
    assert (change.action, change.cause) == (Action.UPDATE, Cause.DRIFT)
    assert [(f.path, f.live, f.declared) for f in change.fields] == [("maxMsgs", 7, -1)]


def test_a_field_the_manifest_changed_has_cause_manifest() -> None:
    before = stream("ORDERS", {"subjects": ["orders.>"], "maxAge": "8d"})
    change = _only(plan(desired(ORDERS), live(stream_info(marked(before))), RULES))
    assert (change.action, change.cause) == (Action.UPDATE, Cause.MANIFEST)
    assert [(f.path, f.live, f.declared) for f in change.fields] == [("maxAge", "8d", "7d")]


def test_unmarked_is_blocked_unless_adopting_is_permitted() -> None:
    unmarked = stream_info(ORDERS.config)
    change = _only(plan(desired(ORDERS), live(unmarked), RULES))
    assert change.action is Action.BLOCKED
    assert change.reasons[0].code == "not-owned"
    adopted = _only(plan(desired(ORDERS), live(unmarked), Rules(adopt=True)))
    assert (adopted.action, adopted.fields) == (Action.ADOPT, ())


def test_another_owner_is_never_touched_even_when_adopting() -> None:
    theirs = stream_info(marked(ORDERS, owner="somebody", max_msgs=3))
    change = _only(plan(desired(ORDERS), live(theirs), Rules(adopt=True)))
    assert change.action is Action.BLOCKED
    assert change.reasons[0].code == "other-owner"


@pytest.mark.parametrize(
    ("rules", "action"),
    [
        (Rules(adopt=True, take_from=frozenset({"somebody"}), targets=frozenset({ORDERS.key})), Action.ADOPT),
        (Rules(adopt=True, take_from=frozenset({"else"}), targets=frozenset({ORDERS.key})), Action.BLOCKED),
        (Rules(take_from=frozenset({"somebody"}), targets=frozenset({ORDERS.key})), Action.BLOCKED),
        (Rules(adopt=True, take_from=frozenset({"somebody"})), Action.BLOCKED),
    ],
)
def test_only_what_is_named_is_taken_from_its_owner(rules: Rules, action: Action) -> None:
    theirs = stream_info(marked(ORDERS, owner="somebody"))
    assert _only(plan(desired(ORDERS), live(theirs), rules)).action is action


def test_a_tombstone_is_no_permission_to_delete_what_belongs_to_another_owner() -> None:
    gone, theirs = stream("ORDERS", {}, Intent(state=State.ABSENT)), stream_info(marked(ORDERS, owner="somebody"))
    change = _only(plan(desired(gone), live(theirs), Rules(adopt=True)))
    assert (change.action, [reason.code for reason in change.reasons]) == (Action.BLOCKED, ["other-owner"])


def test_a_marker_wiped_in_this_process_is_repaired_without_asking() -> None:
    memory = Remembered(owned={ORDERS.key: ORDERS.digest})
    change = _only(plan(desired(ORDERS), live(stream_info(ORDERS.config)), RULES, memory))
    assert (change.action, change.cause, change.fields) == (Action.UPDATE, Cause.DRIFT, ())


def test_another_resource_under_the_name_of_ours_is_not_ours() -> None:
    memory = Remembered(owned={ORDERS.key: ORDERS.digest}, created={ORDERS.key: "2025-01-01T00:00:00Z"})
    change = _only(plan(desired(ORDERS), live(stream_info(ORDERS.config)), RULES, memory))
    assert change.reasons[0].code == "not-owned"


def test_a_consumer_the_server_keeps_is_never_touched() -> None:
    src = consumer("ORDERS", "JS_SRC_abc")
    own = consumer_info("ORDERS", src.config | {"sourcing": True})
    result = plan(desired(ORDERS), live(_live_orders(), own), Rules(policy="sync"))
    assert result.changes == ()


def test_tombstone_deletes_what_is_ours_and_empty() -> None:
    gone = stream("ORDERS", {}, Intent(state=State.ABSENT))
    change = _only(plan(desired(gone), live(_live_orders()), RULES))
    assert (change.action, change.cause) == (Action.DELETE, Cause.MANIFEST)


def test_tombstone_of_a_stream_with_messages_is_blocked_until_allowed_by_name() -> None:
    gone = stream("ORDERS", {}, Intent(state=State.ABSENT))
    full = stream_info(marked(ORDERS), messages=3, last_seq=3)
    assert _only(plan(desired(gone), live(full), RULES)).reasons[0].code == "data-loss"
    allowed = Rules(allow=frozenset({("data-loss", "Stream/ORDERS")}))
    assert _only(plan(desired(gone), live(full), allowed)).action is Action.DELETE


def test_absence_is_pruned_only_under_sync() -> None:
    others = [stream(f"S{i}") for i in range(9)]
    state = live(_live_orders(), *(stream_info(marked(other)) for other in others))
    assert plan(desired(*others), state, RULES).changes == ()
    change = _only(plan(desired(*others), state, Rules(policy="sync")))
    assert (change.key, change.action, change.cause) == (ORDERS.key, Action.DELETE, Cause.PRUNE)


def test_pruning_is_about_nothing_that_belongs_to_another_owner() -> None:
    theirs = consumer_info("ORDERS", marked(BILLING, owner="somebody"))
    others = stream_info(marked(stream("THEIRS"), owner="somebody"))
    assert plan(desired(ORDERS), live(_live_orders(), theirs, others), Rules(policy="sync")).changes == ()


def test_unmanaged_only_checks_that_it_exists() -> None:
    watched = stream("ORDERS", {}, Intent(state=State.UNMANAGED))
    assert plan(desired(watched), live(stream_info(ORDERS.config)), RULES).changes == ()
    assert _only(plan(desired(watched), live(), RULES)).reasons[0].code == "missing"


def test_silence_is_never_absence() -> None:
    state = live(unknown={ORDERS.key: "the stream's leader did not answer"})
    change = _only(plan(desired(ORDERS), state, RULES))
    assert (change.action, change.reasons[0].code) == (Action.BLOCKED, "unknown")
    state = live(_live_orders(), unknown={BILLING.key: "the consumer's leader did not answer"})
    change = _only(plan(desired(ORDERS, BILLING), state, RULES))
    assert (change.key, change.action, change.reasons[0].code) == (BILLING.key, Action.BLOCKED, "unknown")


def test_suspended_differences_are_shown_and_blocked() -> None:
    suspended = stream("ORDERS", {"subjects": ["orders.>"], "maxAge": "7d"}, Intent(suspend=True))
    assert plan(desired(suspended), live(_live_orders()), RULES).changes == ()
    change = _only(plan(desired(suspended), live(_live_orders(max_msgs=5)), RULES))
    assert change.reasons[0].code == "suspended"


@pytest.mark.parametrize(
    ("intent", "state", "rules"),
    [
        (Intent(suspend=True), live(), RULES),
        (Intent(suspend=True, state=State.ABSENT), live(_live_orders()), RULES),
        (Intent(suspend=True), live(stream_info(ORDERS.config)), Rules(adopt=True)),
    ],
)
def test_what_is_suspended_is_neither_created_nor_deleted_nor_adopted(intent: Intent, state: Live, rules: Rules) -> None:
    suspended = stream("ORDERS", {"subjects": ["orders.>"], "maxAge": "7d"}, intent)
    assert _only(plan(desired(suspended), state, rules)).reasons[0].code == "suspended"


def test_ignored_fields_are_left_to_others_and_survive_our_update() -> None:
    declared = stream("ORDERS", {"subjects": ["orders.>"], "maxAge": "7d"}, Intent(ignore=("maxMsgs", "metadata.team")))
    theirs = marked(declared, max_msgs=7, max_bytes=5)
    theirs["metadata"] |= {"team": "blue"}
    change = _only(plan(desired(declared), live(stream_info(theirs)), RULES))
    assert [f.path for f in change.fields] == ["maxBytes"]
    assert b'"max_msgs":7' in change.config
    assert b'"team":"blue"' in change.config


def test_fields_of_a_newer_server_are_carried_over_and_never_a_difference() -> None:
    theirs = marked(ORDERS, brand_new_field={"x": 1})
    assert plan(desired(ORDERS), live(stream_info(theirs)), RULES).changes == ()
    change = _only(plan(desired(ORDERS), live(stream_info(theirs | {"max_msgs": 7})), RULES))
    assert b'"brand_new_field":{"x":1}' in change.config


def test_too_old_a_server_blocks_with_the_level() -> None:
    atomic = stream("ORDERS", {"allowAtomic": True})
    change = _only(plan(desired(atomic), live(level=1), RULES))
    assert (change.action, change.reasons[0].code) == (Action.BLOCKED, "level")


def test_immutable_and_one_way_fields_are_blocked_before_any_request() -> None:
    memory_stream = stream("ORDERS", {"subjects": ["orders.>"], "maxAge": "7d", "storage": "memory"})
    assert _only(plan(desired(memory_stream), live(_live_orders()), RULES)).reasons[0].code == "immutable"
    denied = _live_orders(deny_delete=True)
    assert _only(plan(desired(ORDERS), live(denied), RULES)).reasons[0].code == "one-way"


@pytest.mark.parametrize(("before", "after"), [("workqueue", "limits"), ("limits", "workqueue"), ("workqueue", "interest")])
def test_a_stream_neither_becomes_a_workqueue_nor_stops_being_one(before: str, after: str) -> None:
    was, shall = (stream("ORDERS", {"retention": retention}) for retention in (before, after))
    change = _only(plan(desired(shall), live(stream_info(marked(was))), RULES))
    assert [reason.code for reason in change.reasons] == ["immutable"]


def test_a_consumer_without_its_stream_is_blocked() -> None:
    change = _only(plan(desired(BILLING), live(), RULES))
    assert change.reasons[0].code == "no-such-stream"


def test_dependants_of_a_blocked_create_are_blocked_with_it() -> None:
    atomic = stream("ORDERS", {"allowAtomic": True, "subjects": ["orders.>"]})
    result = plan(desired(atomic, BILLING), live(level=1), RULES)
    assert {str(c.key): c.reasons[0].code for c in result.changes} == {
        "Stream/ORDERS": "level",
        "Consumer/ORDERS/billing": "depends-on",
    }


def test_a_block_reaches_the_copy_of_a_copy() -> None:
    atomic = stream("EVENTS", {"allowAtomic": True, "subjects": ["e.>"]})
    copy, top = stream("COPY", {"sources": [{"name": "EVENTS"}]}), stream("TOP", {"sources": [{"name": "COPY"}]})
    result = plan(desired(atomic, copy, top, consumer("TOP", "reader")), live(level=1), RULES)
    assert {str(change.key): change.reasons[0].code for change in result.changes} == {
        "Stream/EVENTS": "level",
        "Stream/COPY": "depends-on",
        "Stream/TOP": "depends-on",
        "Consumer/TOP/reader": "depends-on",
    }


def test_consumer_limits_of_the_stream_are_its_consumers_defaults() -> None:
    limited = stream("ORDERS", {"subjects": ["orders.>"], "maxAge": "7d", "consumerLimits": {"maxAckPending": 50}})
    echoed = marked(BILLING, max_ack_pending=50)
    assert (
        plan(desired(limited, BILLING), live(stream_info(marked(limited)), consumer_info("ORDERS", echoed)), RULES).changes == ()
    )
    other = marked(BILLING, max_ack_pending=1000)
    result = plan(desired(limited, BILLING), live(stream_info(marked(limited)), consumer_info("ORDERS", other)), RULES)
    assert [f.path for f in _only(result).fields] == ["maxAckPending"]


def test_a_bucket_left_behind_is_pruned_under_its_bucket_name() -> None:
    bucket = stream("KV_config")
    others = [stream(f"S{i}") for i in range(9)]
    state = live(stream_info(marked(bucket)), *(stream_info(marked(other)) for other in others))
    assert _only(plan(desired(*others), state, Rules(policy="sync"))).key == Key("KeyValue", "config")
