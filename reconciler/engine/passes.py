"""`run_once`: load → look → plan → guard → apply → report, for everything or for the keys of a hint.

Invariants: nothing is written before everything was looked at on the current connection; a hint only repairs, it never prunes;
each change is tried once per pass, and what failed comes back through the queue.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import math
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from reconciler.engine.aftermath import Aftermath
from reconciler.engine.attempt import SingleRequests
from reconciler.engine.declared import Manifests
from reconciler.engine.dependencies import Failures
from reconciler.engine.due import divide
from reconciler.engine.executor import Bounds, Executor
from reconciler.engine.keeper import Starter
from reconciler.engine.outcome import Outcome, Result
from reconciler.engine.outgoing import Term, Wanted
from reconciler.engine.planning import Planned, check_expectation, plan_from, wanted_by
from reconciler.engine.ports import Observer, Ports
from reconciler.engine.procedures import Supervisor
from reconciler.engine.queue import Work
from reconciler.engine.sending import Sender
from reconciler.engine.state import State
from reconciler.engine.throttle import Throttle
from reconciler.errors import NatsError, ReconcilerError
from reconciler.model.identity import Key
from reconciler.observe.backlog import backlog
from reconciler.observe.logs import within_pass
from reconciler.observe.telemetry import Ending, PassReport
from reconciler.plan.change import Change, Reason
from reconciler.plan.order import waves
from reconciler.plan.scene import Scene

_MANY = 1000
"""Changes that are sorted in a thread, so that whoever renews the lease is not held up."""


@dataclass
class _Report:
    """Filled in while a pass goes on."""

    number: int
    scope: str
    keys: int
    result: str = "noop"
    revision: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    results: dict[str, int] = field(default_factory=dict)
    error: str = ""

    def frozen(self) -> PassReport:
        """As it is told."""
        return PassReport(**vars(self))


@dataclass(frozen=True, slots=True)
class _Ledger:
    """The observer of a pass: what has come to its end is settled, and free again, while the pass goes on with the rest."""

    watch: Observer
    state: State
    aftermath: Aftermath
    left: set[Key]
    """Live keys that are still being worked on."""

    def stepped(self, key: Key, title: str) -> None:
        """A procedure took a step."""
        self.watch.stepped(key, title)

    def finished(self, outcome: Outcome) -> None:
        """A change came to its end, or its procedure began."""
        self.watch.finished(outcome)
        ended = self.left.intersection(_members(outcome.change))
        self.left.difference_update(ended)
        self.state.busy -= ended
        self.aftermath.of((outcome,))


class Passes:
    """Makes passes over shared state. The caller sees to it that nothing looks or plans beside the first half of a full pass."""

    def __init__(self, state: State, ports: Ports, manifests: Manifests) -> None:
        self._state = state
        self._ports = ports
        self._manifests = manifests
        self._aftermath = Aftermath(state)
        self._throttle = Throttle(state.options.requests_per_second, ports.clock)
        self._numbers = itertools.count(1)

    async def run_once(self, work: Work, looked: asyncio.Event) -> None:
        """One pass over its scope; `looked` is set when looking and planning are over."""
        report = _Report(next(self._numbers), "full" if work.everything else "hint", len(work.keys))
        ports = replace(self._ports, lease=Term(self._ports.lease, self._state))
        with within_pass(report.number, self._state.desired.revision):
            try:
                planned = await (self._plan_everything(report) if work.everything else self._plan_some(work.keys, report))
            except ReconcilerError as error:
                self._not_seen(work, report, error)
                return
            finally:
                looked.set()
            if planned is not None:
                _count(report, await self._carry_out(planned, self._due(planned, work.keys), ports, report))
            self._tell(work, report)

    async def _plan_everything(self, report: _Report) -> Planned:
        state = self._state
        with self._phase(report, "load"):
            await self._manifests.load(full=True)
        declared, desired, rules = state.declared, state.desired, state.rules
        with self._phase(report, "snapshot"):
            live, named, connection = None, tuple(state.authors), state.connections
            state.begin_snapshot()
            try:
                live = await self._ports.reader.snapshot(wanted_by(desired, rules))
                check_expectation(desired, live.server)
            finally:
                state.end_snapshot(live)
        with self._phase(report, "diff"):
            planned = await plan_from(desired, state.seen, rules, state.recollection.memory, self._ports.reader)
            state.recollection.learn(state.seen)
        plan = planned.plan
        state.trusted, state.refused, state.judged = connection == state.connections, plan.refused, declared
        self._aftermath.replan_all(plan.changes)
        self._aftermath.name_authors(named)
        state.telemetry.refused(reason.code for reason in plan.refused)
        state.telemetry.planned(_by_action(plan.changes))
        state.board.full_plan(counts=plan.summary, refused=plan.refused, fingerprint=plan.fingerprint)
        for _ in state.board.looking(desired, planned.live, (*plan.changes, *plan.left)):
            await asyncio.sleep(0)  # whoever renews the lease needs this loop
        state.telemetry.backlog.seen(await asyncio.to_thread(backlog, planned.live, rules.owner))
        self._aftermath.silent(planned.live.unknown)
        if plan.refused:
            report.result, report.error = "refused", "; ".join(str(reason) for reason in plan.refused)
        return planned

    async def _plan_some(self, keys: frozenset[Key], report: _Report) -> Planned | None:
        """Plans for the keys of a hint; None when nobody may rely on a few keys, since everything is about to be looked at."""
        state = self._state
        if not state.trusted or state.live is None or state.declared is not state.judged:
            return None
        named = [key for key in keys if key in state.authors]
        with self._phase(report, "snapshot"):
            seen = await self._ports.reader.refresh(state.live, keys)
            state.learn()
            state.patch(seen)
        if state.declared is not state.judged:
            return None  # other manifests, which nobody has held against everything yet
        desired, live = state.desired, state.seen
        with self._phase(report, "diff"):
            scope = frozenset(key for key in keys if not state.keeper.owns(key))
            memory = state.recollection.memory
            planned = await plan_from(desired, live, state.rules, memory, self._ports.reader, scope)
            state.recollection.learn_keys(live, keys)
        self._aftermath.replan(planned.plan.changes, scope)
        self._aftermath.name_authors(named)
        state.board.looked(desired, planned.live, (*planned.plan.changes, *planned.plan.left), scope)
        self._aftermath.silent({key: why for key in scope if (why := live.why_unknown(key))})
        return planned

    def _due(self, planned: Planned, keys: Collection[Key]) -> tuple[list[Change], Failures]:
        """What is tried in this pass, and what its dependants have to wait for."""
        state = self._state
        changes = [self._aftermath.noted(change) for change in planned.plan.changes]
        for change in planned.plan.blocked if state.speaks else ():
            state.telemetry.change_ended(Ending(change=change, result=Result.SKIPPED.value))
        due, waiting = divide(state, changes, keys)
        failures = Failures()
        later = {change.key.live_key for change in due}
        for key, change in state.open.items() if due else ():
            if key not in later:
                failures.add(change, waiting.get(key, "is not in place"))
        return due, failures

    async def _carry_out(
        self, planned: Planned, due_and_failures: tuple[list[Change], Failures], ports: Ports, report: _Report
    ) -> tuple[Outcome, ...]:
        due, failures = due_and_failures
        if not due:
            return ()
        state = self._state
        scene = Scene(planned.desired, planned.live, planned.rules, planned.memory)
        supervisor = Supervisor(ports, Sender(ports, self._throttle, scene.normal))
        starter = Starter(state.keeper, supervisor, {id(change.machine): change for change in due}, planned.desired)
        ledger = _Ledger(ports.observer, state, self._aftermath, {key for change in due for key in _members(change)})
        ports = replace(ports, lease=Wanted(ports.lease, state, planned.desired), observer=ledger)
        requests = SingleRequests(ports.reader, Sender(ports, self._throttle, scene.normal), scene)
        bounds = Bounds(math.inf, state.options.concurrency, once=True)
        executor = Executor(ports, requests, starter, bounds, failures)
        state.busy |= ledger.left
        try:
            with self._phase(report, "apply"):
                in_order = await asyncio.to_thread(waves, due, scene) if len(due) > _MANY else waves(due, scene)
                return await executor.execute(in_order)
        finally:
            state.busy -= ledger.left

    def _not_seen(self, work: Work, report: _Report, error: ReconcilerError) -> None:
        """Nothing could be concluded: nothing is done, and it is looked at again, soon when only an answer was missing."""
        state = self._state
        report.result, report.error = ("error" if isinstance(error, NatsError) else "refused"), str(error)
        if work.everything and not isinstance(error, NatsError):
            state.refused = (Reason("expectation", str(error)),)
            state.telemetry.refused(reason.code for reason in state.refused)
            state.board.full_plan(counts={}, refused=state.refused)
        if work.everything:
            state.board.unseen(str(error))
        if isinstance(error, NatsError):
            self._aftermath.unseen(work.keys)
        self._tell(work, report)

    def _tell(self, work: Work, report: _Report) -> None:
        state = self._state
        report.revision = state.desired.revision
        if work.everything:
            state.last_error = report.error
        if work.everything and report.result != "error":
            if not state.passed:
                gc.freeze()  # what was just learned stays: looking for garbage in it stops the loop for a quarter of a second
            state.passed = True
        if not state.may_write and report.result == "noop" and state.open:
            report.result = "skipped"
        told = report.frozen()
        state.telemetry.pass_ended(told)
        if work.everything:
            state.tell_counts()
        state.board.pass_ended(told)

    @contextmanager
    def _phase(self, report: _Report, name: str) -> Iterator[None]:
        started = self._ports.clock.monotonic()
        try:
            yield
        finally:
            report.seconds[name] = self._ports.clock.monotonic() - started


def _members(change: Change) -> Iterator[Key]:
    """All it is about, as live keys."""
    return (key.live_key for key in (change.key, *change.touches))


def _count(report: _Report, outcomes: Collection[Outcome]) -> None:
    for outcome in outcomes:
        report.results[outcome.result.value] = report.results.get(outcome.result.value, 0) + 1
    if Result.FAILED.value in report.results:
        report.result = "error"
    elif outcomes and report.result == "noop":
        report.result = "success"


def _by_action(changes: Collection[Change]) -> dict[tuple[str, str], int]:
    counts: dict[tuple[str, str], int] = {}
    for change in changes:
        pair = change.key.kind, change.action.value
        counts[pair] = counts.get(pair, 0) + 1
    return counts
