"""The metrics are a contract: names, types and labels as alerts and dashboards use them."""

from __future__ import annotations

import platform
from collections.abc import Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from reconciler import __version__
from reconciler.errors import Problem
from reconciler.jetstream.leading.fence import FenceNews, FenceState
from reconciler.model.identity import KINDS, Key
from reconciler.observe.metrics import AUTHORS, Metrics
from reconciler.observe.status.backlog import Backlog
from reconciler.observe.telemetry import Ending, PassReport, Telemetry
from reconciler.plan.change import Action, Author, Cause, Change
from tests.support.daemon.telling import NOW, Sink, telemetry_of

NO_LABELS: tuple[str, ...] = ()
TABLE = {
    "reconciler_build_info": ("gauge", ("version", "revision", "python")),
    "reconciler_reconcile_total": ("counter", ("result",)),
    "reconciler_reconcile_duration_seconds": ("histogram", ("phase",)),
    "reconciler_last_attempt_timestamp_seconds": ("gauge", NO_LABELS),
    "reconciler_last_success_timestamp_seconds": ("gauge", NO_LABELS),
    "reconciler_resources": ("gauge", ("kind", "state")),
    "reconciler_planned_changes": ("gauge", ("kind", "action")),
    "reconciler_changes_total": ("counter", ("kind", "action", "result")),
    "reconciler_drift_detected_total": ("counter", ("kind",)),
    "reconciler_drift_fights_total": ("counter", ("kind",)),
    "reconciler_drift_authors_total": ("counter", ("author",)),
    "reconciler_plan_refused": ("gauge", ("reason",)),
    "reconciler_interval_seconds": ("gauge", NO_LABELS),
    "reconciler_dry_run": ("gauge", NO_LABELS),
    "reconciler_procedures": ("gauge", ("state",)),
    "reconciler_procedure_oldest_seconds": ("gauge", NO_LABELS),
    "reconciler_consumer_pending": ("gauge", NO_LABELS),
    "reconciler_consumer_unacknowledged": ("gauge", NO_LABELS),
    "reconciler_consumers_full": ("gauge", NO_LABELS),
    "reconciler_retries_total": ("counter", ("kind",)),
    "reconciler_backoff_resources": ("gauge", ("kind",)),
    "reconciler_sources": ("gauge", ("health",)),
    "reconciler_source_stalled": ("gauge", ("cause",)),
    "reconciler_source_active_seconds": ("gauge", NO_LABELS),
    "reconciler_source_pending": ("gauge", NO_LABELS),
    "reconciler_source_kicks_total": ("counter", NO_LABELS),
    "reconciler_source_incidents_total": ("counter", ("incident",)),
    "reconciler_api_requests_total": ("counter", ("operation", "code")),
    "reconciler_api_request_duration_seconds": ("histogram", ("operation", "code")),
    "reconciler_nats_connected": ("gauge", NO_LABELS),
    "reconciler_nats_reconnects_total": ("counter", NO_LABELS),
    "reconciler_leader": ("gauge", NO_LABELS),
    "reconciler_leader_transitions_total": ("counter", NO_LABELS),
    "reconciler_fence_unproven": ("gauge", NO_LABELS),
    "reconciler_fence_seconds": ("gauge", NO_LABELS),
    "reconciler_config_last_reload_successful": ("gauge", NO_LABELS),
    "reconciler_config_last_reload_success_timestamp_seconds": ("gauge", NO_LABELS),
    "reconciler_manifests": ("gauge", ("kind",)),
    "reconciler_pool_generations_loaded_total": ("counter", NO_LABELS),
    "reconciler_pool_subjects_moved_total": ("counter", NO_LABELS),
    "reconciler_pools_held_back": ("gauge", NO_LABELS),
    "reconciler_queue_depth": ("gauge", NO_LABELS),
    "reconciler_queue_duration_seconds": ("histogram", NO_LABELS),
    "reconciler_unfinished_work_seconds": ("gauge", NO_LABELS),
    "reconciler_audit_shed": ("gauge", NO_LABELS),
    "reconciler_audit_messages_per_second": ("gauge", NO_LABELS),
    "reconciler_events_dropped_total": ("counter", NO_LABELS),
}
VALUES = {
    "kind": {"Stream", "Consumer", "KeyValue", "ObjectStore", "WorkerPool"},
    "phase": {"load", "snapshot", "diff", "apply"},
    "health": {"flowing", "paused", "stalled", "waiting", "error", "unknown"},
    "incident": {"reset", "recreated", "lost"},
    "reason": {"percent", "data_loss", "empty", "invalid", "other"},
    "code": {"ok"},
    "author": {"other"},
    "action": {"create", "update", "adopt", "procedure", "recreate", "delete", "blocked"},
}
OF_THEIR_OWN = {
    "reconciler_reconcile_total": ("result", {"success", "error", "noop", "refused", "skipped"}),
    "reconciler_changes_total": ("result", {"applied", "failed", "skipped", "unfinished"}),
    "reconciler_resources": (
        "state",
        {"synced", "out_of_sync", "progressing", "blocked", "error", "suspended", "unknown", "unmanaged"},
    ),
    "reconciler_procedures": ("state", {"running", "aborting", "aborted", "failed", "unfinished", "journaled"}),
}
"""Labels that have other values in another metric."""
ORDERS = Key("Stream", "ORDERS")
BILLING = Key("Consumer", "billing", "ORDERS")

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def samples(rendered: bytes) -> Samples:
    """Every sample by name and labels."""
    families = text_string_to_metric_families(rendered.decode())
    return {(sample.name, frozenset(sample.labels.items())): sample.value for family in families for sample in family.samples}


