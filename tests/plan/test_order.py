"""The order of a plan, and that the order of its inputs never matters."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from reconciler.model.desired import Desired
from reconciler.plan.change import NO_MEMORY, Plan, Rules
from reconciler.plan.order import waves
from reconciler.plan.plan import plan
from reconciler.plan.scene import Scene
from tests.support.values.build import consumer, consumer_info, desired, live, marked, stream, stream_info

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
