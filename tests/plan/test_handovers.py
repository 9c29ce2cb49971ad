"""Subjects that change hands between consumers: who goes first, and who waits for whom."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from reconciler.engine.apply.dependencies import Failures
from reconciler.model.identity import Key
from reconciler.model.seen.live import Live
from reconciler.plan.change import Action, Plan, Rules
from tests.support.values.build import consumer, consumer_info, desired, live, marked, stream, stream_info
from tests.support.values.planned import plan

Readers = Mapping[str, list[str]]


def _plan(retention: str, before: Readers, after: Readers, rules: Rules | None = None) -> Plan:
    orders = stream("ORDERS", {"subjects": ["o.>"], "retention": retention})
    wanted = [consumer("ORDERS", name, {"filterSubjects": filters}) for name, filters in after.items()]
    return plan(desired(orders, *wanted), _live(retention, before), rules or Rules(policy="sync"))


def _live(retention: str, readers: Readers) -> Live:
    orders = stream("ORDERS", {"subjects": ["o.>"], "retention": retention})
    seen = [consumer("ORDERS", name, {"filterSubjects": filters}) for name, filters in readers.items()]
    return live(stream_info(marked(orders)), *(consumer_info("ORDERS", marked(one)) for one in seen))


def _names(result: Plan) -> list[str]:
    return [change.key.name for change in result.changes]


A, B, C = (Key("Consumer", name, "ORDERS") for name in "abc")
MOVE = ({"a": ["o.x", "o.y"], "b": ["o.z"]}, {"a": ["o.x"], "b": ["o.y", "o.z"]})


@pytest.mark.parametrize(("retention", "first", "then"), [("interest", B, A), ("workqueue", A, B)])
def test_the_one_whose_turn_is_later_needs_the_other(retention: str, first: Key, then: Key) -> None:
    changes = _plan(retention, *MOVE).changes
    assert [(change.key, change.needs) for change in changes] == [(first, ()), (then, (first,))]
    failures = Failures()
    failures.add(changes[0], "failed")
    assert failures.hold_back(changes[1])


def test_on_limits_nobody_needs_anybody() -> None:
    assert [change.needs for change in _plan("limits", *MOVE).changes] == [(), ()]


def test_a_renamed_consumer_on_interest_goes_only_when_the_new_one_is_there() -> None:
    create, delete = _plan("interest", {"old": ["o.>"]}, {"new": ["o.>"]}).changes
    assert (create.action, delete.action, delete.needs) == (Action.CREATE, Action.DELETE, (create.key,))


def test_a_chain_begins_at_its_end() -> None:
    before, after = {"a": ["o.x"], "b": ["o.y"]}, {"a": ["o.y"], "b": ["o.z"], "c": ["o.x"]}
    assert _names(_plan("interest", before, after)) == ["c", "a", "b"]
    before, after = {"a": ["o.x"], "b": ["o.y"]}, {"a": ["o.y"], "b": ["o.z"]}
    assert _names(_plan("workqueue", before, after)) == ["b", "a"]


@pytest.mark.parametrize("retention", ["interest", "workqueue"])
def test_a_swap_has_no_order_and_is_blocked(retention: str) -> None:
    result = _plan(retention, {"a": ["o.x"], "b": ["o.y"]}, {"a": ["o.y"], "b": ["o.x"]})
    assert [(change.action, change.reasons[0].code) for change in result.changes] == [(Action.BLOCKED, "swap")] * 2


def test_who_needs_a_change_that_is_left_out_or_blocked_is_blocked() -> None:
    (alone,) = _plan("interest", *MOVE, Rules(targets=frozenset({A}))).changes
    assert (alone.action, alone.reasons[0].code) == (Action.BLOCKED, "depends-on")
    orders = stream("ORDERS", {"subjects": ["o.>"], "retention": "interest"})
    impossible = consumer("ORDERS", "new", {"priorityPolicy": "prioritized", "priorityGroups": ["g"]})
    old = consumer_info("ORDERS", marked(consumer("ORDERS", "old")))
    state = live(stream_info(marked(orders)), old, level=1)
    actions = {
        change.key.name: change.action for change in plan(desired(orders, impossible), state, Rules(policy="sync")).changes
    }
    assert actions == {"new": Action.BLOCKED, "old": Action.BLOCKED}


@pytest.mark.parametrize(("more", "first"), [({}, "reader"), ({"maxConsumers": 9}, "ORDERS")])
def test_an_interest_stream_grows_when_somebody_wants_what_it_will_store(more: dict[str, Any], first: str) -> None:
    """Unless its consumers have to wait for something else that the stream gets at the same time."""
    before = stream("ORDERS", {"subjects": ["o.x"], "retention": "interest"})
    after = stream("ORDERS", {"subjects": ["o.x", "o.y"], "retention": "interest", **more})
    result = plan(desired(after, consumer("ORDERS", "reader")), live(stream_info(marked(before))), Rules())
    assert _names(result)[0] == first


def test_a_move_to_an_interest_stream_waits_for_its_reader() -> None:
    streams = [stream("A", {"subjects": ["x", "y"]}), stream("B", {"subjects": ["z"], "retention": "interest"})]
    moved = [stream("A", {"subjects": ["x"]}), stream("B", {"subjects": ["y", "z"], "retention": "interest"})]
    reader = consumer("B", "reader", {"filterSubjects": ["y"]})
    result = plan(desired(*moved, reader), live(*(stream_info(marked(one)) for one in streams)), Rules())
    assert [(str(change.key), change.needs) for change in result.changes] == [
        ("Consumer/B/reader", ()),
        ("Stream/A", (reader.key,)),
    ]


def test_a_stream_turns_to_interest_when_its_readers_are_there() -> None:
    before, after = stream("ORDERS"), stream("ORDERS", {"retention": "interest"})
    reader = consumer("ORDERS", "reader")
    result = plan(desired(after, reader), live(stream_info(marked(before))), Rules())
    assert [(change.key, change.needs) for change in result.changes] == [(reader.key, ()), (after.key, (reader.key,))]


def test_a_chain_may_be_as_long_as_there_are_consumers() -> None:
    before = {f"c{number:04}": [f"o.{number}"] for number in range(1200)}
    after = {f"c{number:04}": [f"o.{number + 1}"] for number in range(1200)}
    result = _plan("workqueue", before, after, Rules(max_change_percent=100))
    assert _names(result) == sorted(before, reverse=True)