def value(telemetry: Telemetry, name: str, **labels: str) -> float:
    """One sample of what Prometheus would see."""
    return samples(telemetry.render())[f"reconciler_{name}", frozenset(labels.items())]


@pytest.fixture
def telemetry() -> Telemetry:
    """Telemetry at a fixed time, telling nobody."""
    return telemetry_of(Metrics(), Sink())


@pytest.mark.parametrize("name", TABLE)
def test_every_metric_of_the_table_is_there_with_its_type_and_labels_before_anything_happened(name: str) -> None:
    families = {family.name: family for family in text_string_to_metric_families(Metrics().render().decode())}
    type_, labels = TABLE[name]
    family = families[name.removesuffix("_total")]
    assert family.type == type_
    own = [sample for sample in family.samples if not sample.name.endswith(("_bucket", "_sum"))]
    assert own
    assert all(set(sample.labels) == set(labels) for sample in own)
    assert family.documentation


def test_there_is_no_metric_beside_the_table_but_those_of_the_process_itself() -> None:
    names = {family.name for family in text_string_to_metric_families(Metrics().render().decode())}
    listed = {name.removesuffix("_total") for name in TABLE}
    assert {name for name in names - listed if not name.startswith("reconciler_process_")} == set()
    assert "reconciler_process_resident_memory_bytes" in names


@pytest.mark.parametrize("label", VALUES)
def test_every_value_a_label_can_have_is_there_at_zero_from_the_start(label: str) -> None:
    for family in text_string_to_metric_families(Metrics().render().decode()):
        if not any(label in sample.labels for sample in family.samples):
            continue
        assert {sample.labels[label] for sample in family.samples} == VALUES[label], family.name
        assert all(sample.value == 0 for sample in family.samples), family.name


@pytest.mark.parametrize("name", OF_THEIR_OWN)
def test_every_result_and_state_is_there_at_zero_from_the_start(name: str) -> None:
    label, values = OF_THEIR_OWN[name]
    found = {dict(labels)[label]: number for (sample, labels), number in samples(Metrics().render()).items() if sample == name}
    assert found == dict.fromkeys(values, 0)


def test_every_operation_that_is_used_is_there_from_the_start() -> None:
    labels = [dict(labels) for name, labels in samples(Metrics().render()) if name == "reconciler_api_requests_total"]
    operations = {found["operation"] for found in labels}
    assert {"INFO", "STREAM.LIST", "STREAM.CREATE", "CONSUMER.LIST", "CONSUMER.PAUSE", "STREAM.MSG.GET"} <= operations


