"""The board tells the truth about every resource, and since when."""

from __future__ import annotations

import time
from typing import Any

import orjson
import pytest

from reconciler.errors import Problem, UsageError
from reconciler.model import units
from reconciler.model.desired import Desired
from reconciler.model.identity import Key
from reconciler.model.kinds.common import Intent, State
from reconciler.model.marker import Journal, Marker
from reconciler.model.seen.live import Live
from reconciler.observe.http.controls import StatusQuery
from reconciler.observe.status.board import Board, Process
from reconciler.observe.telemetry import PassReport
from reconciler.plan.change import Action, Author, Cause, Change, FieldDiff, Reason
from tests.support.clock.fake import Calendar
from tests.support.values import build
from tests.support.values.contract import STATUS, conforms

STREAM, ONE, TWO = Key("Stream", "S"), Key("Consumer", "one", "S"), Key("Consumer", "two", "S")
DECLARED = build.desired(
    build.stream("S"), build.consumer("S", "one"), build.consumer("S", "two"), revision="r1", environment="e"
)
SOMEBODY = Author("nats CLI", "bob", "2026-01-31T12:00:00Z")
DURABLE, THEIR_DURABLE = (Key("Consumer", name, "ORIGIN") for name in "cd")
THEIRS = FieldDiff("ackWait", "45s", "30s")


@pytest.fixture
def clock() -> Calendar:
    return Calendar()


@pytest.fixture
def board(clock: Calendar) -> Board:
    """A board that is connected and has seen everything in place."""
    board = blank(clock)
    board.connection(True, "nats://127.0.0.1:4222")
    board.looked(DECLARED, nothing_unknown(), ())
    return board


def blank(clock: Calendar) -> Board:
    return Board(clock, Process(pid=7, host="box", version="1.2.3", owner="default"))


def nothing_unknown(**more: Any) -> Live:
    return build.live(**more)


def drift(key: Key, *paths: str) -> Change:
    return Change(key=key, action=Action.UPDATE, cause=Cause.DRIFT, fields=tuple(FieldDiff(path, 1, 2) for path in paths))


def blocked(key: Key, code: str = "data-loss") -> Change:
    return drift(key, "maxAge").blocked(Reason(code, "no"))


def states(board: Board, **query: Any) -> dict[str, str]:
    return {resource["key"]: resource["state"] for resource in board.document(StatusQuery(**query))["resources"]}


def resource(board: Board, key: Key) -> dict[str, Any]:
    (found,) = [entry for entry in board.document(StatusQuery())["resources"] if entry["key"] == str(key)]
    return dict(found)


def test_before_the_first_look_everything_is_unknown(clock: Calendar) -> None:
    board = blank(clock)
    board.declared(DECLARED)
    assert set(states(board).values()) == {"Unknown"}
    board.connection(True, "nats://127.0.0.1:4222")
    assert {entry["message"] for entry in board.document(StatusQuery())["resources"]} == {"not looked at yet"}
    assert board.not_ready() == "the first pass is not done"
    board.looked(DECLARED, nothing_unknown(), ())
    assert set(states(board).values()) == {"Synced"}
    assert board.not_ready() == ""


def test_what_needs_no_change_is_synced_since_the_first_look(board: Board, clock: Calendar) -> None:
    first = units.format_time(clock())
    clock.pass_seconds(60)
    board.looked(DECLARED, nothing_unknown(), ())
    assert resource(board, ONE) == {"key": str(ONE), "state": "Synced", "message": "", "since": first, "lastDrift": None}


def test_what_differs_is_out_of_sync_and_says_in_what(board: Board) -> None:
    board.looked(DECLARED, nothing_unknown(), [drift(ONE, "ackWait", "maxDeliver")])
    assert states(board) == {str(STREAM): "Synced", str(ONE): "OutOfSync", str(TWO): "Synced"}
    assert resource(board, ONE)["message"] == "update, drift: ackWait, maxDeliver"


