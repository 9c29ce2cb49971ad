"""How far behind our consumers are, read off what the server says of them."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from reconciler.model.identity import Key
from reconciler.model.seen.live import Live, LiveConsumer
from reconciler.observe.status.backlog import Backlog, backlog
from tests.support.account.wire import Wire
from tests.support.account.work import Work
from tests.support.values import build

CONSUMER = Key("Consumer", "c", "S")


def of(*seen: LiveConsumer) -> Backlog:
    """Of these on one stream, for us."""
    server = build.live().server
    return backlog(Live(server, build.NOW, {}, {Key("Stream", "S"): {one.name: one for one in seen}}), "default")


def one(pending: int, unacknowledged: int, most: int, owner: str = "default", *, whole: bool = False) -> Backlog:
    """Of one consumer, as a list has it or (`whole`) as it is patched in after a write."""
    config = build.marked(build.consumer("S", "c"), owner, max_ack_pending=most)
    state = {"delivered": {"consumer_seq": 9}, "num_ack_pending": unacknowledged, "num_redelivered": 3, "num_pending": pending}
    info = {"stream_name": "S", "name": "c", "created": build.OLD, "config": config, **state}
    seen = LiveConsumer.seen(dict(reversed(info.items())) if whole else info)
    assert bool(seen.state) is not whole
    return of(seen)


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ((0, 0, 5), Backlog()),
        ((1, 4, 5), Backlog(1, 4)),
        ((1, 5, 5), Backlog(1, 5, frozenset({CONSUMER}))),
        ((0, 5, 5), Backlog(0, 5)),
        ((7, 9999, -1), Backlog(7, 9999)),
        ((7, 0, 0), Backlog(7, 0)),
    ],
)
def test_a_consumer_is_full_when_it_has_more_and_may_not_deliver_it(
    numbers: tuple[int, int, int], expected: Backlog, whole: bool
) -> None:
    assert one(*numbers, whole=whole) == expected


def test_the_consumers_of_others_are_not_counted() -> None:
    assert one(1, 5, 5, owner="another") == Backlog()


def test_what_somebody_writes_into_metadata_is_no_number() -> None:
    config: dict[str, Any] = build.marked(build.consumer("S", "c"), max_ack_pending=5)
    config["metadata"]["note"] = '"num_pending":77,"max_ack_pending":1'
    info = {"stream_name": "S", "name": "c", "config": config, "num_ack_pending": 1, "num_pending": 2}
    assert of(LiveConsumer.read(orjson.dumps(info))) == Backlog(2, 1)


async def test_on_a_server_it_is_what_workers_have_not_done(wire: Wire) -> None:
    metadata = {"reconciler.owner": "default"}
    config = {"durable_name": "c", "ack_policy": "explicit", "max_ack_pending": 3, "metadata": metadata}
    await wire.expect("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
    await wire.expect("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config, "action": "create"})
    work = Work(wire, "S", "c")
    await work.publish(*["s.x"] * 5)
    assert await work.pull(3, finish=False) == 3
    info = await wire.consumer_info("S", "c")
    assert of(LiveConsumer.read(orjson.dumps(info))) == Backlog(2, 3, frozenset({CONSUMER}))