def test_the_build_says_what_is_running() -> None:
    labels = frozenset({"version": __version__, "revision": "1a2b3c", "python": platform.python_version()}.items())
    assert samples(Metrics(revision="1a2b3c").render())["reconciler_build_info", labels] == 1


def test_two_sets_of_metrics_in_one_process_know_nothing_of_each_other() -> None:
    one, other = Metrics(), Metrics()
    one.events_dropped.inc()
    name = ("reconciler_events_dropped_total", frozenset[tuple[str, str]]())
    assert (samples(one.render())[name], samples(other.render())[name]) == (1, 0)


def test_a_full_pass_is_counted_timed_and_dated(telemetry: Telemetry) -> None:
    telemetry.pass_ended(PassReport(number=1, scope="full", result="success", seconds={"load": 0.2, "apply": 1.5}))
    assert value(telemetry, "reconcile_total", result="success") == 1
    assert value(telemetry, "reconcile_duration_seconds_sum", phase="apply") == 1.5
    assert value(telemetry, "reconcile_duration_seconds_count", phase="snapshot") == 0
    assert value(telemetry, "last_attempt_timestamp_seconds") == NOW
    assert value(telemetry, "last_success_timestamp_seconds") == NOW


@pytest.mark.parametrize("result", ["error", "refused", "skipped"])
def test_a_full_pass_that_did_not_end_well_was_only_attempted(telemetry: Telemetry, result: str) -> None:
    telemetry.pass_ended(PassReport(number=1, scope="full", result=result))
    assert value(telemetry, "last_attempt_timestamp_seconds") == NOW
    assert value(telemetry, "last_success_timestamp_seconds") == 0


def test_a_pass_over_a_few_keys_does_not_hide_that_full_passes_fail(telemetry: Telemetry) -> None:
    telemetry.pass_ended(PassReport(number=1, scope="hint", result="success", keys=2))
    assert value(telemetry, "reconcile_total", result="success") == 1
    assert value(telemetry, "last_success_timestamp_seconds") == 0


def test_changes_are_counted_by_kind_action_and_result(telemetry: Telemetry) -> None:
    change = Change(key=BILLING, action=Action.UPDATE, cause=Cause.DRIFT)
    telemetry.change_ended(Ending(change=change, result="applied"))
    telemetry.change_ended(Ending(change=change, result="failed", error="no"))
    assert value(telemetry, "changes_total", kind="Consumer", action="update", result="applied") == 1
    assert value(telemetry, "changes_total", kind="Consumer", action="update", result="failed") == 1
    assert value(telemetry, "changes_total", kind="Stream", action="update", result="applied") == 0


def test_what_is_no_longer_counted_is_zero_again(telemetry: Telemetry) -> None:
    telemetry.resources({("Stream", "Synced"): 3, ("Consumer", "OutOfSync"): 2})
    telemetry.planned({("Consumer", "update"): 2})
    telemetry.in_backoff({"Consumer": 1})
    assert value(telemetry, "resources", kind="Consumer", state="out_of_sync") == 2
    assert value(telemetry, "planned_changes", kind="Consumer", action="update") == 2
    assert value(telemetry, "backoff_resources", kind="Consumer") == 1
    telemetry.resources({("Stream", "Synced"): 3, ("Consumer", "Synced"): 2})
    telemetry.planned({})
    telemetry.in_backoff({})
    assert value(telemetry, "resources", kind="Stream", state="synced") == 3
    assert value(telemetry, "resources", kind="Consumer", state="out_of_sync") == 0
    assert value(telemetry, "planned_changes", kind="Consumer", action="update") == 0
    assert value(telemetry, "backoff_resources", kind="Consumer") == 0


@pytest.mark.parametrize(
    ("code", "reason"),
    [("mass-change", "percent"), ("empty", "empty"), ("data-loss", "data_loss"), ("invalid", "invalid"), ("unheard-of", "other")],
)
def test_a_refused_plan_names_its_reason_until_it_is_accepted(telemetry: Telemetry, code: str, reason: str) -> None:
    telemetry.refused([code])
    assert {r: value(telemetry, "plan_refused", reason=r) for r in VALUES["reason"]} == {
        r: float(r == reason) for r in VALUES["reason"]
    }
    telemetry.refused(())
    assert value(telemetry, "plan_refused", reason=reason) == 0


