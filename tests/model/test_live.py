"""A consumer is recognised by its bytes exactly as long as reading it anew would say the same."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from reconciler.model.live import LiveConsumer
from tests.support.build import consumer, marked

BEFORE = {"stream_name": "S", "name": "c", "created": "2026-01-01T00:00:00Z"}
STATE = {"delivered": {"consumer_seq": 7, "stream_seq": 7}, "ack_floor": {"consumer_seq": 5, "stream_seq": 5}, "num_pending": 3}


def _answer(config: dict[str, Any], **changes: Any) -> bytes:
    return orjson.dumps({**BEFORE, "config": config, **STATE, **changes})


def _seen(raw: bytes) -> LiveConsumer:
    return LiveConsumer.seen(orjson.loads(raw), raw)


CONFIG = marked(consumer("S", "c", {"description": "d", "filterSubjects": ["a", "b"]}))
FIRST = _answer(CONFIG)


@pytest.mark.parametrize("later", [FIRST, _answer(CONFIG, num_pending=4), _answer(CONFIG, ack_floor={}, paused=True)])
def test_other_state_is_the_same_consumer(later: bytes) -> None:
    assert _seen(FIRST).seen_again(later) == _seen(later)


@pytest.mark.parametrize(
    "later",
    [
        _answer({**CONFIG, "description": "other"}),
        _answer({**CONFIG, "max_deliver": 5}),
        _answer({**CONFIG, "metadata": {}}),
        _answer({name: value for name, value in CONFIG.items() if name != "description"}),
        _answer(CONFIG, created="2026-01-02T00:00:00Z"),
        _answer(CONFIG, name="d"),
        orjson.dumps({**STATE, **BEFORE, "config": CONFIG}),
    ],
)
def test_anything_else_must_be_read_anew(later: bytes) -> None:
    assert _seen(FIRST).seen_again(later) is None


def test_an_answer_in_another_order_is_never_recognised() -> None:
    odd = orjson.dumps({**STATE, **BEFORE, "config": CONFIG})
    assert _seen(odd).seen_again(odd) is None