def test_since_moves_with_the_state_alone(board: Board, clock: Calendar) -> None:
    became = clock.pass_seconds(10)
    board.looked(DECLARED, nothing_unknown(), [drift(ONE, "ackWait")])
    clock.pass_seconds(10)
    board.looked(DECLARED, nothing_unknown(), [drift(ONE, "ackWait", "maxDeliver")])
    assert resource(board, ONE)["since"] == became
    repaired = clock.pass_seconds(10)
    board.settled(ONE)
    clock.pass_seconds(10)
    board.looked(DECLARED, nothing_unknown(), ())
    assert (resource(board, ONE)["state"], resource(board, ONE)["since"]) == ("Synced", repaired)


def test_a_look_at_few_keys_judges_only_those(board: Board) -> None:
    board.looked(DECLARED, nothing_unknown(), [drift(ONE, "ackWait"), drift(TWO, "ackWait")])
    board.looked(DECLARED, nothing_unknown(), [drift(STREAM, "maxAge")], scope=(ONE,))
    assert states(board) == {str(STREAM): "Synced", str(ONE): "Synced", str(TWO): "OutOfSync"}


def test_what_is_to_be_pruned_stays_so_until_it_is_gone(board: Board) -> None:
    old = Key("Stream", "OLD")
    board.looked(DECLARED, nothing_unknown(), [Change(key=old, action=Action.DELETE, cause=Cause.PRUNE)])
    board.looked(DECLARED, build.live(build.stream_info({"name": "OLD"})), (), scope=(old,))
    assert resource(board, old)["state"] == "OutOfSync"
    board.looked(DECLARED, nothing_unknown(), (), scope=(old,))
    assert str(old) not in states(board)


def test_a_stream_that_does_not_answer_is_unknown_with_its_consumers(board: Board) -> None:
    board.looked(DECLARED, nothing_unknown(unknown={STREAM: "offline"}), [blocked(ONE, "unknown")])
    assert set(states(board).values()) == {"Unknown"}
    assert resource(board, TWO)["message"] == "offline"
    board.looked(DECLARED, nothing_unknown(), ())
    assert set(states(board).values()) == {"Synced"}


def test_a_domain_that_does_not_answer_is_unknown_whole(board: Board) -> None:
    board.looked(DECLARED, nothing_unknown(unknown={Key("Stream", "*"): "no answer"}), ())
    assert set(states(board).values()) == {"Unknown"}


def test_an_unknown_stream_is_not_hidden_by_a_running_procedure(board: Board) -> None:
    board.progressing(ONE, "filter-add", "pause")
    board.looked(DECLARED, nothing_unknown(unknown={STREAM: "offline"}), ())
    assert resource(board, ONE)["state"] == "Unknown"


def test_while_nobody_can_look_everything_is_unknown_and_keeps_its_since(board: Board, clock: Calendar) -> None:
    first = units.format_time(clock())
    board.looked(DECLARED, nothing_unknown(), [drift(TWO, "ackWait")])
    lost = clock.pass_seconds(5)
    board.connection(False, "")
    clock.pass_seconds(5)
    assert resource(board, ONE)["message"] == f"not connected since {lost}; before: Synced"
    assert resource(board, TWO)["message"] == f"not connected since {lost}; before: OutOfSync"
    assert resource(board, ONE)["since"] == lost
    assert board.document(StatusQuery())["summary"]["Unknown"] == 3
    assert not board.document(StatusQuery())["ready"]
    board.connection(True, "nats://127.0.0.1:4222")
    assert (resource(board, ONE)["state"], resource(board, ONE)["since"]) == ("Synced", first)
    assert (resource(board, TWO)["state"], resource(board, TWO)["since"]) == ("OutOfSync", first)


def test_a_failed_try_is_an_error_until_one_works(board: Board, clock: Calendar) -> None:
    board.looked(DECLARED, nothing_unknown(), [drift(ONE, "ackWait")])
    board.failed(ONE, "no answer within 5s", 2.0)
    again = clock.pass_seconds(2)
    assert resource(board, ONE)["message"] == f"no answer within 5s; tried again at {again}"
    assert resource(board, ONE)["retryAt"] == again
    board.looked(DECLARED, nothing_unknown(), [drift(ONE, "ackWait")])
    assert resource(board, ONE)["state"] == "Error"
    board.settled(ONE)
    assert resource(board, ONE)["state"] == "Synced"
    assert "retryAt" not in resource(board, ONE)