def test_bad_manifests_leave_the_counts_and_the_time_of_the_good_ones(telemetry: Telemetry) -> None:
    telemetry.manifests_loaded("abc", {"Stream": 2})
    telemetry.manifests_refused((Problem("a.yaml", 1, 1, "bad-value", "no"),))
    assert value(telemetry, "config_last_reload_successful") == 0
    assert value(telemetry, "config_last_reload_success_timestamp_seconds") == NOW
    assert value(telemetry, "manifests", kind="Stream") == 2
    telemetry.manifests_loaded("abd", {"Consumer": 1})
    assert value(telemetry, "config_last_reload_successful") == 1
    assert value(telemetry, "manifests", kind="Stream") == 0
    assert value(telemetry, "manifests", kind="Consumer") == 1


def test_only_connections_after_the_first_are_reconnects(telemetry: Telemetry) -> None:
    telemetry.connected(False, "")
    assert value(telemetry, "nats_connected") == 0
    telemetry.connected(True, "nats://127.0.0.1:4222")
    assert (value(telemetry, "nats_connected"), value(telemetry, "nats_reconnects_total")) == (1, 0)
    telemetry.connected(False, "")
    telemetry.connected(True, "nats://127.0.0.1:4222")
    assert (value(telemetry, "nats_connected"), value(telemetry, "nats_reconnects_total")) == (1, 1)


def test_becoming_the_leader_and_ceasing_to_be_it_are_transitions(telemetry: Telemetry) -> None:
    seen = []
    for now in (False, True, True, False, False):
        telemetry.leading(now, "")
        seen.append((value(telemetry, "leader"), value(telemetry, "leader_transitions_total")))
    assert seen == [(0, 0), (1, 1), (1, 1), (0, 2), (0, 2)]


def test_an_unproven_fence_is_one_as_long_as_its_term(telemetry: Telemetry) -> None:
    seen = []
    for state in (FenceState.WAITING, FenceState.UNPROVEN, FenceState.NONE, FenceState.PROVEN):
        telemetry.fence(FenceNews(state, "", 3.5))
        seen.append(value(telemetry, "fence_unproven"))
    assert seen == [0, 1, 0, 0]
    assert value(telemetry, "fence_seconds") == 3.5


@pytest.mark.parametrize(("state", "shed"), [("on", 0), ("shed", 1), ("off", 0), ("denied", 0)])
def test_the_audit_says_whether_it_is_shed(telemetry: Telemetry, state: str, shed: int) -> None:
    telemetry.audit("shed", 5000.0)
    telemetry.audit(state, 12.5)
    assert value(telemetry, "audit_shed") == shed
    assert value(telemetry, "audit_messages_per_second") == 12.5


def test_drifts_are_counted_by_their_authors_once_they_are_known(telemetry: Telemetry) -> None:
    telemetry.drifted(ORDERS, ("maxAge",), Author("nats CLI", "bob", ""))
    telemetry.drifted(ORDERS, ("maxAge",), Author("nats CLI", "", ""))
    telemetry.drifted(ORDERS, ("maxAge",), None)
    telemetry.drifted(ORDERS, ("maxAge",), Author("", "", ""))
    telemetry.attributed(Author("nats CLI", "", ""))
    assert value(telemetry, "drift_authors_total", author="bob") == 1
    assert value(telemetry, "drift_authors_total", author="nats CLI") == 2
    assert value(telemetry, "drift_authors_total", author="other") == 0
    assert value(telemetry, "drift_detected_total", kind="Stream") == 4


