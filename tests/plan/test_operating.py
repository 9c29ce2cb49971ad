"""What a person's command to a consumer is judged by: INFO answers in, refusals and notes out."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.model.identity import Key
from reconciler.model.marker import Journal, Marker
from reconciler.model.seen.live import Server
from reconciler.model.units import SECOND, format_time
from reconciler.plan.requests.pause import Decision, Operated, Pause, Resume
from reconciler.plan.requests.reset import Reset, Span
from reconciler.procedures.requests import Message, NextMessage, PauseConsumer, ResetConsumer, StreamInfo
from tests.support.values.build import NOW, consumer_info, stream_info

KEY = Key("Consumer", "c", "S")
STREAM = KEY.stream_key
HOUR = 3600 * SECOND
SOON, LATER = NOW + HOUR, NOW + 100 * HOUR


def found(
    consumer: dict[str, Any] | None = None, stream: dict[str, Any] | None = None, *, level: int = 5, **more: Any
) -> Operated:
    """A consumer that has delivered 1 to 20 of 100, and acknowledged 1 to 10."""
    state = {"delivered": {"consumer_seq": 20, "stream_seq": 20}, "ack_floor": {"consumer_seq": 10, "stream_seq": 10}}
    numbers = {"num_pending": 80, "num_ack_pending": 10, "ts": format_time(NOW)}
    given = consumer or {}
    config = {"name": "c", "ack_policy": "explicit", **given.pop("config", {})}
    listened = {"name": "S", "subjects": ["s.>"], **((stream or {}).pop("config", {}))}
    return Operated(
        key=KEY,
        owner="default",
        server=Server(version="2.15.1", level=level),
        stream=stream_info(listened, **({"messages": 100, "last_seq": 100} | (stream or {}))),
        info=consumer_info("S", config, **(state | numbers | given)),
        **more,
    )


def codes(decision: Decision) -> tuple[list[str], list[str]]:
    """Of the refusals and of the notes."""
    return [reason.code for reason in decision.refusals], [note.code for note in decision.notes]


def said(decision: Decision, code: str) -> str:
    """The note of this code."""
    return next(note.message for note in decision.notes if note.code == code)


def paused(until: int = LATER, remembered: str = "", owner: str = "") -> dict[str, Any]:
    """What INFO shows of a paused consumer."""
    metadata = Marker(owner=owner, pause_until=remembered).to_metadata()
    return {"paused": True, "config": {"pause_until": format_time(until), "metadata": metadata}}


def test_a_pause_is_counted_from_the_servers_clock() -> None:
    decision = Pause(lasting=HOUR).decide(found())
    assert codes(decision) == ([], ["pauses"])
    assert decision.write == PauseConsumer(KEY, format_time(SOON))


@pytest.mark.parametrize("pause", [Pause(until=NOW), Pause(until=NOW - 1), Pause(lasting=0)])
def test_a_pause_that_would_be_over_is_refused(pause: Pause) -> None:
    assert codes(pause.decide(found()))[0] == ["past"]


def test_the_age_limit_meets_the_oldest_message_that_is_not_done_with() -> None:
    aged = {"config": {"max_age": 2 * HOUR}}
    pause = Pause(until=SOON)
    (read,) = pause.reads(found())
    assert read == NextMessage(STREAM, ">", 11)
    assert codes(pause.decide(found(stream=aged)))[1] == ["pauses"]
    old = {read: Message(11, format_time(NOW - HOUR - SECOND))}
    decision = pause.decide(found(stream={"config": {"max_age": 2 * HOUR}}, facts=old))
    assert codes(decision)[1] == ["pauses", "may-expire"]
    assert format_time(SOON - SECOND) in said(decision, "may-expire")


@pytest.mark.parametrize(
    ("config", "code"),
    [
        ({"max_msgs": 500}, "may-expire"),
        ({"max_msgs_per_subject": 1}, "may-expire"),
        ({"allow_msg_ttl": True}, "may-expire"),
        ({"max_bytes": 500, "discard": "new"}, "may-refuse"),
    ],
)
def test_limits_that_no_pause_holds_back_are_named(config: dict[str, Any], code: str) -> None:
    decision = Pause(until=SOON).decide(found(stream={"config": config}))
    assert codes(decision)[1] == ["pauses", code]


def test_a_pause_of_a_manifest_is_told_from_a_persons() -> None:
    text = format_time(LATER)
    by_manifest = Resume().decide(found(paused(remembered=text, owner="default")))
    by_person = Resume().decide(found(paused(owner="default")))
    moved_by_person = Resume().decide(found(paused(until=SOON, remembered=text, owner="default")))
    assert "by its manifest" in said(by_manifest, "resumes")
    assert "by a person" in said(by_person, "resumes")
    assert "by a person" in said(moved_by_person, "resumes")
    assert [codes(one)[1] for one in (by_manifest, by_person, moved_by_person)] == [
        ["resumes", "declared"],
        ["resumes"],
        ["resumes", "declared"],
    ]
    assert by_manifest.write == PauseConsumer(KEY, "")


def test_a_declared_pause_that_is_over_does_not_come_back() -> None:
    decision = Resume().decide(found(paused(remembered=format_time(NOW - 1), owner="default")))
    assert codes(decision)[1] == ["resumes"]


def test_what_is_not_paused_is_not_resumed() -> None:
    decision = Resume().decide(found())
    assert (decision.write, codes(decision)) == (None, ([], ["not-paused"]))


@pytest.mark.parametrize("command", [Pause(until=SOON), Resume(), Reset(5), Reset()])
def test_a_journal_forbids_everything_wherever_it_is(command: Pause | Resume | Reset) -> None:
    journal = Journal("filter-add", "pause", "x", '{"added":[]}')
    inside = found({"config": {"metadata": Marker(owner="default", journal=journal).to_metadata()}})
    for operated in (inside, found(held=journal)):
        assert "procedure" in codes(command.decide(operated))[0]


def test_another_owners_consumer_is_pointed_out() -> None:
    for owner, expected in (("team", True), ("default", False), ("", False)):
        consumer = {"config": {"metadata": Marker(owner=owner).to_metadata()}}
        assert ("other-owner" in codes(Reset(5).decide(found(consumer)))[1]) is expected


@pytest.mark.parametrize("command", [Pause(until=SOON), Reset(5)])
def test_what_the_server_keeps_for_itself_is_not_touched(command: Pause | Reset) -> None:
    assert codes(command.decide(found({"config": {"ack_policy": "flow_control", "sourcing": True}})))[0] == ["server-made"]


@pytest.mark.parametrize(
    ("seq", "config", "code"),
    [
        (101, {}, None),
        (102, {}, "beyond-end"),
        (5, {"deliver_policy": "new"}, "policy"),
        (None, {"deliver_policy": "new"}, None),
        (5, {"deliver_policy": "last_per_subject"}, "policy"),
        (5, {"deliver_policy": "by_start_sequence", "opt_start_seq": 6}, "before-start"),
        (6, {"deliver_policy": "by_start_sequence", "opt_start_seq": 6}, None),
    ],
)
def test_positions_that_make_no_sense_are_refused(seq: int | None, config: dict[str, Any], code: str | None) -> None:
    decision = Reset(seq).decide(found({"config": config}))
    assert codes(decision)[0] == ([code] if code else [])
    assert decision.write == ResetConsumer(KEY, seq or 0)


def test_a_start_time_is_compared_with_the_message_that_would_come() -> None:
    consumer = {"config": {"deliver_policy": "by_start_time", "opt_start_time": format_time(NOW)}}
    read = NextMessage(STREAM, ">", 5)
    assert read in Reset(5).reads(found(consumer))
    for stored, expected in ((NOW - 1, ["before-start"]), (NOW, [])):
        consumer = {"config": {"deliver_policy": "by_start_time", "opt_start_time": format_time(NOW)}}
        assert codes(Reset(5).decide(found(consumer, facts={read: Message(5, format_time(stored))})))[0] == expected


def test_an_old_server_cannot_reset_but_pause() -> None:
    assert codes(Reset().decide(found(level=3)))[0] == ["level"]
    assert codes(Pause(until=SOON).decide(found(level=1)))[0] == []


@pytest.mark.parametrize(("seq", "refused"), [(20, True), (None, True), (21, False), (50, False)])
def test_a_replicated_interest_stream_only_lets_its_consumers_go_forward(seq: int | None, *, refused: bool) -> None:
    replicated = {"config": {"retention": "interest", "num_replicas": 3}}
    assert codes(Reset(seq).decide(found(stream=replicated)))[0] == (["interest-replicated"] if refused else [])


@pytest.mark.parametrize(
    ("seq", "again", "skipped"),
    [
        (1, Span(1, 20, 20, exact=True), None),
        (None, Span(11, 20, 10, exact=True), None),
        (15, Span(15, 20, 6, exact=True), Span(11, 14, 4, exact=False)),
        (21, None, Span(11, 20, 10, exact=True)),
        (31, None, Span(11, 30, 20, exact=True)),
        (101, None, Span(11, 100, 90, exact=True)),
    ],
)
def test_what_comes_again_and_what_is_skipped(seq: int | None, again: Span | None, skipped: Span | None) -> None:
    ahead = Reset(seq).forecast(found())
    assert (ahead.again, ahead.skipped) == (again, skipped)


def test_gaps_in_the_stream_make_bounds_of_the_numbers() -> None:
    ahead = Reset(5).forecast(found(stream={"num_deleted": 3, "messages": 97}))
    assert ahead.again == Span(5, 20, 16, exact=False)
    assert str(ahead.again) == "at most 16 messages (sequences 5 to 20)"


def test_filters_are_counted_by_their_subjects() -> None:
    config = {"filter_subjects": ["s.a", "s.b"]}
    reads = Reset(1).reads(found({"config": config}))
    assert reads == (StreamInfo(STREAM, "s.a"), StreamInfo(STREAM, "s.b"))
    facts = dict(zip(reads, ({"state": {"subjects": {"s.a": 60}}}, {"state": {"subjects": {"s.b": 27}}}), strict=True))
    for seq, exact in ((1, True), (2, False)):
        ahead = Reset(seq).forecast(found({"config": {"filter_subjects": ["s.a", "s.b"]}}, facts=facts))
        assert ahead.again == Span(seq, 20, 7, exact=exact)


@pytest.mark.parametrize(
    ("retention", "policy", "expected"),
    [
        ("limits", "explicit", ["moves", "skips", "stored-on"]),
        ("workqueue", "explicit", ["moves", "skips", "strands"]),
        ("interest", "explicit", ["moves", "skips", "deletes"]),
        ("limits", "flow_control", ["moves", "skips-source"]),
        ("interest", "flow_control", ["moves", "skips-source", "deletes"]),
    ],
)
def test_what_becomes_of_the_skipped_depends_on_the_stream(retention: str, policy: str, expected: list[str]) -> None:
    stream, consumer = {"config": {"retention": retention}}, {"config": {"ack_policy": policy}}
    assert codes(Reset(50).decide(found(consumer, stream)))[1] == expected


def test_going_back_tells_a_source_from_a_worker() -> None:
    readers = (Key("Stream", "ALL"),)
    decision = Reset(1).decide(found({"config": {"ack_policy": "flow_control"}}, readers=readers))
    assert codes(decision)[1] == ["moves", "backwards-source"]
    assert "Stream/ALL drops all that is not beyond the last sequence it copied" in said(decision, "backwards-source")
    assert "the stream that sources through it" in said(
        Reset(1).decide(found({"config": {"ack_policy": "flow_control"}})), "backwards-source"
    )


def test_a_paused_consumer_stays_paused_and_a_finite_max_deliver_begins_anew() -> None:
    consumer = paused()
    consumer["config"]["max_deliver"] = 3
    assert codes(Reset(1).decide(found(consumer)))[1] == ["moves", "again", "counts-anew", "stays-paused"]


def test_nothing_is_sent_where_nothing_would_move() -> None:
    idle = {"ack_floor": {"consumer_seq": 20, "stream_seq": 20}, "num_ack_pending": 0}
    for seq in (None, 21):
        decision = Reset(seq).decide(found(dict(idle)))
        assert (decision.write, codes(decision)) == (None, ([], ["in-place"]))
    assert Reset().decide(found(idle | {"num_redelivered": 1})).write is not None
