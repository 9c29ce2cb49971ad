"""What a mark says, whatever somebody has written into it."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.manifests.export.documents import export
from reconciler.model.identity import Key
from reconciler.model.marker import DEAD_LETTER, NO_MARKER, PARTS, Journal, Marker, read_marker, with_mark
from reconciler.model.residue import Residue
from reconciler.model.seen.live import Live, LiveConsumer, LiveStream
from reconciler.plan.change import Action, Rules
from reconciler.procedures.machine import Ask, Observation, Procedure
from reconciler.procedures.requests import Absent, ConsumerInfo, Copied, Fact, Message, NextMessage, Read, StreamInfo
from reconciler.render.status.judged import remembered
from tests.support.values.build import NOW, consumer, consumer_info, desired, live, marked, stream, stream_info
from tests.support.values.planned import plan

NAME = "Consumer/S/c"
DEEP = "[" * 2000 + "]" * 2000
OWNER = {"reconciler.owner": "default", "reconciler.key": NAME}
VARIED = {
    "name": "S",
    "opt_start_seq": 6,
    "subject_transforms": [{"src": one, "dest": one} for one in ("a", "_reconciler.from.1")],
}


def _procedure(**parts: Any) -> str:
    return orjson.dumps({"name": "filter-add", "step": "pause", "target": "", "data": "{}", **parts}).decode()


def _row(field: str, live: Any, declared: Any) -> str:
    return orjson.dumps([{"field": field, "live": live, "declared": declared}]).decode()


def test_a_mark_is_what_was_written_for_this_very_resource() -> None:
    mark = Marker(
        "o", "s", (Residue("opt_start_seq", 7, None),), Journal("n", "s", "t", '{"a":1}'), "2026-01-01T00:00:00Z", "Stream/A"
    )
    metadata = with_mark({"team": "a", DEAD_LETTER: "dlq", "reconciler.spec": "old"}, mark, NAME)
    assert read_marker(metadata, NAME) == mark
    assert read_marker(metadata, NAME).key == NAME
    assert (metadata["team"], metadata[DEAD_LETTER]) == ("a", "dlq")
    for other in ("Consumer/S/d", "Consumer/T/c", "Stream/S", ""):
        assert read_marker(metadata, other) == NO_MARKER
    assert with_mark(metadata, NO_MARKER, NAME) == {"team": "a", DEAD_LETTER: "dlq"}


def test_a_mark_from_before_means_the_same_but_for_the_name() -> None:
    mark = Marker("o", "s", journal=Journal("n", "s", "t"))
    before = read_marker(mark.to_metadata(), NAME)
    assert (before, before.key) == (mark, "")


@pytest.mark.parametrize(
    ("key", "mark"),
    [
        (Key("Stream", "S"), "Stream/S"),
        (Key("Stream", "S", "", "leaf"), "Stream/S"),
        (Key("Consumer", "c", "S", "leaf"), "Consumer/S/c"),
        (Key("KeyValue", "x"), "Stream/KV_x"),
        (Key("Stream", "KV_x"), "Stream/KV_x"),
        (Key("ObjectStore", "x", "", "leaf"), "Stream/OBJ_x"),
    ],
)
def test_a_name_is_the_same_from_whichever_domain_and_under_whichever_kind(key: Key, mark: str) -> None:
    assert key.mark == mark


def test_a_mark_for_another_resource_is_none_of_ours() -> None:
    declared = consumer("S", "d", {"maxDeliver": 5})
    copied = {**marked(consumer("S", "c")), "name": "d", "durable_name": "d"}
    seen = LiveConsumer.seen(consumer_info("S", copied))
    assert (seen.owner, seen.spec, seen.special, seen.named, seen.named_otherwise) == ("", "", False, False, "Consumer/S/c")
    own = stream("S")
    (change,) = plan(desired(own, declared), live(stream_info(marked(own)), consumer_info("S", copied)), Rules()).changes
    assert (change.action, [reason.code for reason in change.reasons]) == (Action.BLOCKED, ["not-owned"])
    assert "written for 'Consumer/S/c'" in change.reasons[0].message
    assert LiveStream.seen(stream_info({**marked(own), "name": "T"})).owner == ""


@pytest.mark.parametrize(
    ("rows", "counts"),
    [
        (_row("opt_start_seq", 7, None), True),
        (_row("deliver_policy", "by_start_sequence", "new"), True),
        (_row("opt_start_time", None, "2026-01-01T00:00:00Z"), True),
        (_row("sources", VARIED, {"name": "S", "filter_subject": "a"}), True),
        (_row("sources", VARIED, {"name": "S"}), True),
        (_row("sources", VARIED, {"name": "T", "filter_subject": "a"}), False),
        (_row("sources", VARIED, {"name": "S", "filter_subject": "b"}), False),
        (_row("sources", {**VARIED, "external": {"api": "x"}}, {"name": "S", "filter_subject": "a"}), False),
        (_row("sources", {"name": "S"}, {"name": "S", "consumer": {"name": "d", "deliver_subject": "x"}}), False),
        (_row("sources", {"name": "S", "filter_subject": "b"}, {"name": "S", "filter_subject": "a"}), False),
        (_row("deliver_policy", "new", "all"), False),
        (_row("deliver_policy", "by_start_sequence", {}), False),
        (_row("deliver_policy", "by_start_sequence", ["all"]), False),
        (_row("opt_start_seq", True, None), False),
        (_row("opt_start_seq", -1, None), False),
        (_row("max_deliver", 77, 5), False),
        (_row("opt_start_seq", 7, None)[:-1] + ',{"field":5}]', False),
        ("[]", False),
        ("{}", False),
        ("x", False),
        (DEEP, False),
        ('"\\ud800"', False),
    ],
)
def test_residue_counts_in_the_shapes_that_procedures_write(rows: str, counts: bool) -> None:
    found = read_marker(OWNER | {"reconciler.residue": rows}, NAME)
    assert (bool(found.residue), bool(found.damaged)) == (counts, not counts)


@pytest.mark.parametrize(
    "damage",
    [
        {"reconciler.procedure": "nonsense"},
        {"reconciler.procedure": DEEP},
        {"reconciler.procedure": _procedure(data="[1]")},
        {"reconciler.procedure": _procedure(data=DEEP)},
        {"reconciler.procedure": _procedure(step=7)},
        {"reconciler.pauseUntil": "never"},
        {"reconciler.pauseUntil": "2026-99-99T00:00:00Z"},
        {"reconciler.pauseUntil": ""},
        {"reconciler.source": "nobody"},
        {"reconciler.residue": 5},
    ],
)
def test_what_makes_no_sense_blocks_its_own_key(damage: dict[str, Any]) -> None:
    assert read_marker(OWNER | damage, NAME).damaged
    own, one, other = stream("S"), consumer("S", "c", {"maxDeliver": 5}), consumer("S", "d", {"maxDeliver": 5})
    config = marked(one)
    config["metadata"] |= damage
    state = live(stream_info(marked(own)), consumer_info("S", config), consumer_info("S", marked(other, max_deliver=7)))
    found = {change.key.name: change for change in plan(desired(own, one, other), state, Rules()).changes}
    assert [reason.code for reason in found["c"].reasons] == ["damaged-mark"]
    assert found["d"].action is Action.UPDATE


_TEXTS = st.one_of(
    st.text(max_size=20),
    st.sampled_from([DEEP, "null", "5", "[]", "{}", '"\\ud800"', "\ud800", "9" * 5000, '{"a":' * 500 + "1" + "}" * 500]),
    st.sampled_from([NAME, "Stream/S", "Stream/A", "default", "2026-01-01T00:00:00Z", "9999-12-31T23:59:59Z"]),
)
_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=8,
)
_SUBJECT = {"name": "S", "filter_subject": "a", "opt_start_seq": 5, "consumer": {"name": "c", "deliver_subject": "d"}}
_ENTRIES = st.dictionaries(st.sampled_from([*_SUBJECT, "subject_transforms", "external"]), st.one_of(_JSON, st.just("S")))
_ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "field": st.one_of(
                st.sampled_from(["sources", "opt_start_seq", "deliver_policy", "opt_start_time", "max_age"]), _JSON
            ),
            "live": st.one_of(_JSON, _ENTRIES, st.just("by_start_sequence"), st.just(7)),
            "declared": st.one_of(_JSON, _ENTRIES),
        }
    ),
    max_size=3,
)
_DATA = st.dictionaries(
    st.sampled_from(
        ["start", "until", "added", "consumer", "created", "stream", "entry", "left", "from", "least", "copied", "made"]
    ),
    st.one_of(_JSON, _ENTRIES, st.just("Stream/A"), st.just("2098-01-01T00:00:00.000271828Z")),
)
_JOURNALS = st.builds(
    lambda name, step, data: orjson.dumps({"name": name, "step": step, "target": "", "data": orjson.dumps(data).decode()}),
    st.sampled_from(["filter-add", "recreate-consumer", "restore-consumer", "migrate-source", "x"]),
    st.sampled_from(["pause", "check", "resume", "hold", "move", "attach", "drain", "x"]),
    _DATA,
).map(bytes.decode)
_WORDS = st.one_of(_TEXTS, _JOURNALS, _ROWS.map(orjson.dumps).map(bytes.decode))
_METADATA = st.dictionaries(st.one_of(st.sampled_from(sorted(PARTS)), st.text(max_size=4)), _WORDS, max_size=7)


@given(metadata=st.dictionaries(st.one_of(st.sampled_from(sorted(PARTS)), st.text(max_size=4)), st.one_of(_WORDS, _JSON)))
def test_reading_a_mark_never_raises(metadata: dict[str, Any]) -> None:
    found = read_marker(metadata, NAME)
    assert found == NO_MARKER or found.owner == metadata["reconciler.owner"]
    read_marker(with_mark(metadata, found, NAME), NAME)


def _plain(text: str) -> str:
    """As a server passes it on: it has no lone surrogates."""
    return text.encode("utf-8", "replace").decode()


def _driven(machine: Procedure, state: Live) -> None:
    """A procedure that begins, or goes on with what a journal says, up to its first request."""
    facts: dict[Read, Fact] = {}
    memory = None
    for _ in range(9):
        step = machine.step(Observation(NOW, facts), memory)
        if not isinstance(step, Ask):
            return
        memory, facts = step.memory, {read: _answer(read, state) for read in step.reads}


def _answer(read: Read, state: Live) -> Fact:
    match read:
        case ConsumerInfo(key) | StreamInfo(key, _):
            seen = state.seen(key)
            return seen.info if seen else Absent()
        case NextMessage(_, _, seq):
            return Message(seq, "2026-01-01T00:00:00Z") if seq <= 5 else Absent()
    return Copied(3)


@given(marks=st.tuples(*[_METADATA] * 4), declared=st.booleans(), paused=st.sampled_from([{}, {"paused": True}]))
def test_no_mark_takes_anything_else_along(marks: tuple[dict[str, str], ...], paused: dict[str, Any], *, declared: bool) -> None:
    """Planning, status and export look at everything that a mark may say; what is beside it is repaired."""
    ours = {"reconciler.owner": "default"}
    clean = [{_plain(name): _plain(text) for name, text in one.items()} for one in marks]
    own, one, copier = stream("S", {"subjects": ["s"]}), consumer("S", "c"), stream("A", {"sources": [{"name": "S"}]})
    healthy, there = stream("H", {"subjects": ["h"]}), consumer("H", "d", {"maxDeliver": 5})
    hold = {"name": "_reconciler_hold_c", "durable_name": "_reconciler_hold_c", "opt_start_seq": 7}
    state = live(
        stream_info({**own.config, "metadata": ours | clean[0]}, messages=5, last_seq=5),
        consumer_info("S", {**one.config, "metadata": ours | clean[1]}, ts="2026-01-01T00:00:00Z", **paused),
        consumer_info("S", {**hold, "metadata": ours | clean[2]}, ts="2026-01-01T00:00:00Z"),
        stream_info({**copier.config, "metadata": ours | clean[3]}),
        stream_info(marked(healthy)),
        consumer_info("H", marked(there, max_deliver=7)),
    )
    wanted = desired(healthy, there, *((own, one, copier) if declared else ()))
    found = plan(wanted, state, Rules(policy="sync"))
    assert next(change for change in found.changes if change.key == there.key).action is Action.UPDATE
    assert found.faults == {}, "what makes no sense is said to, before anything trips over it"
    for change in found.changes:
        if change.machine is not None:
            _driven(change.machine, state)
    remembered(state, "default")
    export(state)
