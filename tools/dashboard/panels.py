"""What the dashboard shows, row by row.

Invariant: every panel has a title, a description and a unit, and asks the installation that is chosen at the top.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

ONE = 'namespace=~"$namespace", job=~"$job"'
"""The installation that is looked at."""
EACH = f'{ONE}, instance=~"$instance"'
"""Its processes that are looked at."""
RED, ORANGE, GREEN, BLUE, GREY = "red", "orange", "green", "blue", "text"
STATES = {
    "synced": GREEN,
    "out_of_sync": "yellow",
    "progressing": "purple",
    "blocked": RED,
    "error": "dark-red",
    "suspended": BLUE,
    "unknown": ORANGE,
    "unmanaged": GREY,
}
OWN = {
    "reconciler_backoff_resources": ("kind",),
    "reconciler_manifests": ("kind",),
    "reconciler_plan_refused": ("reason",),
    "reconciler_planned_changes": ("kind", "action"),
    "reconciler_procedures": ("state",),
    "reconciler_resources": ("kind", "state"),
    "reconciler_source_stalled": ("cause",),
    "reconciler_sources": ("health",),
}
"""The labels that a metric has of its own, of those that are summed."""
HEALTHS = {"flowing": GREEN, "paused": BLUE, "waiting": ORANGE, "stalled": RED, "error": "dark-red", "unknown": GREY}


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One rectangle; `queries` are expressions with the legend of their series."""

    title: str
    about: str
    queries: Mapping[str, str]
    unit: str = "short"
    type: str = "timeseries"
    width: int = 8
    height: int = 7
    steps: tuple[tuple[float, str], ...] = ()
    """From which value on it has which colour; green below the first."""
    words: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Values that are shown as words, in a colour."""
    colours: Mapping[str, str] = field(default_factory=dict)
    """Of series, by their legend."""
    stacked: bool = False
    decimals: int | None = None


def stat(title: str, about: str, query: str, **more: Any) -> Panel:  # noqa: ANN401 - fields of a panel
    """One number, or word."""
    return Panel(**{"title": title, "about": about, "queries": {query: ""}, "type": "stat", "width": 3, "height": 4, **more})


def rate(metric: str, by: str, selector: str = "") -> str:
    """How often, per second."""
    inside = ", ".join(filter(None, (EACH, selector)))
    return f"sum by ({by}) (rate({metric}{{{inside}}}[$__rate_interval]))"


def increase(metric: str, by: str, selector: str = "") -> str:
    """How many in one step of the graph."""
    return rate(metric, by, selector).replace("rate(", "increase(", 1)


def quantile(share: float, metric: str, by: str) -> str:
    """What this share of them is below."""
    return f"histogram_quantile({share}, {rate(f'{metric}_bucket', f'le, {by}'.removesuffix(', '))})"


def largest(metric: str, by: str = "", selector: str = "") -> str:
    """As the process sees it that sees most: all of them look, and only one of them knows first."""
    inside = ", ".join(filter(None, (EACH, selector)))
    found = f"max by ({', '.join(('namespace', 'job', *OWN.get(metric, ())))}) ({metric}{{{inside}}})"
    return f"sum by ({by}) ({found})" if by else f"sum({found})"


YES_NO = {"0": ("no", RED), "1": ("yes", GREEN)}

ROWS: Mapping[str, Sequence[Panel]] = {
    "Fleet": (
        stat(
            "Alerts",
            "Alerts of reconciler that fire now.",
            f'count(ALERTS{{alertname=~"Reconciler.+", alertstate="firing", {ONE}}}) or vector(0)',
            steps=((1, RED),),
        ),
        stat(
            "Not as declared",
            "Resources that differ, fail, are blocked, or do not answer.",
            largest("reconciler_resources", selector='state=~"out_of_sync|blocked|error|unknown"'),
            steps=((1, ORANGE),),
        ),
        stat("Declared", "Resources that the manifests in use declare.", largest("reconciler_manifests")),
        stat(
            "Last good look",
            "How long ago everything was last looked at without an error.",
            f"time() - max(reconciler_last_success_timestamp_seconds{{{EACH}}})",
            unit="s",
            decimals=0,
            steps=((180, ORANGE), (600, RED)),
        ),
        stat(
            "Manifests",
            "Whether the newest manifests are valid, and in use, in all processes.",
            f"min(reconciler_config_last_reload_successful{{{EACH}}})",
            unit="bool_yes_no",
            words={"0": ("wrong", RED), "1": ("in use", GREEN)},
        ),
        stat(
            "Plan",
            "Whether a guard refuses the whole plan: then nothing is written.",
            largest("reconciler_plan_refused"),
            words={"0": ("accepted", GREEN)},
            steps=((1, RED),),
        ),
        stat(
            "Leader",
            "Whether one process holds the write lease.",
            f"sum(reconciler_leader{{{EACH}}})",
            words={"0": ("nobody", RED), "1": ("one", GREEN)},
            steps=((2, RED),),
        ),
        stat(
            "Connected",
            "Whether every process has a connection to NATS.",
            f"min(reconciler_nats_connected{{{EACH}}})",
            unit="bool_yes_no",
            words=YES_NO,
        ),
        Panel(
            title="Resources by state",
            about="What is found; synced is as declared.",
            queries={largest("reconciler_resources", "state"): "{{state}}"},
            colours=STATES,
            stacked=True,
            width=12,
        ),
        Panel(
            title="Resources by kind",
            about="What the manifests in use declare.",
            queries={largest("reconciler_manifests", "kind"): "{{kind}}"},
            stacked=True,
            width=6,
        ),
        Panel(
            title="Planned changes",
            about="What the last full plan wants to do.",
            queries={largest("reconciler_planned_changes", "action"): "{{action}}"},
            stacked=True,
            width=6,
        ),
    ),
    "Service levels (30 days; needs rules.yaml)": (
        stat(
            "Changes that end well",
            "The aim is 99.9 %.",
            f"namespace_job:reconciler_changes:success_ratio_30d{{{ONE}}}",
            unit="percentunit",
            width=6,
            decimals=2,
            steps=((0, RED), (0.999, GREEN)),
        ),
        stat(
            "Error budget left",
            "Of the one change in a thousand that may fail.",
            f"namespace_job:reconciler_changes:error_budget_left_30d{{{ONE}}}",
            unit="percentunit",
            width=6,
            decimals=0,
            steps=((-1e9, RED), (0.1, ORANGE), (0.5, GREEN)),
        ),
        stat(
            "Looked after",
            "The share of the time in which the leader's last good look was no older than three intervals; the aim is 99.9 %.",
            f"namespace_job:reconciler_looked_after:ratio_30d{{{ONE}}}",
            unit="percentunit",
            width=6,
            decimals=2,
            steps=((0, RED), (0.999, GREEN)),
        ),
        stat(
            "Sources that flow",
            "Of those that nobody paused; the aim is 99 %.",
            f"namespace_job:reconciler_sources_flowing:ratio_30d{{{ONE}}}",
            unit="percentunit",
            width=6,
            decimals=2,
            steps=((0, RED), (0.99, GREEN)),
        ),
    ),
    "Reconcile": (
        Panel(
            title="Passes",
            about="How they end, those over single keys included. Followers skip what they may not do.",
            queries={rate("reconciler_reconcile_total", "result"): "{{result}}"},
            unit="ops",
            colours={"error": RED, "refused": ORANGE},
        ),
        Panel(
            title="How long passes take",
            about="95 % of the phases are shorter.",
            queries={quantile(0.95, "reconciler_reconcile_duration_seconds", "phase"): "{{phase}}"},
            unit="s",
        ),
        Panel(
            title="Time since the last good look",
            about="And since the last one that was tried, of each process.",
            queries={
                f"time() - reconciler_last_success_timestamp_seconds{{{EACH}}}": "good, {{instance}}",
                f"time() - reconciler_last_attempt_timestamp_seconds{{{EACH}}}": "tried, {{instance}}",
            },
            unit="s",
        ),
        Panel(
            title="Changes",
            about="How they end; a blocked one is skipped by every pass.",
            queries={increase("reconciler_changes_total", "action, result", 'result!="skipped"'): "{{action}} {{result}}"},
            stacked=True,
        ),
        Panel(
            title="Waiting for another try",
            about="Resources in backoff, and failures that put them there.",
            queries={
                largest("reconciler_backoff_resources"): "in backoff",
                increase("reconciler_retries_total", "kind"): "failed, {{kind}}",
            },
        ),
        Panel(
            title="Refusals",
            about="A guard refuses the whole plan, and why.",
            queries={largest("reconciler_plan_refused", "reason"): "{{reason}}"},
            stacked=True,
        ),
        Panel(title="Queue", about="Keys that wait for a pass.", queries={f"reconciler_queue_depth{{{EACH}}}": "{{instance}}"}),
        Panel(
            title="Time in the queue",
            about="Half of the keys, and 95 % of them, wait less; a consumer that is fought over waits five seconds.",
            queries={
                quantile(0.5, "reconciler_queue_duration_seconds", ""): "50 %",
                quantile(0.95, "reconciler_queue_duration_seconds", ""): "95 %",
            },
            unit="s",
        ),
        Panel(
            title="Oldest pass under way",
            about="One that only grows hangs.",
            queries={f"reconciler_unfinished_work_seconds{{{EACH}}}": "{{instance}}"},
            unit="s",
        ),
    ),
    "Drift, and who did it": (
        Panel(
            title="Drift",
            about="Resources that somebody else changed; told once per finding, by the leader.",
            queries={increase("reconciler_drift_detected_total", "kind"): "{{kind}}"},
            stacked=True,
            type="timeseries",
        ),
        Panel(
            title="Who drifts",
            about="Drifts by user, or else client, since the processes started; who is not named was not heard by the audit.",
            queries={
                f"sort_desc(sum by (author) (reconciler_drift_authors_total{{{EACH}}}) > 0)": "{{author}}",
                f"sum(reconciler_drift_detected_total{{{EACH}}}) - sum(reconciler_drift_authors_total{{{EACH}}})": "nobody named",
            },
            type="bargauge",
        ),
        Panel(
            title="Fights",
            about="The same field set to the same foreign value more than 20 times in ten minutes.",
            queries={increase("reconciler_drift_fights_total", "kind"): "{{kind}}"},
            stacked=True,
        ),
        Panel(
            title="Not repaired",
            about="Resources that are out of sync.",
            queries={largest("reconciler_resources", "kind", 'state="out_of_sync"'): "{{kind}}"},
            width=12,
        ),
        Panel(
            title="API audit",
            about="Messages a second that tell who changes what; above 3,000 it is given up for a minute.",
            queries={
                f"reconciler_audit_messages_per_second{{{EACH}}}": "read, {{instance}}",
                f"reconciler_audit_shed{{{EACH}}}": "given up, {{instance}}",
            },
            unit="short",
            width=12,
        ),
    ),
    "Procedures that run": (
        Panel(
            title="Procedures",
            about="As they stand; journaled ones are half done, and wait for a leader.",
            queries={largest("reconciler_procedures", "state"): "{{state}}"},
            colours={"failed": RED, "aborted": ORANGE, "unfinished": ORANGE},
            stacked=True,
        ),
        Panel(
            title="The oldest one",
            about="Most take seconds; after an hour there is an alert.",
            queries={f"max by (namespace, job) (reconciler_procedure_oldest_seconds{{{EACH}}})": "{{job}}"},
            unit="s",
        ),
        Panel(
            title="How they end",
            about="Unfinished ones go on with the next leader.",
            queries={increase("reconciler_changes_total", "result", 'action="procedure"'): "{{result}}"},
            colours={"failed": RED},
            stacked=True,
        ),
    ),
    "Sources and mirrors": (
        Panel(
            title="How they fare",
            about="Entries by what the last look found; looked at every three seconds.",
            queries={largest("reconciler_sources", "health"): "{{health}}"},
            colours=HEALTHS,
            stacked=True,
        ),
        Panel(
            title="Held up, by cause",
            about="Nothing is copied through these. docs/sourcing.md says what to do about each cause.",
            queries={largest("reconciler_source_stalled", "cause"): "{{cause}}"},
            stacked=True,
        ),
        Panel(
            title="Waiting in the origins",
            about="Messages that are not copied yet.",
            queries={largest("reconciler_source_pending"): "messages"},
        ),
        Panel(
            title="Silence",
            about="The longest time since something was heard through an entry that flows; heartbeats come every second.",
            queries={f"max(reconciler_source_active_seconds{{{EACH}}})": "longest"},
            unit="s",
        ),
        Panel(
            title="Attached again",
            about="Entries that the leader detached and attached, because they did not flow.",
            queries={increase("reconciler_source_kicks_total", "job"): "{{job}}"},
        ),
        Panel(
            title="Incidents",
            about="Durables moved by hand, origins made anew, and gaps. Lost is lost.",
            queries={increase("reconciler_source_incidents_total", "incident"): "{{incident}}"},
            colours={"lost": RED},
            stacked=True,
        ),
    ),
    "Consumers and worker pools": (
        Panel(
            title="Behind",
            about="Messages that our consumers have still to deliver, and those that are delivered and not acknowledged.",
            queries={
                largest("reconciler_consumer_pending"): "to deliver",
                largest("reconciler_consumer_unacknowledged"): "unacknowledged",
            },
        ),
        Panel(
            title="Standing still",
            about="Consumers that have as many unacknowledged messages as they may, and more to deliver.",
            queries={largest("reconciler_consumers_full"): "consumers"},
        ),
        Panel(
            title="Worker pools",
            about="Generations that were loaded whole, subjects that changed workers, and pools whose newest files do not count.",
            queries={
                increase("reconciler_pool_generations_loaded_total", "job"): "loaded",
                increase("reconciler_pool_subjects_moved_total", "job"): "moved",
                largest("reconciler_pools_held_back"): "held back",
            },
        ),
    ),
    "JetStream API and NATS": (
        Panel(
            title="Requests",
            about="To the JetStream API.",
            queries={rate("reconciler_api_requests_total", "operation"): "{{operation}}"},
            unit="reqps",
        ),
        Panel(
            title="Errors",
            about="By the number of the JetStream error, or its class.",
            queries={rate("reconciler_api_requests_total", "operation, code", 'code!="ok"'): "{{operation}} {{code}}"},
            unit="reqps",
        ),
        Panel(
            title="How long answers take",
            about="Half of the answers, and 99 % of them, take less.",
            queries={
                quantile(0.5, "reconciler_api_request_duration_seconds", ""): "50 %",
                quantile(0.99, "reconciler_api_request_duration_seconds", ""): "99 %",
            },
            unit="s",
        ),
        Panel(
            title="Connection",
            about="Whether each process has one.",
            queries={f"reconciler_nats_connected{{{EACH}}}": "{{instance}}"},
            unit="bool_yes_no",
            type="state-timeline",
            words=YES_NO,
        ),
        Panel(
            title="Reconnects",
            about="Connections after the first one.",
            queries={increase("reconciler_nats_reconnects_total", "instance"): "{{instance}}"},
        ),
        Panel(
            title="Events that were dropped",
            about="Not published: too many, or no connection.",
            queries={increase("reconciler_events_dropped_total", "instance"): "{{instance}}"},
        ),
    ),
    "The lease": (
        Panel(
            title="Who leads",
            about="One process of an installation writes; the others follow.",
            queries={f"reconciler_leader{{{EACH}}}": "{{instance}}"},
            unit="bool_yes_no",
            type="state-timeline",
            words={"0": ("follows", BLUE), "1": ("leads", GREEN)},
            width=12,
        ),
        Panel(
            title="Changes of the leader",
            about="Times that a process became the leader, or ceased to be it.",
            queries={increase("reconciler_leader_transitions_total", "instance"): "{{instance}}"},
            width=6,
        ),
        Panel(
            title="Age of the manifests",
            about="Since manifests were last taken into use, by process: two that differ for long see different commits.",
            queries={f"time() - reconciler_config_last_reload_success_timestamp_seconds{{{EACH}}}": "{{instance}}"},
            unit="s",
            width=6,
        ),
        Panel(
            title="The fence",
            about="Whether it is unproven that nothing of the leader before can land any more; a proven one only takes time.",
            queries={f"reconciler_fence_unproven{{{EACH}}}": "{{instance}}"},
            unit="bool_yes_no",
            type="state-timeline",
            words={"0": ("proven, or not needed", GREEN), "1": ("unproven", BLUE)},
            width=12,
        ),
        Panel(
            title="Waited at the fence",
            about="Seconds before this process changed anything in its last term.",
            queries={f"reconciler_fence_seconds{{{EACH}}}": "{{instance}}"},
            unit="s",
            width=12,
        ),
    ),
    "Process": (
        Panel(
            title="CPU",
            about="Seconds of processor time a second.",
            queries={rate("reconciler_process_cpu_seconds_total", "instance"): "{{instance}}"},
            unit="percentunit",
            width=6,
        ),
        Panel(
            title="Memory",
            about="Resident.",
            queries={f"reconciler_process_resident_memory_bytes{{{EACH}}}": "{{instance}}"},
            unit="bytes",
            width=6,
        ),
        Panel(
            title="File descriptors",
            about="Open, of those it may have.",
            queries={f"reconciler_process_open_fds{{{EACH}}} / reconciler_process_max_fds{{{EACH}}}": "{{instance}}"},
            unit="percentunit",
            width=6,
        ),
        Panel(
            title="Up",
            about="Since each process started.",
            queries={f"time() - reconciler_process_start_time_seconds{{{EACH}}}": "{{instance}}"},
            unit="s",
            width=6,
        ),
        Panel(
            title="Versions",
            about="What runs, and how it was asked to work.",
            queries={
                f"count by (version, python) (reconciler_build_info{{{EACH}}})": "{{version}}, Python {{python}}",
                f"max(reconciler_interval_seconds{{{EACH}}})": "interval (s)",
                f"max(reconciler_dry_run{{{EACH}}})": "dry run",
            },
            type="bargauge",
            width=24,
            height=5,
        ),
    ),
}
