"""What a consumer is recognised by: never by less than all that is said of it."""

from __future__ import annotations

import orjson
import pytest

from reconciler.model.seen.live import LiveConsumer

TIME = "2026-01-01T00:00:00Z"


def _answer(metadata: dict[str, str], sequence: int = 0, ts: str = "") -> bytes:
    config = {"durable_name": "c", "ack_policy": "explicit", "metadata": metadata}
    state = {"delivered": {"consumer_seq": sequence, "stream_seq": sequence}}
    time = {"ts": ts} if ts else {}
    return orjson.dumps({"stream_name": "S", "name": "c", "created": "t", "config": config, **state, **time})


def _seen(raw: bytes) -> LiveConsumer:
    return LiveConsumer.read(raw)


@pytest.mark.parametrize("metadata", [{}, {"a": "b", "ts": "1"}])
def test_what_does_not_end_with_its_time_is_never_the_very_same(metadata: dict[str, str]) -> None:
    raw = _answer(metadata)
    assert not _seen(raw).shown_by(raw)
    assert not _seen(raw).shown_by(_answer(metadata, 1))


def test_the_time_and_what_it_answers_make_no_difference() -> None:
    seen = _seen(_answer({"a": "b"}, ts=TIME))
    shown = _answer({"_nats.level": "5", "_nats.ver": "2.15.1", "a": "b"}, ts="2026-01-02T00:00:00.5Z")
    assert seen.shown_by(shown)
    assert seen.shown_by(b'{"type":"io.nats.jetstream.api.v1.consumer_info_response",' + shown[1:])


@pytest.mark.parametrize(
    "other",
    [
        _answer({"a": "c"}, ts=TIME),
        _answer({"a": "b", "_nats.other": "1"}, ts=TIME),
        _answer({"a": "b"}, 1, ts=TIME),
        _answer({"a": "b"}, ts=TIME).replace(b'"created":"t"', b'"created":"u"'),
        _answer({"a": 'b"_nats.ver":"1",'}, ts=TIME),
        b"",
        b"{}",
    ],
)
def test_everything_else_does(other: bytes) -> None:
    assert not _seen(_answer({"a": "b"}, ts=TIME)).shown_by(other)
