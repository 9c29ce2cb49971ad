"""Events: what those who wait see, on NATS and on the status page."""

from __future__ import annotations

import asyncio

import orjson
import pytest
from nats.aio.msg import Msg

from reconciler.model.identity import Key
from reconciler.observe.events import BURST, KEPT, RATE, Event, Events, encoded, subject_of
from reconciler.observe.metrics import Metrics
from tests.support.account.wire import Wire
from tests.support.clock.fake import Clock
from tests.support.daemon.telling import Sink

ORDERS = Key("Stream", "ORDERS")
START = 1_767_225_600 * 10**9
BILLING = Key("Consumer", "billing", "ORDERS")


def event(number: int = 0, key: Key | None = ORDERS) -> Event:
    return Event(type="drift.detected", message=f"number {number}", key=key, data={"fields": ["maxAge"]})


def dropped(metrics: Metrics) -> float:
    return metrics.registry.get_sample_value("reconciler_events_dropped_total") or 0.0


@pytest.mark.parametrize(
    ("key", "subject"),
    [
        (ORDERS, "reconciler.events.team-a.Stream.ORDERS"),
        (BILLING, "reconciler.events.team-a.Consumer.ORDERS/billing"),
        (Key("KeyValue", "config", "", "leaf"), "reconciler.events.team-a.KeyValue.leaf:config"),
        (None, "reconciler.events.team-a.Reconciler.drift"),
    ],
)
def test_an_event_goes_to_a_subject_of_owner_kind_and_name(key: Key | None, subject: str) -> None:
    assert subject_of("team-a", event(key=key)) == subject


@pytest.mark.parametrize("name", ["a.b", "*", ">", "a b", "a\tb\r\n", "", "%2E", "ä", "a\x00", "\ud800", "x" * 255])
def test_no_name_makes_more_tokens_or_wildcards_of_a_subject(name: str) -> None:
    for key in (Key("Stream", name), Key("Consumer", name, name, name)):
        subject = subject_of(name, event(key=key))
        tokens = subject.split(".")
        assert len(tokens) == 5
        assert all(tokens)
        assert not set(subject) & set("*> \t\r\n\x00")
        assert subject.isascii()


def test_different_names_have_different_subjects() -> None:
    names = ["a.b", "a%2Eb", "a b", "a/b", "a:b"]
    assert len({subject_of("o", event(key=Key("Stream", name))) for name in names}) == len(names)


def test_an_event_is_a_cloud_event() -> None:
    found = Event(
        type="change.ended", message="update Stream/ORDERS: applied", key=ORDERS, at=1_767_225_600 * 10**9, data={"n": 1}
    )
    document = orjson.loads(encoded("team/a", found))
    identity = document.pop("id")
    assert len(identity) == 36
    assert document == {
        "specversion": "1.0",
        "source": "/reconciler/team%2Fa",
        "type": "reconciler.change.ended",
        "subject": "Stream/ORDERS",
        "time": "2026-01-01T00:00:00Z",
        "datacontenttype": "application/json",
        "data": {"severity": "info", "message": "update Stream/ORDERS: applied", "n": 1},
    }
    assert orjson.loads(encoded("team/a", found))["id"] != identity
    assert "subject" not in orjson.loads(encoded("o", event(key=None)))


def test_an_event_fits_into_one_message_whatever_is_in_it() -> None:
    big = Event(type="x.y", message="m" * 10**6, data={"fields": ["f" * 10**5] * 10**4, "half": "\ud800", 1: None})  # type: ignore[dict-item]  # as a careless caller may
    assert len(encoded("o", big)) < 2**17


def test_the_newest_events_are_kept_newest_first() -> None:
    events = Events("o", Sink(), Metrics(), monotonic=Clock())
    assert events.newest() == ()
    for number in range(KEPT + 50):
        events.tell(event(number))
    newest = events.newest()
    assert len(newest) == KEPT
    assert [found.message for found in newest[:2]] == [f"number {KEPT + 49}", f"number {KEPT + 48}"]
    assert newest[-1].message == "number 50"


def test_more_events_than_allowed_are_dropped_and_counted_and_later_ones_go_out_again() -> None:
    clock, sink, metrics = Clock(), Sink(), Metrics()
    events = Events("o", sink, metrics, monotonic=clock)
    for number in range(BURST + 30):
        events.tell(event(number))
    assert len(sink.messages) == BURST
    assert dropped(metrics) == 30
    clock.now += 1.0
    for number in range(BURST):
        events.tell(event(number))
    assert len(sink.messages) == BURST + RATE
    clock.now += 3600.0
    for number in range(BURST + 1):
        events.tell(event(number))
    assert len(sink.messages) == 2 * BURST + RATE


def test_what_cannot_go_out_now_never_does() -> None:
    sink, metrics = Sink(open_=False), Metrics()
    events = Events("o", sink, metrics, monotonic=Clock())
    events.tell(event(1))
    sink.open_ = True
    events.tell(event(2))
    assert [document["data"]["message"] for _, document in sink.messages] == ["number 2"]
    assert dropped(metrics) == 1
    assert len(events.newest()) == 2


def test_a_publisher_that_fails_stops_nobody() -> None:
    def publish(_: str, __: bytes) -> bool:
        msg = "broken"
        raise RuntimeError(msg)

    metrics = Metrics()
    events = Events("o", publish, metrics, monotonic=Clock())
    events.tell(event(1))
    assert dropped(metrics) == 1
    assert len(events.newest()) == 1


async def test_a_subscriber_of_one_token_per_place_hears_every_event_on_a_real_server(wire: Wire) -> None:
    names = ["ORDERS", "a.b", "x *", ">", "ä", "", "a/b", "n" * 255]
    sink = Sink()
    events = Events("team.a", sink, Metrics(), monotonic=Clock())
    for name in names:
        events.tell(event(key=Key("Consumer", name, "S", "leaf")))
    heard: list[bytes] = []
    every = asyncio.Event()

    async def hear(message: Msg) -> None:
        heard.append(message.data)
        if len(heard) == len(names):
            every.set()

    await wire.client.subscribe("reconciler.events.team%2Ea.*.*", cb=hear)
    for subject, document in sink.messages:
        await wire.client.publish(subject, orjson.dumps(document))
    await asyncio.wait_for(every.wait(), 10)
    assert [orjson.loads(data)["subject"] for data in heard] == [f"leaf:Consumer/S/{name}" for name in names]