def test_an_error_that_time_does_not_mend_says_so(board: Board) -> None:
    board.failed(ONE, "bad request (400/10012)")
    assert resource(board, ONE)["message"] == "bad request (400/10012); not tried again before something changes"


def test_a_failed_delete_of_what_is_not_declared_is_shown_until_it_is_gone(board: Board) -> None:
    old = Key("Stream", "OLD")
    board.looked(DECLARED, nothing_unknown(), [Change(key=old, action=Action.DELETE, cause=Cause.PRUNE)])
    assert resource(board, old)["state"] == "OutOfSync"
    board.failed(old, "no answer", 1.0)
    assert resource(board, old)["state"] == "Error"
    board.settled(old)
    assert str(old) not in states(board)
    assert board.document(StatusQuery())["summary"]["Synced"] == 3


def test_a_procedure_is_progress_for_all_it_touches(board: Board) -> None:
    board.looked(DECLARED, nothing_unknown(), [drift(ONE, "filterSubjects"), drift(TWO, "ackWait")])
    board.progressing(ONE, "filter-add", "pause", (TWO,))
    board.progressing(ONE, "filter-add", "reset to 17")
    assert resource(board, ONE)["message"] == "filter-add: reset to 17"
    assert resource(board, TWO)["message"] == f"part of filter-add of {ONE}: reset to 17"
    (procedure,) = board.document(StatusQuery())["procedures"]
    assert (procedure["key"], procedure["state"], procedure["touches"]) == (str(ONE), "running", [str(TWO)])
    board.procedure_ended(ONE, "applied")
    assert states(board) == {str(STREAM): "Synced", str(ONE): "Synced", str(TWO): "OutOfSync"}
    assert board.document(StatusQuery())["procedures"] == []


def test_a_failed_procedure_stays_listed_until_it_is_tried_again(board: Board) -> None:
    board.progressing(ONE, "filter-add", "pause")
    board.procedure_ended(ONE, "failed", "permission: no")
    assert resource(board, ONE)["state"] == "Error"
    (procedure,) = board.document(StatusQuery())["procedures"]
    assert (procedure["state"], procedure["message"]) == ("failed", "filter-add: permission: no")
    board.retried(ONE)
    assert board.document(StatusQuery())["procedures"] == []


def test_how_long_procedures_have_gone_on_is_counted_from_their_first_step(board: Board, clock: Calendar) -> None:
    assert list(board.procedures()) == []
    board.progressing(ONE, "filter-add", "pause")
    clock.pass_seconds(40)
    board.progressing(ONE, "filter-add", "reset to 17")
    clock.pass_seconds(2)
    board.progressing(TWO, "filter-add", "pause")
    assert list(board.procedures()) == [("running", 42), ("running", 0)]
    board.procedure_ended(ONE, "applied")
    board.procedure_ended(TWO, "failed", "no")
    clock.pass_seconds(3)
    assert list(board.procedures()) == [("failed", 3)]


def test_a_procedure_stopped_by_request_blocks_until_it_is_retried(board: Board) -> None:
    board.looked(DECLARED, nothing_unknown(), [drift(ONE, "filterSubjects")])
    board.progressing(ONE, "filter-add", "pause")
    board.aborted(ONE)
    assert resource(board, ONE)["state"] == "Progressing"
    assert board.document(StatusQuery())["procedures"][0]["state"] == "aborting"
    board.procedure_ended(ONE, "failed", "stopped")
    assert resource(board, ONE)["state"] == "Blocked"
    assert "procedure retry" in resource(board, ONE)["message"]
    board.retried(ONE)
    assert resource(board, ONE)["state"] == "OutOfSync"


