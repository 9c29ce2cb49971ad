"""What a process remembers from snapshot to snapshot."""

from __future__ import annotations

from reconciler.engine import forget, remember
from reconciler.model.identity import Key
from reconciler.plan.change import NO_MEMORY
from tests.support.build import consumer, consumer_info, live, marked, stream, stream_info

ORDERS = stream("ORDERS")
BILLING = consumer("ORDERS", "billing")
SEEN = live(
    stream_info(marked(ORDERS)),
    stream_info(stream("THEIRS").config),
    consumer_info("ORDERS", marked(BILLING), ack_floor={"consumer_seq": 5, "stream_seq": 41}),
    consumer_info("ORDERS", consumer("ORDERS", "theirs").config),
)


def test_owners_and_floors_of_what_is_ours_are_remembered() -> None:
    memory = remember(NO_MEMORY, SEEN, "default")
    assert memory.owned == {ORDERS.key: ORDERS.digest, BILLING.key: BILLING.digest}
    assert memory.floors == {BILLING.key: 41}


def test_a_floor_outlives_its_consumer_but_ownership_does_not() -> None:
    memory = remember(remember(NO_MEMORY, SEEN, "default"), live(stream_info(marked(ORDERS))), "default")
    assert memory.owned == {ORDERS.key: ORDERS.digest}
    assert memory.floors == {BILLING.key: 41}


def test_silence_changes_no_memory() -> None:
    before = remember(NO_MEMORY, SEEN, "default")
    assert remember(before, live(unknown={Key("Stream", "*"): "no answer"}), "default") == before


def test_what_we_removed_ourselves_is_forgotten() -> None:
    memory = forget(remember(NO_MEMORY, SEEN, "default"), [BILLING.key])
    assert (memory.owned, memory.floors) == ({ORDERS.key: ORDERS.digest}, {})
