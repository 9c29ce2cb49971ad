"""The order of a plan, and that the order of its inputs never matters."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from reconciler.model.desired import Desired
from reconciler.plan.change import NO_MEMORY, Plan, Rules
from reconciler.plan.order import waves
from reconciler.plan.scene import Scene
from tests.support.values.build import consumer, consumer_info, desired, live, marked, stream, stream_info
from tests.support.values.planned import plan

EVENTS = stream("EVENTS", {"subjects": ["e.>"]})
AGGREGATE = stream("AGGREGATE", {"sources": [{"name": "EVENTS"}]})
TOP = stream("A_TOP", {"sources": [{"name": "AGGREGATE"}]})
READER = consumer("A_TOP", "reader")
EVERYTHING = (EVENTS, AGGREGATE, TOP, READER)


def _keys(result: Plan) -> list[str]:
    return [str(change.key) for change in result.changes]


def test_origins_come_before_what_copies_them_and_consumers_last() -> None:
    assert _keys(plan(desired(*EVERYTHING), live(), Rules())) == [
        "Stream/EVENTS",
        "Stream/AGGREGATE",
        "Stream/A_TOP",
        "Consumer/A_TOP/reader",
    ]


def test_deletes_run_in_reverse() -> None:
    state = live(*(stream_info(marked(s)) for s in EVERYTHING[:3]), consumer_info("A_TOP", marked(READER)))
    keep = stream("KEEP")
    assert _keys(plan(desired(keep), state, Rules(policy="sync"))) == [
        "Stream/KEEP",
        "Stream/A_TOP",
        "Stream/AGGREGATE",
        "Stream/EVENTS",
    ]


def test_a_stream_comes_after_the_deepest_of_its_origins() -> None:
    both = stream("AA_TOP", {"sources": [{"name": "EVENTS"}, {"name": "AGGREGATE"}]})
    assert _keys(plan(desired(EVENTS, AGGREGATE, both), live(), Rules())) == [
        "Stream/EVENTS",
        "Stream/AGGREGATE",
        "Stream/AA_TOP",
    ]


def test_a_declared_durable_comes_before_the_stream_that_reads_through_it() -> None:
    entry = {"name": "EVENTS", "consumer": {"name": "through", "deliverSubject": "d"}}
    spec = {"ackPolicy": "flow_control", "deliverSubject": "d", "flowControl": True, "idleHeartbeat": 10**9}
    reading = stream("AGGREGATE", {"sources": [entry]})
    assert _keys(plan(desired(EVENTS, reading, consumer("EVENTS", "through", spec)), live(), Rules())) == [
        "Stream/EVENTS",
        "Consumer/EVENTS/through",
        "Stream/AGGREGATE",
    ]


def test_a_workqueue_loses_a_consumer_before_it_gets_another_and_any_other_stream_afterwards() -> None:
    def order(retention: str) -> list[str]:
        orders = stream("ORDERS", {"subjects": ["orders.>"], "retention": retention})
        old, new = (consumer("ORDERS", name, {"filterSubjects": [f"orders.{name}"]}) for name in ("old", "new"))
        state = live(stream_info(marked(orders)), consumer_info("ORDERS", marked(old)))
        return _keys(plan(desired(orders, new), state, Rules(policy="sync")))

    assert order("workqueue") == ["Consumer/ORDERS/old", "Consumer/ORDERS/new"]
    assert order("limits") == ["Consumer/ORDERS/new", "Consumer/ORDERS/old"]


def test_a_limit_that_falls_waits_for_the_consumers_whatever_rises_beside_it() -> None:
    before = stream("ORDERS", {"consumerLimits": {"maxAckPending": 10, "inactiveThreshold": "1h"}})
    after = stream("ORDERS", {"consumerLimits": {"maxAckPending": 20, "inactiveThreshold": "1m"}})
    reader = consumer("ORDERS", "new", {"maxAckPending": 5})
    assert _keys(plan(desired(after, reader), live(stream_info(marked(before))), Rules())) == [
        "Consumer/ORDERS/new",
        "Stream/ORDERS",
    ]


def test_consumer_limits_rise_before_and_fall_after_their_consumers() -> None:
    def order(limit_before: int, limit_after: int) -> list[str]:
        before = stream("ORDERS", {"consumerLimits": {"maxAckPending": limit_before}})
        after = stream("ORDERS", {"consumerLimits": {"maxAckPending": limit_after}})
        reader = consumer("ORDERS", "new", {"maxAckPending": min(limit_before, limit_after)})
        return _keys(plan(desired(after, reader), live(stream_info(marked(before))), Rules()))

    assert order(10, 20) == ["Stream/ORDERS", "Consumer/ORDERS/new"]
    assert order(20, 10) == ["Consumer/ORDERS/new", "Stream/ORDERS"]


def test_waves_keep_the_order_and_put_equals_side_by_side() -> None:
    scene = Scene(desired(*EVERYTHING), live(), Rules(), NO_MEMORY)
    result = plan(desired(*EVERYTHING), live(), Rules())
    assert [[str(c.key) for c in wave] for wave in waves(result.changes, scene)] == [[key] for key in _keys(result)]


@given(st.randoms(use_true_random=False))
def test_input_order_never_matters(shuffler: random.Random) -> None:
    items = [stream(f"S{number}", {"maxMsgs": number + 1}) for number in range(6)] + list(EVERYTHING)
    infos = [stream_info(marked(items[number], max_msgs=99)) for number in range(3)]
    expected = plan(desired(*items), live(*infos), Rules())
    shuffler.shuffle(items)
    shuffler.shuffle(infos)
    result = plan(Desired({item.key: item for item in items}), live(*infos), Rules())
    assert result == expected