def test_a_journal_of_somebody_else_is_progress(board: Board) -> None:
    declared = build.consumer("S", "one")
    begun = Journal("filter-add", "pause", "d", '{"added": []}')
    journal = Marker(owner="default", spec=declared.digest, journal=begun).to_metadata()
    info = build.consumer_info("S", {**declared.config, "metadata": journal})
    change = Change(key=ONE, action=Action.PROCEDURE, cause=Cause.MANIFEST)
    board.looked(DECLARED, build.live(info), [change])
    assert (resource(board, ONE)["state"], resource(board, ONE)["message"]) == ("Progressing", "filter-add: pause")
    assert board.document(StatusQuery())["procedures"][0]["state"] == "journaled"


def test_a_consumer_that_somebody_holds_still_is_synced_and_says_so(board: Board) -> None:
    config = build.marked(build.consumer("S", "one"), pause_until="2099-01-01T00:00:00Z")
    held = build.live(build.consumer_info("S", config, paused=True))
    board.looked(DECLARED, held, ())
    found = resource(board, ONE)
    assert (found["state"], found["message"].startswith("paused until 2099")) == ("Synced", True)
    assert states(board, state="Synced").keys() == states(board).keys()
    assert board.counts()["Consumer", "Synced"] == 2
    board.looked(DECLARED, nothing_unknown(), (), {ONE})
    assert resource(board, ONE)["message"] == ""


def test_suspended_by_request_hides_a_difference_but_tells_it(board: Board, clock: Calendar) -> None:
    board.looked(DECLARED, nothing_unknown(), [drift(ONE, "ackWait")])
    board.suspended(ONE)
    since = units.format_time(clock())
    assert resource(board, ONE)["state"] == "Suspended"
    assert resource(board, ONE)["message"] == f"suspended by request since {since}; update, drift: ackWait"
    board.resumed(ONE)
    assert resource(board, ONE)["state"] == "OutOfSync"


def test_suspended_and_unmanaged_by_the_manifest() -> None:
    clock = Calendar()
    board = blank(clock)
    board.connection(True, "")
    left = build.desired(
        build.stream("S", intent=Intent(state=State.UNMANAGED)),
        build.consumer("S", "one", intent=Intent(suspend=True)),
        build.consumer("S", "two", intent=Intent(suspend=True)),
    )
    board.looked(left, nothing_unknown(), [blocked(TWO, "suspended")])
    assert states(board) == {str(STREAM): "Unmanaged", str(ONE): "Suspended", str(TWO): "Suspended"}


@pytest.mark.parametrize(
    ("facts", "state"),
    [
        ("unknown running suspended blocked failed", "Unknown"),
        ("running suspended blocked failed", "Progressing"),
        ("suspended blocked failed", "Suspended"),
        ("blocked failed", "Blocked"),
        ("differs failed", "Error"),
        ("differs", "OutOfSync"),
        ("", "Synced"),
    ],
)
def test_of_several_truths_the_first_is_shown(board: Board, facts: str, state: str) -> None:
    said = facts.split()
    changes = [blocked(ONE)] if "blocked" in said else [drift(ONE, "ackWait")] if "differs" in said else []
    board.looked(DECLARED, nothing_unknown(unknown={STREAM: "offline"} if "unknown" in said else {}), changes)
    if "running" in said:
        board.progressing(ONE, "filter-add", "pause")
    if "suspended" in said:
        board.suspended(ONE)
    if "failed" in said:
        board.failed(ONE, "no answer", 1.0)
    assert resource(board, ONE)["state"] == state


def test_a_drift_outlives_its_repair(board: Board, clock: Calendar) -> None:
    at = clock.pass_seconds(1)
    board.looked(DECLARED, nothing_unknown(), [drift(ONE, "ackWait")], scope=(ONE,))
    board.drifted(ONE, ("ackWait",), SOMEBODY)
    assert resource(board, ONE)["lastDrift"]["repairedAt"] is None
    repaired = clock.pass_seconds(1)
    board.settled(ONE)
    expected = {"at": at, "fields": ["ackWait"], "changes": [], "client": "nats CLI", "user": "bob", "repairedAt": repaired}
    clock.pass_seconds(600)
    board.looked(DECLARED, nothing_unknown(), ())
    assert resource(board, ONE)["lastDrift"] == expected