def test_who_calls_himself_something_else_each_time_does_not_fill_the_memory(telemetry: Telemetry) -> None:
    for number in range(AUTHORS + 7):
        telemetry.attributed(Author(f"client {number}", "", ""))
    telemetry.attributed(Author("client 0", "", ""))
    authors = [dict(labels)["author"] for name, labels in samples(telemetry.render()) if name == "reconciler_drift_authors_total"]
    assert len(authors) == AUTHORS + 1
    assert value(telemetry, "drift_authors_total", author="client 0") == 2
    assert value(telemetry, "drift_authors_total", author="other") == 7


def test_procedures_are_counted_as_they_stand_and_the_oldest_that_goes_on_is_dated(telemetry: Telemetry) -> None:
    telemetry.procedures([("running", 12.0), ("running", 30.0), ("journaled", 20.0), ("aborted", 900.0)])
    assert value(telemetry, "procedures", state="running") == 2
    assert value(telemetry, "procedures", state="aborted") == 1
    assert value(telemetry, "procedure_oldest_seconds") == 30
    telemetry.procedures([])
    assert value(telemetry, "procedures", state="running") == 0
    assert value(telemetry, "procedure_oldest_seconds") == 0


FACTS: dict[str, tuple[Callable[[Telemetry], None], str, dict[str, str], float]] = {
    "drift": (lambda t: t.drifted(ORDERS, ("maxAge",), Author("cli", "bob", "")), "drift_detected_total", {"kind": "Stream"}, 1),
    "fight": (lambda t: t.fighting(BILLING, "ackWait", 21), "drift_fights_total", {"kind": "Consumer"}, 1),
    "retry": (lambda t: t.retrying(BILLING, 0.5, "no"), "retries_total", {"kind": "Consumer"}, 1),
    "queue": (lambda t: t.queued(7), "queue_depth", {}, 7),
    "pending": (lambda t: t.backlog.seen(Backlog(9, 5, frozenset({BILLING}))), "consumer_pending", {}, 9),
    "unacknowledged": (lambda t: t.backlog.seen(Backlog(9, 5, frozenset({BILLING}))), "consumer_unacknowledged", {}, 5),
    "full": (lambda t: t.backlog.seen(Backlog(9, 5, frozenset({BILLING}))), "consumers_full", {}, 1),
    "interval": (lambda t: t.manner(interval=60.0, dry_run=False), "interval_seconds", {}, 60),
    "dry run": (lambda t: t.manner(interval=60.0, dry_run=True), "dry_run", {}, 1),
    "wait": (lambda t: t.dequeued(0.25), "queue_duration_seconds_sum", {}, 0.25),
    "work": (lambda t: t.unfinished_work(3.5), "unfinished_work_seconds", {}, 3.5),
    "request": (
        lambda t: t.api_answered("STREAM.INFO", "10059", 0.01),
        "api_requests_total",
        {"operation": "STREAM.INFO", "code": "10059"},
        1,
    ),
    "duration": (
        lambda t: t.api_answered("STREAM.INFO", "ok", 0.01),
        "api_request_duration_seconds_sum",
        {"operation": "STREAM.INFO", "code": "ok"},
        0.01,
    ),
}


@pytest.mark.parametrize("fact", FACTS)
def test_a_fact_becomes_its_metric(telemetry: Telemetry, fact: str) -> None:
    tell, name, labels, expected = FACTS[fact]
    tell(telemetry)
    assert value(telemetry, name, **labels) == expected


def test_no_label_ever_holds_the_name_of_a_resource(telemetry: Telemetry) -> None:
    for tell, *_ in FACTS.values():
        tell(telemetry)
    for kind in KINDS:
        key = Key(kind, "SECRETPLANS", "SECRETPLANS" if kind == "Consumer" else "")
        telemetry.change_ended(Ending(change=Change(key=key, action=Action.CREATE, cause=Cause.MISSING), result="applied"))
        telemetry.procedure_stepped(key, "pause")
    assert b"SECRETPLANS" not in telemetry.render()
    assert b"billing" not in telemetry.render()


def test_events_that_do_not_go_out_are_counted() -> None:
    metrics = Metrics()
    telemetry = telemetry_of(metrics, Sink(open_=False))
    telemetry.drifted(ORDERS, (), None)
    assert value(telemetry, "events_dropped_total") == 1
