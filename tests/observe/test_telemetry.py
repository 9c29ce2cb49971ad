"""What one process says about its work: each thing once, on the level it deserves."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import pytest

from reconciler.errors import Problem
from reconciler.jetstream.leading.fence import FenceNews, FenceState
from reconciler.model.identity import Key
from reconciler.observe.metrics import Metrics
from reconciler.observe.status.backlog import Backlog
from reconciler.observe.telemetry import Ending, PassReport, Telemetry
from reconciler.plan.change import Action, Author, Cause, Change, FieldDiff, Reason
from tests.support.daemon.telling import Lines, Sink, telemetry_of
from tests.support.values.plans import changes

ORDERS = Key("Stream", "ORDERS")
BILLING = Key("Consumer", "billing", "ORDERS")
UPDATE = Change(
    key=BILLING,
    action=Action.UPDATE,
    cause=Cause.DRIFT,
    fields=(FieldDiff("ackWait", "30s", "45s"),),
    by=Author("nats CLI", "bob", "2026-01-31T12:00:00Z"),
)
BLOCKED = UPDATE.blocked(Reason("data-loss", "12 messages would be lost", "--allow it"))


@dataclass
class Told:
    """Telemetry, and what came out of it."""

    lines: Lines = field(default_factory=Lines)
    sink: Sink = field(default_factory=Sink)
    to: Telemetry = field(init=False)

    def __post_init__(self) -> None:
        self.to = telemetry_of(Metrics(), self.sink, self.lines)

    @property
    def types(self) -> list[str]:
        """The events published, in order."""
        return [document["type"] for _, document in self.sink.messages]


@pytest.fixture
def told() -> Told:
    """Telemetry that has said nothing yet."""
    return Told()


def full(result: str = "success", **results: int) -> PassReport:
    return PassReport(
        number=7, scope="full", result=result, revision="abc", seconds={"load": 0.5, "apply": 1.25}, results=results
    )


def blocked_again(told: Told, change: Change = BLOCKED) -> None:
    told.to.change_ended(Ending(change=change, result="skipped", error="data-loss: 12 messages would be lost"))
    told.to.pass_ended(full(skipped=1))


def test_a_pass_is_one_line_with_its_counts(told: Told) -> None:
    told.to.pass_ended(full(applied=3, failed=0))
    assert told.lines.kept == [
        {
            "level": "info",
            "event": "pass.ended",
            "owner": "default",
            "pass": 7,
            "scope": "full",
            "result": "success",
            "revision": "abc",
            "duration_s": 1.75,
            "applied": 3,
        }
    ]


@pytest.mark.parametrize(
    ("report", "level"),
    [
        (full(applied=1), "info"),
        (full("refused"), "info"),
        (full("noop"), "debug"),
        (replace(full("error"), error="no answer"), "warning"),
        (replace(full(), scope="hint", keys=2), "debug"),
        (replace(full(skipped=1), scope="hint", keys=2), "debug"),
        (replace(full(applied=1), scope="hint", keys=2), "info"),
        (replace(full("error"), scope="hint", keys=2, error="no answer"), "warning"),
    ],
)
def test_a_pass_is_as_loud_as_what_it_did(told: Told, report: PassReport, level: str) -> None:
    told.to.pass_ended(report)
    assert [line["level"] for line in told.lines.kept] == [level]


def test_a_follower_says_once_that_it_only_watches(told: Told) -> None:
    for reason in ("held by a", "held by a", "held by b"):
        told.to.pass_ended(replace(full("skipped"), error=reason))
    assert [line["level"] for line in told.lines.kept] == ["info", "debug", "info"]


def test_a_change_is_one_line_that_names_resource_action_result_and_author(told: Told) -> None:
    told.to.change_ended(Ending(change=UPDATE, result="applied", seconds=0.0123, notes=("2 duplicates",)))
    assert told.lines.kept == [
        {
            "level": "info",
            "event": "change.ended",
            "owner": "default",
            "resource": "Consumer/ORDERS/billing",
            "action": "update",
            "cause": "drift",
            "result": "applied",
            "fields": ["ackWait"],
            "duration_s": 0.012,
            "notes": ["2 duplicates"],
            "client": "nats CLI",
            "user": "bob",
        }
    ]
    subject, document = told.sink.messages[0]
    assert subject == "reconciler.events.default.Consumer.ORDERS/billing"
    assert document["data"]["message"] == "update Consumer/ORDERS/billing: applied"
    assert document["data"]["user"] == "bob"


def test_a_failed_change_is_a_warning_with_its_error_each_time(told: Told) -> None:
    for _ in range(2):
        told.to.change_ended(Ending(change=UPDATE, result="failed", seconds=0.1, error="STREAM.UPDATE: no (500/10052)"))
    assert [line["level"] for line in told.lines.kept] == ["warning", "warning"]
    assert told.lines.kept[0]["error"] == "STREAM.UPDATE: no (500/10052)"
    assert [document["data"]["severity"] for _, document in told.sink.messages] == ["warning", "warning"]


@pytest.mark.parametrize("change", changes(), ids=lambda change: change.action.value)
@pytest.mark.parametrize("result", ["applied", "failed", "skipped", "unfinished"])
def test_every_kind_of_change_can_be_told(told: Told, change: Change, result: str) -> None:
    told.to.change_ended(Ending(change=change, result=result))
    assert [line["event"] for line in told.lines.kept] == ["change.ended"]
    assert told.lines.kept[0]["action"] == change.action.value


def test_a_blocked_resource_is_said_once_until_its_reasons_change(told: Told) -> None:
    for _ in range(3):
        blocked_again(told)
    assert told.lines.at("warning") == ["change.ended"]
    assert told.lines.kept[0]["reasons"] == ["data-loss: 12 messages would be lost; --allow it"]
    assert told.types == ["reconciler.change.ended"]
    blocked_again(told, UPDATE.blocked(Reason("data-loss", "13 messages would be lost")))
    assert told.lines.at("warning") == ["change.ended"] * 2


def test_a_blocked_resource_is_said_again_when_it_was_not_blocked_meanwhile(told: Told) -> None:
    blocked_again(told)
    told.to.pass_ended(full("noop"))
    blocked_again(told)
    assert told.lines.at("warning") == ["change.ended"] * 2
    told.to.change_ended(Ending(change=UPDATE, result="applied"))
    blocked_again(told)
    assert told.lines.at("warning") == ["change.ended"] * 3


def test_a_pass_that_saw_nothing_does_not_make_blocked_resources_news(told: Told) -> None:
    blocked_again(told)
    for result in ("error", "skipped", "refused"):
        told.to.pass_ended(full(result))
    told.to.pass_ended(replace(full(), scope="hint"))
    told.lines.clear()
    blocked_again(told)
    assert told.lines.at("warning") == []


def test_a_suspended_resource_is_no_warning(told: Told) -> None:
    suspended = UPDATE.blocked(Reason("suspended", "the manifest suspends it"))
    told.to.change_ended(Ending(change=suspended, result="skipped"))
    assert [line["level"] for line in told.lines.kept] == ["info"]


def test_drift_names_the_fields_and_who_did_it(told: Told) -> None:
    told.to.drifted(BILLING, ("ackWait",), Author("nats CLI", "bob", ""))
    told.to.drifted(ORDERS, (), None)
    line = told.lines.kept[0]
    assert (line["event"], line["client"], line["user"], line["fields"]) == ("drift.detected", "nats CLI", "bob", ["ackWait"])
    assert [document["data"]["message"] for _, document in told.sink.messages] == [
        "Consumer/ORDERS/billing was changed by bob: ackWait",
        "Stream/ORDERS was deleted, with all that it held",
    ]


def test_a_durable_that_was_deleted_is_told_by_its_own_name_and_with_who_reads_through_it(told: Told) -> None:
    told.to.durable_gone(BILLING, ORDERS, Author("nats CLI", "bob", ""))
    line = told.lines.kept[0]
    assert (line["resource"], line["client"], line["message"]) == (
        "Consumer/ORDERS/billing",
        "nats CLI",
        "it was deleted; Stream/ORDERS reads through it",
    )
    said = [document["data"]["message"] for _, document in told.sink.messages]
    assert said == ["Consumer/ORDERS/billing was deleted by bob; Stream/ORDERS reads through it"]


def test_a_fight_is_a_warning_with_the_field(told: Told) -> None:
    told.to.fighting(BILLING, "ackWait", 21)
    line = told.lines.kept[0]
    assert (line["level"], line["event"], line["field"], line["times"]) == ("warning", "drift.fighting", "ackWait", 21)
    assert told.types == ["reconciler.drift.fighting"]


@pytest.mark.parametrize(
    ("author", "who", "fields"),
    [
        (Author("nats CLI", "bob", ""), "nats CLI (user bob)", {"client": "nats CLI", "user": "bob"}),
        (Author("nats CLI", "", ""), "nats CLI", {"client": "nats CLI"}),
        (Author("", "bob", ""), "an unnamed client (user bob)", {"user": "bob"}),
        (Author("", "", ""), "another client", {}),
        (None, "another client", {}),
    ],
)
def test_a_fight_names_who_it_is_with(told: Told, author: Author | None, who: str, fields: dict[str, str]) -> None:
    told.to.fighting(BILLING, "ackWait", 21, author)
    said = f"{who} has set ackWait to the same value 21 times; it is repaired less often now"
    line, event = told.lines.kept[0], told.sink.messages[0][1]["data"]
    assert (line["message"], event["message"]) == (said, f"Consumer/ORDERS/billing: {said}")
    for found in (line, event):
        assert {name: found[name] for name in ("client", "user") if name in found} == fields


def problems(count: int) -> tuple[Problem, ...]:
    return tuple(Problem("a.yaml", number + 1, 3, "bad-value", f"problem {number}", "spec.x") for number in range(count))


def test_each_problem_of_the_manifests_is_a_line_with_its_place(told: Told) -> None:
    told.to.manifests_refused(problems(2))
    assert told.lines.at("error") == ["manifests.problem", "manifests.problem", "manifests.refused"]
    assert told.lines.kept[1] == {
        "level": "error",
        "event": "manifests.problem",
        "owner": "default",
        "file": "a.yaml",
        "line": 2,
        "column": 3,
        "code": "bad-value",
        "message": "problem 1",
        "field": "spec.x",
        "severity": "error",
    }
    assert told.types == ["reconciler.manifests.refused"]


def test_many_problems_are_counted_after_the_first_twenty(told: Told) -> None:
    told.to.manifests_refused(problems(70))
    assert told.lines.at("error").count("manifests.problem") == 20
    assert (told.lines.kept[-1]["problems"], told.lines.kept[-1]["not_shown"]) == (70, 50)


def test_the_same_problems_are_said_once_and_new_ones_alone(told: Told) -> None:
    told.to.manifests_refused(problems(2))
    told.lines.clear()
    told.to.manifests_refused(problems(2))
    assert told.lines.at("error") == []
    told.to.manifests_refused(problems(3))
    assert [line["message"] for line in told.lines.kept if line["event"] == "manifests.problem"] == ["problem 2"]


def test_problems_are_news_again_after_manifests_were_good(told: Told) -> None:
    told.to.manifests_refused(problems(1))
    told.to.manifests_loaded("abc", {"Stream": 1})
    told.to.manifests_refused(problems(1))
    assert told.lines.at("error") == ["manifests.problem", "manifests.refused"] * 2


def test_each_set_of_manifests_that_is_taken_up_is_told(told: Told) -> None:
    for revision in ("a", "a", "b"):
        told.to.manifests_loaded(revision, {"Stream": 2, "Consumer": 3})
    assert [line["level"] for line in told.lines.kept] == ["info", "info", "info"]
    assert told.lines.kept[0]["resources"] == 5
    assert told.types == ["reconciler.manifests.loaded"] * 3


def test_a_refused_plan_is_said_once_and_so_is_its_end(told: Told) -> None:
    for reasons in ((), ("mass-change",), ("mass-change",), (), ()):
        told.to.refused(reasons)
    assert [(line["level"], line["event"]) for line in told.lines.kept] == [
        ("warning", "plan.refused"),
        ("info", "plan.accepted"),
    ]
    assert told.types == ["reconciler.plan.refused", "reconciler.plan.accepted"]


def test_only_what_is_not_proven_about_the_leader_before_is_a_warning_and_an_event(told: Told) -> None:
    for state in FenceState:
        told.to.fence(FenceNews(state, "why" if state is not FenceState.PROVEN else "", 2.0))
    said = [(line["event"], line["level"]) for line in told.lines.kept]
    assert said == [
        ("fence.waiting", "info"),
        ("fence.clean", "warning"),  # a grant is missing: the next one will not know
        ("fence.proven", "info"),
        ("fence.unproven", "warning"),
    ]
    assert told.types == ["reconciler.fence.unproven"]


def test_the_lease_is_said_when_it_moves(told: Told) -> None:
    told.to.leading(False, "not connected")
    told.to.follows("a")
    told.to.leading(True, "")
    told.to.leading(True, "")
    told.to.leading(False, "it ran out")
    assert [line["event"] for line in told.lines.kept] == ["lease.held_elsewhere", "lease.acquired", "lease.lost"]
    assert told.lines.kept[-1]["reason"] == "it ran out"
    assert told.types == ["reconciler.lease.acquired", "reconciler.lease.lost"]


def test_the_connection_is_said_when_it_comes_and_goes(told: Told) -> None:
    for now in (True, True, False, False, True):
        told.to.connected(now, "nats://127.0.0.1:4222")
    assert [line["event"] for line in told.lines.kept] == ["nats.connected", "nats.disconnected", "nats.connected"]
    assert told.lines.at("warning") == ["nats.disconnected"]


def test_the_audit_is_said_when_it_changes(told: Told) -> None:
    for state in ("on", "on", "shed", "on"):
        told.to.audit(state, 10.0)
    assert [(line["level"], line["state"]) for line in told.lines.kept] == [("info", "on"), ("warning", "shed"), ("info", "on")]


def test_a_consumer_that_stands_still_for_two_looks_is_named_once(told: Told) -> None:
    full, none = Backlog(9, 5, frozenset({BILLING})), Backlog()
    for behind in (full, none, full, none):
        told.to.backlog.seen(behind)
    assert told.lines.kept == []
    for behind in (full, full, full, none, full, full):
        told.to.backlog.seen(behind)
    assert [line["resources"] for line in told.lines.kept] == [["Consumer/ORDERS/billing"]] * 2
    assert told.lines.at("warning") == ["consumers.full"] * 2


def test_steps_and_retries_are_for_those_who_look_closely(told: Told) -> None:
    told.to.procedure_stepped(BILLING, "pause")
    told.to.retrying(BILLING, 0.5, "no answer")
    told.to.retrying(BILLING, math.inf, "no")
    assert told.lines.at("debug") == ["procedure.stepped", "change.retrying", "change.retrying"]
    assert [line.get("in_s") for line in told.lines.kept] == [None, 0.5, None]
    assert told.types == ["reconciler.procedure.stepped"]