def test_a_drift_that_somebody_else_repaired_is_found_repaired(board: Board, clock: Calendar) -> None:
    board.looked(DECLARED, nothing_unknown(), [drift(ONE, "ackWait")])
    board.drifted(ONE, ("ackWait",))
    repaired = clock.pass_seconds(3)
    board.looked(DECLARED, nothing_unknown(), ())
    assert resource(board, ONE)["lastDrift"]["repairedAt"] == repaired


def test_the_author_may_become_known_a_moment_later(board: Board, clock: Calendar) -> None:
    board.drifted(ONE, ("ackWait",))
    board.drifted(TWO, ("ackWait",))
    clock.pass_seconds(5)
    assert board.attributed(ONE, SOMEBODY)
    assert resource(board, ONE)["lastDrift"]["user"] == "bob"
    assert not board.attributed(ONE, Author("another", "eve", ""))
    assert resource(board, ONE)["lastDrift"]["user"] == "bob"
    clock.pass_seconds(0.1)
    assert not board.attributed(TWO, SOMEBODY)
    assert resource(board, TWO)["lastDrift"]["user"] is None


def test_a_durable_deleted_behind_a_stream_is_part_of_its_drift_and_its_author_may_come_later(board: Board) -> None:
    board.drifted(ONE, ("ackWait",), SOMEBODY)
    board.durable_gone(ONE, DURABLE)
    board.durable_gone(TWO, THEIR_DURABLE)
    eve = Author("another", "eve", "")
    assert board.attributed(DURABLE, eve)
    assert not board.attributed(DURABLE, SOMEBODY)
    shown = resource(board, ONE)["lastDrift"]
    assert (shown["fields"], shown["user"]) == (["ackWait"], "bob")
    assert shown["deleted"] == [{"key": "Consumer/ORIGIN/c", "client": "another", "user": "eve"}]
    board.attributed(THEIR_DURABLE, eve)
    assert resource(board, TWO)["lastDrift"]["user"] == "eve", "nothing else was done to it"


def test_what_is_deleted_itself_later_says_nothing_of_the_durable_any_more(board: Board) -> None:
    board.durable_gone(ONE, DURABLE)
    board.settled(ONE)
    board.drifted(ONE, ())
    assert "deleted" not in resource(board, ONE)["lastDrift"]
    assert not board.attributed(DURABLE, SOMEBODY)


def test_of_many_drifts_the_oldest_are_forgotten() -> None:
    names = [f"c{number}" for number in range(10_001)]
    many = build.desired(*(build.consumer("S", name) for name in names))
    board = blank(Calendar())
    board.connection(True, "")
    board.looked(many, nothing_unknown(), ())
    for name in names:
        board.drifted(Key("Consumer", name, "S"), ("ackWait",))
    assert resource(board, Key("Consumer", "c0", "S"))["lastDrift"] is None
    assert resource(board, Key("Consumer", "c1", "S"))["lastDrift"] is not None


def test_a_fight_is_shown_while_it_lasts(board: Board, clock: Calendar) -> None:
    board.fighting(ONE, THEIRS, 21, SOMEBODY)
    expected = {"field": "ackWait", "value": "45s", "times": 21, "client": "nats CLI", "user": "bob"}
    assert resource(board, ONE)["fight"] == expected
    clock.pass_seconds(601)
    assert "fight" not in resource(board, ONE)


def test_who_fights_may_become_known_a_moment_later(board: Board, clock: Calendar) -> None:
    board.drifted(ONE, ("ackWait",))
    board.fighting(ONE, THEIRS, 21)
    assert (resource(board, ONE)["fight"]["client"], resource(board, ONE)["fight"]["user"]) == (None, None)
    board.attributed(ONE, SOMEBODY)
    assert resource(board, ONE)["fight"]["user"] == "bob"
    clock.pass_seconds(1)
    board.drifted(ONE, ("maxDeliver",))
    board.attributed(ONE, Author("another", "eve", ""))
    assert resource(board, ONE)["fight"]["user"] == "bob", "eve has set another field"


