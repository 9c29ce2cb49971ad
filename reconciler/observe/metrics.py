"""Every metric by name, in a registry of its own.

Invariant: names and labels are a contract with alerts and dashboards; no label holds the name of a resource, and every
combination of labels that can be foreseen is there from the start, at zero.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from itertools import product
from typing import TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from reconciler import __version__
from reconciler.model.identity import KINDS
from reconciler.plan.change import Action
from reconciler.render.status.judged import Condition
from reconciler.sources.health import SourceState
from reconciler.sources.symptoms import StallCause

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OK = "ok"
"""The `code` of a request that was answered without an error."""
RESULTS = ("applied", "failed", "skipped", "unfinished")
"""How a change can end."""
PASS_RESULTS = ("success", "error", "noop", "refused", "skipped")
PHASES = ("load", "snapshot", "diff", "apply")
OTHER = "other"
REFUSALS = ("percent", "data_loss", "empty", "invalid", OTHER)
_REFUSAL_CODES = {"mass-change": "percent", "data-loss": "data_loss"}
OPERATIONS = (
    "INFO",
    *(f"STREAM.{verb}" for verb in ("LIST", "INFO", "CREATE", "UPDATE", "DELETE", "PURGE", "MSG.GET", "MSG.DELETE")),
    *(f"CONSUMER.{verb}" for verb in ("LIST", "INFO", "CREATE", "DELETE", "PAUSE", "RESET")),
)
"""The JetStream API, as far as it is used."""

_ANSWER_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_PASS_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_WAIT_SECONDS = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


def state_label(condition: Condition) -> str:
    """A condition as a label: `OutOfSync` is `out_of_sync`."""
    return condition.name.lower()


def cause_label(cause: StallCause) -> str:
    """Why a source stalls, as a label."""
    return cause.value.replace("-", "_")


def refusal_label(code: str) -> str:
    """The code of why a plan is refused, as a label."""
    label = _REFUSAL_CODES.get(code, code)
    return label if label in REFUSALS else OTHER


_Labels = TypeVar("_Labels", bound=tuple[str, ...])
STATES = tuple(state_label(condition) for condition in Condition)
ACTIONS = tuple(action.value for action in Action)
SOURCE_STATES = tuple(state.value.lower() for state in SourceState)
SOURCE_CAUSES = tuple(cause_label(cause) for cause in StallCause)
INCIDENTS = ("reset", "recreated", "lost")
PROCEDURE_STATES = ("running", "aborting", "aborted", "failed", "unfinished", "journaled")
AUTHORS = 50
"""Of how many names drifts are counted; the rest is `other`: who may connect may call himself anything."""


class Metrics:
    """The metrics of one process. `revision` is that of the build, where it is known."""

    def __init__(self, *, revision: str = "") -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series beside each counter that nobody asks for
        self.registry = CollectorRegistry()
        ProcessCollector(namespace="reconciler", registry=self.registry)
        build = self._gauge("build_info", "What is running; always 1", "version", "revision", "python")
        build.labels(__version__, revision, platform.python_version()).set(1)
        self._add_passes()
        self._add_resources()
        self._add_consumers()
        self._add_sources()
        self._add_requests()
        self._add_process()

    def render(self) -> bytes:
        """All of them in the Prometheus text format."""
        return generate_latest(self.registry)

    def _add_passes(self) -> None:
        self.passes = self._counter("reconcile", "Passes by how they ended, hinted ones included", "result")
        _preset(self.passes, PASS_RESULTS)
        self.interval = self._gauge("interval_seconds", "How often everything is looked at, whatever happens")
        self.dry_run = self._gauge("dry_run", "Whether this process only looks: it takes no lease, and changes nothing")
        help_ = "How long the phases of passes took"
        self.pass_seconds = self._histogram("reconcile_duration_seconds", help_, _PASS_SECONDS, "phase")
        _preset(self.pass_seconds, PHASES)
        self.last_attempt = self._gauge("last_attempt_timestamp_seconds", "When the last full pass ended, however it did")
        self.last_success = self._gauge("last_success_timestamp_seconds", "When a full pass last ended without an error")
        self.plan_refused = self._gauge("plan_refused", "1 while a guard refuses the whole plan", "reason")
        _preset(self.plan_refused, REFUSALS)
        self.planned = self._gauge("planned_changes", "Changes of the last full plan", "kind", "action")
        _preset(self.planned, KINDS, ACTIONS)

    def _add_resources(self) -> None:
        self.resources = self._gauge("resources", "Resources by the state they are found in", "kind", "state")
        _preset(self.resources, KINDS, STATES)
        help_ = "Changes by how they ended; one that is blocked is skipped by every pass"
        self.changes = self._counter("changes", help_, "kind", "action", "result")
        _preset(self.changes, KINDS, ACTIONS, RESULTS)
        self.drift = self._counter("drift_detected", "Live resources found to differ from what was applied", "kind")
        help_ = f"Drifts whose author became known, by user or else client: the first {AUTHORS} names"
        self.drift_authors = self._counter("drift_authors", help_, "author")
        _preset(self.drift_authors, (OTHER,))
        self.fights = self._counter("drift_fights", "Fields that somebody else sets to the same value again and again", "kind")
        self.retries = self._counter("retries", "Failures that put a resource into backoff", "kind")
        self.backoff = self._gauge("backoff_resources", "Resources that wait for their next try", "kind")
        self.manifests = self._gauge("manifests", "Resources declared by the manifests in use", "kind")
        for metric in (self.drift, self.fights, self.retries, self.backoff, self.manifests):
            _preset(metric, KINDS)
        self.procedures = self._gauge("procedures", "Procedures that are not over, by how they stand", "state")
        _preset(self.procedures, PROCEDURE_STATES)
        help_ = "How long ago the oldest procedure began that is under way, or half done"
        self.procedure_oldest = self._gauge("procedure_oldest_seconds", help_)
        self.pools_loaded = self._counter("pool_generations_loaded", "Generations of worker pools that were loaded whole")
        help_ = "Subjects of worker pools that had another worker in the generation loaded before"
        self.pool_moves = self._counter("pool_subjects_moved", help_)
        help_ = "Worker pools whose newest files are not what their index says, so that what was loaded before stays"
        self.pools_held_back = self._gauge("pools_held_back", help_)
        self.reload_ok = self._gauge("config_last_reload_successful", "Whether the newest manifests are valid, and in use")
        self.reload_time = self._gauge("config_last_reload_success_timestamp_seconds", "When manifests were last taken into use")

    def _add_consumers(self) -> None:
        self.consumer_pending = self._gauge("consumer_pending", "Messages that our consumers have still to deliver")
        help_ = "Messages that our consumers have delivered, and that are not acknowledged"
        self.consumer_unacknowledged = self._gauge("consumer_unacknowledged", help_)
        help_ = "Consumers of ours that have as many unacknowledged messages as they may, and more to deliver: they stand still"
        self.consumers_full = self._gauge("consumers_full", help_)

    def _add_sources(self) -> None:
        self.sources = self._gauge("sources", "Source and mirror entries by how they are found to fare", "health")
        _preset(self.sources, SOURCE_STATES)
        self.source_stalled = self._gauge("source_stalled", "Entries through which nothing is copied, by the cause", "cause")
        _preset(self.source_stalled, SOURCE_CAUSES)
        help_ = "The longest time since something was heard through an entry that flows; heartbeats come every second"
        self.source_active = self._gauge("source_active_seconds", help_)
        self.source_pending = self._gauge("source_pending", "Messages that wait in the origins of all entries")
        help_ = "Times that an entry was detached and attached again, because it did not flow"
        self.source_kicks = self._counter("source_kicks", help_)
        help_ = "Durables moved by hand, origins made anew, and gaps (lost): a durable was away, or was moved forward"
        self.source_incidents = self._counter("source_incidents", help_, "incident")
        _preset(self.source_incidents, INCIDENTS)

    def _add_requests(self) -> None:
        self.requests = self._counter("api_requests", "Requests to the JetStream API", "operation", "code")
        help_ = "How long the JetStream API took to answer"
        self.request_seconds = self._histogram("api_request_duration_seconds", help_, _ANSWER_SECONDS, "operation", "code")
        _preset(self.requests, OPERATIONS, (OK,))
        _preset(self.request_seconds, OPERATIONS, (OK,))
        self.connected = self._gauge("nats_connected", "Whether there is a connection to NATS")
        self.reconnects = self._counter("nats_reconnects", "Connections after the first one")
        self.fence_unproven = self._gauge(
            "fence_unproven",
            "1 while this process leads, and a change of the leader before (or one without an answer) may still land",
        )
        self.fence_seconds = self._gauge("fence_seconds", "How long this process has waited before its term until nothing could")
        self.audit_shed = self._gauge("audit_shed", "1 while the API audit is left unread, because there is too much of it")
        self.audit_rate = self._gauge("audit_messages_per_second", "Messages of the API audit that are read")

    def _add_process(self) -> None:
        self.leader = self._gauge("leader", "Whether this process is the one that writes")
        self.transitions = self._counter("leader_transitions", "Times this process became the leader, or ceased to be it")
        self.queue_depth = self._gauge("queue_depth", "Keys that wait for a pass")
        help_ = "How long keys waited for a pass"
        self.queue_seconds = self._histogram("queue_duration_seconds", help_, _WAIT_SECONDS)
        self.unfinished_work = self._gauge("unfinished_work_seconds", "Time spent so far on the passes that are under way")
        self.events_dropped = self._counter("events_dropped", "Events that were not published: too many, or no connection")

    def _counter(self, name: str, help_: str, *labels: str) -> Counter:
        return Counter(f"reconciler_{name}", help_, labels, registry=self.registry)

    def _gauge(self, name: str, help_: str, *labels: str) -> Gauge:
        return Gauge(f"reconciler_{name}", help_, labels, registry=self.registry)

    def _histogram(self, name: str, help_: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(f"reconciler_{name}", help_, labels, registry=self.registry, buckets=buckets)


def set_all(gauge: Gauge, labels: Iterable[_Labels], counts: Mapping[_Labels, int]) -> None:
    """Sets a gauge for all these labels (what is not counted is zero), and for whatever else is counted."""
    for values in {*labels, *counts}:
        gauge.labels(*values).set(counts.get(values, 0))


def by_kind(counts: Mapping[str, int]) -> dict[tuple[str], int]:
    """Counts as `set_all` takes them."""
    return {(kind,): number for kind, number in counts.items()}


def _preset(metric: Counter | Gauge | Histogram, *values: Iterable[str]) -> None:
    for labels in product(*values):
        metric.labels(*labels)
