"""What happened, told once: each fact becomes a metric, a log line and, where somebody may wait for it, an event.

Invariant: nothing here changes what the process does; a sink that fails never stops the work.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from structlog.typing import FilteringBoundLogger

from reconciler.errors import Problem
from reconciler.jetstream.leading.fence import FenceNews, FenceState
from reconciler.model import units
from reconciler.model.identity import KINDS, Key
from reconciler.model.seen.live import Live
from reconciler.observe.events import Event, Events
from reconciler.observe.metrics import (
    ACTIONS,
    AUTHORS,
    OTHER,
    PROCEDURE_STATES,
    REFUSALS,
    STATES,
    Metrics,
    by_kind,
    refusal_label,
    set_all,
    state_label,
)
from reconciler.observe.source_news import SourceNews
from reconciler.observe.status.backlog import BacklogNews, backlog
from reconciler.observe.status.pools import PoolNews
from reconciler.observe.wording import SHOWN, Fields, author_fields, change_fields, filled, problem_fields
from reconciler.plan.change import Author, Change, FieldDiff
from reconciler.render.status.judged import Condition
from reconciler.render.values import ANOTHER, named, show

_ENDED_WELL = ("success", "noop")
_UNDER_WAY = ("running", "aborting", "journaled")
_DID_SOMETHING = ("applied", "failed", "unfinished")


@dataclass(frozen=True, slots=True, kw_only=True)
class PassReport:
    """How one pass went."""

    number: int
    scope: str
    """`full`, or `hint` for a pass over a few keys."""
    result: str
    """success, error, noop, refused or skipped (nothing could be looked at, or this process may not write)."""
    revision: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """By phase: load, snapshot, diff, apply."""
    results: Mapping[str, int] = field(default_factory=dict)
    """How many changes ended how: applied, failed, skipped, unfinished."""
    keys: int = 0
    """How many keys the scope had; 0 for a full pass."""
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How one change ended."""

    change: Change
    result: str
    seconds: float = 0.0
    error: str = ""
    notes: tuple[str, ...] = ()