def test_a_bucket_may_be_called_by_its_stream(board: Board) -> None:
    bucket = Key("KeyValue", "config")
    wanted = Desired({bucket: build.stream("KV_config")})
    board.looked(wanted, nothing_unknown(), ())
    board.failed(bucket.live_key, "no answer", 1.0)
    assert states(board) == {"KeyValue/config": "Error"}
    board.looked(wanted, nothing_unknown(), (), scope=(bucket.live_key,))
    assert states(board) == {"KeyValue/config": "Synced"}


def test_what_is_declared_later_is_synced_since_then_and_what_is_not_any_more_is_gone(board: Board, clock: Calendar) -> None:
    board.failed(TWO, "no answer", 1.0)
    later = clock.pass_seconds(30)
    three = Key("Consumer", "three", "S")
    board.looked(build.desired(build.consumer("S", "one"), build.consumer("S", "three")), nothing_unknown(), ())
    assert states(board) == {str(ONE): "Synced", str(three): "Synced"}
    assert resource(board, three)["since"] == later
    assert resource(board, ONE)["since"] != later


def test_a_pool_with_incomplete_files_is_unknown() -> None:
    pool = Key("WorkerPool", "p")
    board = blank(Calendar())
    board.connection(True, "")
    board.looked(Desired({}, held_back={pool: "shard 2 of 3 is missing"}), nothing_unknown(), ())
    assert resource(board, pool)["message"] == "shard 2 of 3 is missing"
    assert states(board) == {"WorkerPool/p": "Unknown"}


def test_counts_cover_every_kind_and_state(board: Board) -> None:
    board.looked(
        DECLARED,
        nothing_unknown(),
        [drift(ONE, "ackWait"), Change(key=Key("Stream", "X"), action=Action.DELETE, cause=Cause.PRUNE)],
    )
    counts = board.counts()
    assert (counts["Consumer", "Synced"], counts["Consumer", "OutOfSync"]) == (1, 1)
    assert (counts["Stream", "Synced"], counts["Stream", "OutOfSync"]) == (1, 1)
    assert counts["WorkerPool", "Error"] == 0
    assert len(counts) == 5 * 8
    board.connection(False, "")
    assert {state for (_, state), number in board.counts().items() if number} == {"Unknown"}
    assert sum(board.counts().values()) == 4


def test_the_document_has_the_frozen_shape_and_its_additions(board: Board, clock: Calendar) -> None:
    begun = units.format_time(clock())
    board.leadership(True, "box (pid 7)")
    board.manifests("r1", ())
    board.manifests("r1", (Problem("a.yaml", 3, 1, "bad-value", "no"),))
    board.audit("on", 12.34)
    board.full_plan(
        refused=(Reason("empty", "nothing is declared"),), fingerprint="sha256:f00", counts={"delete": 2, "unchanged": 3}
    )
    board.pass_ended(PassReport(number=4, scope="full", result="refused", seconds={"diff": 0.1}))
    document = board.document(StatusQuery(), events=[{"type": "x"}])
    conforms(document, STATUS)
    assert orjson.loads(orjson.dumps(document)) == document
    assert (document["revision"], document["environment"], document["leader"]) == ("r1", "e", "box (pid 7)")
    assert document["refused"] == ["empty: nothing is declared"]
    assert document["lastPass"] == document["lastPass"] | {
        "at": begun,
        "result": "refused",
        "changes": 2,
        "refused": document["refused"],
    }
    assert document["manifests"]["loadedAt"] == begun
    assert [problem["code"] for problem in document["manifests"]["problems"]] == ["bad-value"]
    assert document["audit"] == {"state": "on", "rate": 12.3}
    assert document["process"] == {"pid": 7, "host": "box", "version": "1.2.3", "startedAt": begun}
    assert document["server"]["apiLevel"] == 5
    assert (document["ready"], document["notReady"], document["events"]) == (True, "", [{"type": "x"}])


def test_a_hint_pass_does_not_hide_the_last_full_one(board: Board) -> None:
    board.pass_ended(PassReport(number=1, scope="full", result="noop"))
    board.pass_ended(PassReport(number=2, scope="hint", result="success", keys=1))
    document = board.document(StatusQuery())
    assert (document["lastPass"]["number"], document["lastHint"]["number"]) == (1, 2)


