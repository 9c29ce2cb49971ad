"""A consumer is recognised by its bytes exactly as long as reading it anew would say the same; patches add up to what is live."""

from __future__ import annotations

import timeit
from dataclasses import replace
from typing import Any

import orjson
import pytest

from reconciler.model.identity import Key
from reconciler.model.seen.live import Live, LiveConsumer, LiveStream, Patch, Server
from tests.support.values.build import consumer, consumer_info, marked, stream, stream_info

BEFORE = {"stream_name": "S", "name": "c", "created": "2026-01-01T00:00:00Z"}
STATE = {"delivered": {"consumer_seq": 7, "stream_seq": 7}, "ack_floor": {"consumer_seq": 5, "stream_seq": 5}, "num_pending": 3}


def _answer(config: dict[str, Any], **changes: Any) -> bytes:
    return orjson.dumps({**BEFORE, "config": config, **STATE, **changes})


def _seen(raw: bytes) -> LiveConsumer:
    return LiveConsumer.read(raw)


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


S, T = Key("Stream", "S"), Key("Stream", "T")
OTHERS = Key("Stream", "*")


def _consumer(name: str, **config: Any) -> LiveConsumer:
    return LiveConsumer.seen(consumer_info("S", marked(consumer("S", name), **config)))


def _key(name: str) -> Key:
    return Key("Consumer", name, "S")


def _stream(**info: Any) -> LiveStream:
    return LiveStream.seen({**stream_info(marked(stream("S")), consumer_count=2), **info})


A, B, OTHER_A, C = _consumer("a"), _consumer("b"), _consumer("a", max_deliver=9), _consumer("c")
STATE_OF_S = Live(Server(), 100, {S: _stream(), T: _stream()}, {S: {"a": A, "b": B}, T: {"a": A}})


def _silent(*keys: Key) -> Live:
    return replace(STATE_OF_S, unknown=dict.fromkeys(keys, "no answer"))


def test_patches_made_side_by_side_both_hold_and_what_they_do_not_speak_of_is_shared() -> None:
    first, second = Patch(at=110, consumers={_key("a"): OTHER_A}), Patch(at=105, consumers={_key("b"): None, _key("c"): C})
    one, other = STATE_OF_S.patched(first).patched(second), STATE_OF_S.patched(second, first)
    assert one.consumers_of(S) == other.consumers_of(S) == {"a": OTHER_A, "c": C}
    assert (one.observed_at, other.observed_at) == (110, 110)
    assert (one.streams, one.unknown) == (STATE_OF_S.streams, STATE_OF_S.unknown)
    assert one.streams is STATE_OF_S.streams
    assert one.consumers_of(T) is STATE_OF_S.consumers_of(T)
    assert STATE_OF_S.consumers_of(S) == {"a": A, "b": B}


def test_of_two_answers_the_one_that_was_asked_for_later_counts() -> None:
    later = STATE_OF_S.patched(Patch(at=120, consumers={_key("a"): OTHER_A, _key("b"): None}))
    older = Patch(at=110, consumers={_key("a"): None, _key("b"): B}, unknown={_key("a"): "no answer"})
    assert later.patched(older).consumers_of(S) == {"a": OTHER_A}
    assert later.patched(older).why_unknown(_key("a")) is None
    listed = later.patched(Patch(at=110, lists={S: {"a": A, "b": B, "c": C}}))
    assert listed.consumers_of(S) == {"a": OTHER_A, "c": C}
    assert listed.patched(Patch(at=105, consumers={_key("c"): None})).consumers_of(S) == {"a": OTHER_A, "c": C}
    assert listed.patched(Patch(at=105, lists={S: {}})).consumers_of(S) == {"a": OTHER_A, "c": C}


def test_a_stream_that_is_gone_takes_its_consumers_and_its_silence_with_it() -> None:
    gone = _silent(S, _key("a"), T).patched(Patch(at=110, streams={S: None}))
    assert (set(gone.streams), set(gone.consumers), set(gone.unknown)) == ({T}, {T}, {T})
    assert gone.patched(Patch(at=105, consumers={_key("a"): A}, lists={S: {"a": A}})).consumers_of(S) == {}
    again = gone.patched(Patch(at=120, streams={S: _stream()}), Patch(at=105, consumers={_key("a"): A}))
    assert (again.stream(S), again.consumers_of(S)) == (_stream(), {})


def test_a_stream_made_anew_has_none_of_the_consumers_it_had() -> None:
    anew = STATE_OF_S.patched(Patch(at=110, streams={S: _stream(created="2026-02-02T00:00:00Z")}))
    assert (set(anew.consumers_of(S)), set(anew.consumers_of(T))) == (set(), {"a"})
    same = STATE_OF_S.patched(Patch(at=110, streams={S: _stream(ts="2026-02-02T00:00:00Z")}))
    assert set(same.consumers_of(S)) == {"a", "b"}


def test_silence_is_kept_per_key_until_that_key_answers() -> None:
    silent = STATE_OF_S.patched(Patch(at=110, unknown={_key("a"): "no answer"}))
    assert (silent.why_unknown(_key("a")), silent.why_unknown(_key("b")), silent.why_unknown(S)) == ("no answer", None, None)
    assert silent.consumer(_key("a")) == A
    assert silent.patched(Patch(at=120, consumers={_key("a"): A})).unknown == {}
    assert silent.patched(Patch(at=120, consumers={_key("a"): None})).unknown == {}
    assert silent.patched(Patch(at=120, lists={S: {"a": A}})).unknown == {}


def test_a_consumer_is_unknown_with_its_stream_and_with_its_domain() -> None:
    assert _silent(S).why_unknown(_key("a"))
    assert _silent(OTHERS).why_unknown(_key("a"))
    assert _silent(T).why_unknown(_key("a")) is None
    assert _silent(OTHERS).why_unknown(Key("Consumer", "a", "S", "elsewhere")) is None


def test_a_silent_stream_is_known_again_only_with_all_its_consumers() -> None:
    silent = _silent(S)
    assert silent.patched(Patch(at=110, streams={S: _stream()})).why_unknown(S)
    assert silent.patched(Patch(at=110, streams={S: _stream()}, lists={S: {"a": A}})).why_unknown(S) is None
    empty = LiveStream.seen(stream_info(marked(stream("S"))))
    assert silent.patched(Patch(at=110, streams={S: empty})).why_unknown(S) is None
    unlisted = Patch(at=110, streams={S: _stream()}, unknown={S: "its list did not answer"})
    assert STATE_OF_S.patched(unlisted).why_unknown(S) == "its list did not answer"


def test_answers_to_questions_about_what_it_was_are_not_carried_over() -> None:
    asked = replace(STATE_OF_S, facts={"question": "answer"})
    assert asked.patched(Patch(at=110)).facts == {}


def test_patching_one_consumer_costs_what_its_stream_costs() -> None:
    many = {Key("Stream", f"S{number}"): {f"c{one}": A for one in range(1000)} for number in range(200)}
    everything = replace(STATE_OF_S, streams=dict.fromkeys(many, _stream()), consumers=many)
    patch = Patch(at=110, consumers={Key("Consumer", "c7", "S7"): OTHER_A})
    copying = min(timeit.repeat(lambda: {key: dict(names) for key, names in many.items()}, number=1, repeat=5))
    assert min(timeit.repeat(lambda: everything.patched(patch), number=1, repeat=5)) < copying / 5