class Telemetry:
    """Metrics, logs and events of one process; see `observe.metrics` for the metrics by name.

    Pass and revision reach the lines of a pass through `observe.logs.within_pass`.
    """

    def __init__(
        self, metrics: Metrics, log: FilteringBoundLogger, events: Events, *, now: Callable[[], float] = time.time
    ) -> None:
        self._metrics = metrics
        self._log = log.bind(owner=events.owner)
        self._events = events
        self._now = now
        self._held_back: dict[Key, str] = {}
        """What was said about changes that were not tried."""
        self._met: set[Key] = set()
        """Those of them that were met again since the last full pass."""
        self._problems: frozenset[Problem] = frozenset()
        self._skipped_for: str | None = None
        self._refused: frozenset[str] = frozenset()
        self._leading = False
        self._connected: bool | None = None
        self._connections = 0
        self._audit = ""
        self._authors: set[str] = set()
        """Whose drifts are counted by name."""
        self.sources = SourceNews(metrics, self._log, self._tell)
        self.backlog = BacklogNews(metrics, self._log)
        self.pools = PoolNews(metrics, self._log, self._tell)

    def render(self) -> bytes:
        """The metrics in the Prometheus text format."""
        return self._metrics.render()

    # Passes and changes

    def pass_ended(self, report: PassReport) -> None:
        """One pass is over."""
        metrics = self._metrics
        metrics.passes.labels(report.result).inc()
        for phase, seconds in report.seconds.items():
            metrics.pass_seconds.labels(phase).observe(seconds)
        if report.scope == "full":
            metrics.last_attempt.set(self._now())
            if report.result in _ENDED_WELL:
                metrics.last_success.set(self._now())
                self._held_back = {key: said for key, said in self._held_back.items() if key in self._met}
                self._met.clear()
        self._told_pass(report)("pass.ended", **_pass_fields(report))

    def change_ended(self, ending: Ending) -> None:
        """A change was tried, or (result `skipped`) held back."""
        change, key = ending.change, ending.change.key
        self._metrics.changes.labels(key.kind, change.action.value, ending.result).inc()
        if ending.result == "skipped":
            said = "; ".join(map(str, change.reasons)) or ending.error
            self._met.add(key)
            if self._held_back.get(key) == said:
                return
            self._held_back[key] = said
        else:
            self._held_back.pop(key, None)
        fields = _ending_fields(ending)
        bad = ending.result == "failed" or (ending.result == "skipped" and not change.suspended)
        (self._log.warning if bad else self._log.info)("change.ended", **fields)
        message = f"{fields['action']} {key}: {ending.result}" + (f": {fields['error']}" if fields.get("error") else "")
        self._tell("change.ended", message, key, bad=bad, **fields)

    def procedures(self, found: Iterable[tuple[str, float]]) -> None:
        """The procedures that are not over: how each stands, and for how many seconds."""
        found = tuple(found)
        counts = Counter((state,) for state, _ in found)
        set_all(self._metrics.procedures, product(PROCEDURE_STATES), counts)
        self._metrics.procedure_oldest.set(max((seconds for state, seconds in found if state in _UNDER_WAY), default=0.0))

    def procedure_stepped(self, key: Key, title: str) -> None:
        """A running procedure took a step."""
        self._log.debug("procedure.stepped", resource=str(key), step=title)
        self._tell("procedure.stepped", f"{key}: {title}", key, step=title)

    def drifted(self, key: Key, fields: tuple[str, ...], author: Author | None, differing: Sequence[FieldDiff] = ()) -> None:
        """A resource was found changed by somebody else; told once per finding."""
        self._metrics.drift.labels(key.kind).inc()
        if author:
            self.attributed(author)
        found = {"fields": list(fields[:SHOWN]), **author_fields(author)}
        values = [f"{diff.path}: {show(diff.declared)} → {show(diff.live)}" for diff in differing[:SHOWN]]
        lost = ", with all that it held" if key.is_stream else ""  # a consumer goes on where it stood
        gone = "" if fields else f"it was deleted{lost}"
        self._log.warning("drift.detected", resource=str(key), **found, **filled({"changes": values, "message": gone}))
        by = f" by {author.user or author.client}" if author and (author.user or author.client) else ""
        what = f"changed{by}: {', '.join(found['fields'])}" if fields else f"deleted{by}{lost}"
        self._tell("drift.detected", f"{key} was {what}", key, bad=True, **found)

    def durable_gone(self, key: Key, reader: Key, author: Author | None) -> None:
        """The durable that a stream reads through was deleted by somebody else; the stream itself is as it was."""
        self._metrics.drift.labels(key.kind).inc()
        if author:
            self.attributed(author)
        found: Fields = {"fields": [], **author_fields(author)}
        reading = f"{reader} reads through it"
        self._log.warning("drift.detected", resource=str(key), **found, message=f"it was deleted; {reading}")
        by = f" by {author.user or author.client}" if author and (author.user or author.client) else ""
        self._tell("drift.detected", f"{key} was deleted{by}; {reading}", key, bad=True, **found)

    def attributed(self, author: Author) -> None:
        """It became known who made a drift."""
        if name := author.user or author.client:
            if len(self._authors) < AUTHORS:
                self._authors.add(name)
            self._metrics.drift_authors.labels(name if name in self._authors else OTHER).inc()

    def fighting(self, key: Key, path: str, times: int, author: Author | None = None) -> None:
        """Another client keeps setting a field to the same value."""
        self._metrics.fights.labels(key.kind).inc()
        found = {"field": path, "times": times, **author_fields(author)}
        who = named(author.client, author.user) if author else ""
        said = f"{who or ANOTHER} has set {path} to the same value {times} times; it is repaired less often now"
        self._log.warning("drift.fighting", resource=str(key), **found, message=said)
        self._tell("drift.fighting", f"{key}: {said}", key, bad=True, **found)

    def retrying(self, key: Key, seconds: float, error: str) -> None:
        """A resource waits for its next try: so many seconds, or (infinite) until something changes."""
        self._metrics.retries.labels(key.kind).inc()
        wait = round(seconds, 3) if math.isfinite(seconds) else None
        self._log.debug("change.retrying", **filled({"resource": str(key), "in_s": wait, "error": error}))

    def in_backoff(self, counts: Mapping[str, int]) -> None:
        """How many resources wait for their next try, by kind."""
        set_all(self._metrics.backoff, product(KINDS), by_kind(counts))

    def resources(self, counts: Mapping[tuple[str, str], int]) -> None:
        """How many resources there are, by kind and state (`OutOfSync`)."""
        labelled = {(kind, state_label(Condition(state))): number for (kind, state), number in counts.items()}
        set_all(self._metrics.resources, product(KINDS, STATES), labelled)

    def planned(self, counts: Mapping[tuple[str, str], int]) -> None:
        """How many changes the last full plan has, by kind and action."""
        set_all(self._metrics.planned, product(KINDS, ACTIONS), counts)

    async def behind(self, live: Live, owner: str) -> None:
        """How far behind its consumers are; worked out in a thread."""
        self.backlog.seen(await asyncio.to_thread(backlog, live, owner))

    def refused(self, reasons: Iterable[str]) -> None:
        """Why the last full plan was refused, by code; nothing when it was not."""
        codes = frozenset(reasons)
        labels = {refusal_label(code) for code in codes}
        for label in REFUSALS:
            self._metrics.plan_refused.labels(label).set(label in labels)
        if codes == self._refused:
            return
        self._refused = codes
        if codes:
            self._log.warning("plan.refused", reasons=sorted(codes))
            self._tell("plan.refused", f"nothing is written: {', '.join(sorted(codes))}", bad=True, reasons=sorted(codes))
        else:
            self._log.info("plan.accepted")
            self._tell("plan.accepted", "the plan is no longer refused")

    # Manifests

    def manifests_loaded(self, revision: str, counts: Mapping[str, int]) -> None:
        """Valid manifests are in use; `counts` are the resources they declare, by kind."""
        self._metrics.reload_ok.set(1)
        self._metrics.reload_time.set(self._now())
        set_all(self._metrics.manifests, product(KINDS), by_kind(counts))
        self._problems = frozenset()
        total = sum(counts.values())
        self._log.info("manifests.loaded", revision=revision, resources=total)
        self._tell("manifests.loaded", f"{total} resources are declared", revision=revision, resources=total)

    def manifests_refused(self, problems: tuple[Problem, ...]) -> None:
        """The newest manifests are wrong; whatever was in use stays."""
        self._metrics.reload_ok.set(0)
        new = [problem for problem in dict.fromkeys(problems) if problem not in self._problems]
        self._problems = frozenset(problems)
        if not new:
            self._log.debug("manifests.refused", problems=len(problems))
            return
        for problem in new[:SHOWN]:
            self._log.error("manifests.problem", **problem_fields(problem))
        rest = max(0, len(new) - SHOWN)
        self._log.error("manifests.refused", problems=len(problems), not_shown=rest)
        message = f"{new[0]}" + (f" (and {len(problems) - 1} more)" if len(problems) > 1 else "")
        self._tell("manifests.refused", message, bad=True, problems=[str(problem) for problem in new[:SHOWN]])

    # The process

    def manner(self, *, interval: float, dry_run: bool) -> None:
        """How this process was asked to work."""
        self._metrics.interval.set(interval)
        self._metrics.dry_run.set(dry_run)

    def leading(self, now: bool, reason: str) -> None:  # noqa: FBT001 - the fact itself
        """Whether this process may write, and why (not)."""
        was, self._leading = self._leading, now
        self._metrics.leader.set(now)
        if now != was:
            self._metrics.transitions.inc()
            name = "lease.acquired" if now else "lease.lost"
            (self._log.info if now else self._log.warning)(name, reason=reason)
            self._tell(name, reason or name, bad=not now, reason=reason)

    def follows(self, holder: str) -> None:
        """Another process holds the lease."""
        self._log.info("lease.held_elsewhere", reason=f"held by {holder}")

    def fence(self, news: FenceNews) -> None:
        """How the term of this process stands to the one before."""
        unproven = news.state is FenceState.UNPROVEN
        found: dict[str, Any] = {"why": news.why, "seconds": round(news.seconds, 3)}
        self._metrics.fence_unproven.set(unproven)
        match news.state:
            case FenceState.NONE:
                return
            case FenceState.WAITING:
                self._log.info("fence.waiting", why=news.why)
                return
            case FenceState.UNPROVEN:
                self._log.warning("fence.unproven", **found)
                self._tell("fence.unproven", f"a change may still land late: {news.why}", bad=True, **found)
            case _:
                (self._log.warning if news.why else self._log.info)(f"fence.{news.state}", **filled(found))
        self._metrics.fence_seconds.set(news.seconds)

    def connected(self, now: bool, server: str) -> None:  # noqa: FBT001 - the fact itself
        """Whether there is a connection to NATS, and where to."""
        before, self._connected = self._connected, now
        self._metrics.connected.set(now)
        if now == before:
            return
        if now:
            self._connections += 1
            if self._connections > 1:
                self._metrics.reconnects.inc()
        (self._log.info if now else self._log.warning)("nats.connected" if now else "nats.disconnected", server=server)

    def queued(self, depth: int) -> None:
        """How many keys wait."""
        self._metrics.queue_depth.set(depth)

    def dequeued(self, waited_seconds: float) -> None:
        """A key's turn has come."""
        self._metrics.queue_seconds.observe(waited_seconds)

    def unfinished_work(self, seconds: float) -> None:
        """How long the passes under way have taken so far."""
        self._metrics.unfinished_work.set(seconds)

    def api_answered(self, operation: str, code: str, seconds: float) -> None:
        """A request to the JetStream API is over: `code` is "ok", the err_code, or the class of the error."""
        self._metrics.requests.labels(operation, code).inc()
        self._metrics.request_seconds.labels(operation, code).observe(seconds)

    def audit(self, state: str, rate: float) -> None:
        """Whether the API audit is read ("on", "off", "shed", "denied"), and how much of it there is per second."""
        self._metrics.audit_shed.set(state == "shed")
        self._metrics.audit_rate.set(rate)
        if state != self._audit:
            self._audit = state
            told = self._log.warning if state in ("shed", "denied") else self._log.info
            told("audit.changed", state=state, messages_per_second=round(rate, 1))

    def _told_pass(self, report: PassReport) -> Callable[..., Any]:
        same = report.result == "skipped" and self._skipped_for == report.error
        self._skipped_for = report.error if report.result == "skipped" else None
        if report.result == "error":
            return self._log.warning
        changed = any(report.results.get(name) for name in _DID_SOMETHING)
        quiet = report.result == "noop" or (report.scope == "hint" and not changed)
        return self._log.debug if quiet or same else self._log.info

    def _tell(self, type_: str, message: str, key: Key | None = None, *, bad: bool = False, **data: Any) -> None:  # noqa: ANN401
        at = int(self._now() * units.SECOND)
        self._events.tell(Event(type=type_, message=message, key=key, severity="warning" if bad else "info", at=at, data=data))


def _pass_fields(report: PassReport) -> Fields:
    fields = {
        "pass": report.number,
        "scope": report.scope,
        "result": report.result,
        "revision": report.revision,
        "duration_s": round(sum(report.seconds.values()), 3),
        **{name: count for name, count in report.results.items() if count},
        "keys": report.keys or None,
        "error": report.error,
    }
    return filled(fields)


def _ending_fields(ending: Ending) -> Fields:
    fields = change_fields(ending.change) | {
        "result": ending.result,
        "duration_s": None if ending.result == "skipped" else round(ending.seconds, 3),
        "error": "" if ending.change.reasons else ending.error,
        "notes": list(ending.notes),
    }
    return filled(fields)