def test_no_login_is_shown(board: Board) -> None:
    board.connection(True, "nats://bob:hunter2@127.0.0.1:4222")
    assert b"hunter2" not in orjson.dumps(board.document(StatusQuery()))


def test_pages_follow_each_other_without_gap_or_repetition(board: Board) -> None:
    wanted = build.desired(build.stream("S"), *(build.consumer("S", f"c{number:02}") for number in range(25)))
    extra = Change(key=Key("Consumer", "c07a", "S"), action=Action.DELETE, cause=Cause.PRUNE)
    board.looked(wanted, nothing_unknown(), [drift(Key("Consumer", "c03", "S"), "ackWait"), extra])
    queries: tuple[dict[str, Any], ...] = ({}, {"state": "Synced"}, {"kind": "Consumer"})
    for query in queries:
        whole = board.document(StatusQuery(**query))
        seen, cursor, pages = [], "", 0
        while cursor is not None:
            page = board.document(StatusQuery(limit=4, cursor=cursor, **query))
            assert page["summary"] == whole["summary"]
            seen += [entry["key"] for entry in page["resources"]]
            cursor, pages = page["cursor"], pages + 1
        assert seen == [entry["key"] for entry in whole["resources"]]
        assert pages == -(-len(seen) // 4)
    assert whole["cursor"] is None
    assert states(board, state="OutOfSync") == {"Consumer/S/c03": "OutOfSync", "Consumer/S/c07a": "OutOfSync"}
    assert list(states(board)) == sorted(states(board), key=lambda text: Key.parse(text).sort_key)


def test_a_page_of_one_state_when_most_are_in_it(board: Board) -> None:
    board.looked(DECLARED, nothing_unknown(), [drift(ONE, "ackWait"), drift(TWO, "ackWait"), blocked(STREAM)])
    first = board.document(StatusQuery(state="OutOfSync", limit=1))
    second = board.document(StatusQuery(state="OutOfSync", limit=1, cursor=first["cursor"]))
    assert [first["resources"][0]["key"], second["resources"][0]["key"]] == [str(ONE), str(TWO)]
    assert second["cursor"] is None


def test_a_page_goes_on_although_its_last_key_is_gone(board: Board) -> None:
    page = board.document(StatusQuery(limit=2))
    assert [entry["key"] for entry in page["resources"]] == [str(STREAM), str(ONE)]
    board.looked(build.desired(build.stream("S"), build.consumer("S", "two")), nothing_unknown(), ())
    rest = board.document(StatusQuery(limit=2, cursor=page["cursor"]))
    assert [entry["key"] for entry in rest["resources"]] == [str(TWO)]


@pytest.mark.parametrize(
    "query", [{"kind": "stream"}, {"state": "Lost"}, {"limit": 0}, {"cursor": "x"}, {"cursor": "W10="}, {"cursor": "é"}]
)
def test_a_query_that_makes_no_sense_is_told(board: Board, query: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(query))):
        board.document(StatusQuery(**query))


def test_while_all_is_well_nothing_costs_what_the_number_of_resources_costs() -> None:
    def seconds(number: int) -> float:
        wanted = build.desired(build.stream("S"))
        keys = {Key("Consumer", f"c{index}", "S"): wanted.resources[STREAM] for index in range(number)}
        board = blank(Calendar())
        board.connection(True, "")
        desired = Desired({**wanted.resources, **keys})
        board.looked(desired, nothing_unknown(), ())
        board.document(StatusQuery())
        begun = time.process_time()
        for _ in range(20):
            board.looked(desired, nothing_unknown(), [drift(STREAM, "maxAge")])
            board.settled(STREAM)
            board.counts()
            board.document(StatusQuery(limit=10, state="OutOfSync"))
        return time.process_time() - begun

    # A hundred times the resources would cost a hundred times as much; what is measured here is small, and so bears noise.
    assert min(seconds(20_000) for _ in range(5)) < 20 * min(seconds(200) for _ in range(5))
