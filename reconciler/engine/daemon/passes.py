"""`run_once`: load → look → plan → guard → apply → report, for everything or for the keys of a hint.

Invariants: nothing is written before everything was looked at on the current connection; a hint only repairs, it never prunes;
each change is tried once per pass, and what failed comes back through the queue.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol

from reconciler.engine.apply.attempt import SingleRequests
from reconciler.engine.apply.dependencies import Failures
from reconciler.engine.apply.executor import ExecutionBounds, Executor
from reconciler.engine.apply.outcome import Outcome, Word
from reconciler.engine.apply.procedures import Supervisor
from reconciler.engine.daemon.aftermath import Aftermath
from reconciler.engine.daemon.due import divide
from reconciler.engine.daemon.keeper import Starter
from reconciler.engine.daemon.queue import Work
from reconciler.engine.daemon.state import DaemonState
from reconciler.engine.planning import Planned, check_expectation, plan_from, wanted_by
from reconciler.engine.ports import Observer, Ports
from reconciler.engine.writing.permit import permits
from reconciler.errors import NatsError, ReconcilerError
from reconciler.model.identity import Key
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
    state: DaemonState
    aftermath: Aftermath
    left: set[Key]
    """Live keys that are still being worked on."""

    def stepped(self, key: Key, title: str) -> None:
        """A procedure took a step."""
        self.watch.stepped(key, title)

    def finished(self, outcome: Outcome) -> None:
        """A change came to its end, or its procedure began."""
        self.watch.finished(outcome)
        for key in outcome.change.members:
            if key in self.left:
                self.left.remove(key)
                self.state.busy.discard(key)
        self.aftermath.of(outcome)


class _Declarations(Protocol):
    """Where the manifests come from."""

    async def load(self, *, full: bool = False) -> bool:
        """Looks now; true when they are others than before."""
        ...


class Passes:
    """Makes passes over shared state, of which one at a time may be over everything."""

    def __init__(
        self, state: DaemonState, ports: Ports, manifests: _Declarations, may_do: Callable[[Change], bool] = lambda _: True
    ) -> None:
        self._state = state
        self._ports = ports
        self._manifests = manifests
        self._may_do = may_do
        self._looking = False
        """Everything is just being looked at, or planned for."""
        self._planning = False
        """Everything is just being planned for."""
        self._plans = 0
        """How often that was begun."""
        self._looked = asyncio.Event()
        """Set when everything was looked at and planned for."""
        self._aftermath = Aftermath(state)
        self._numbers = itertools.count(1)

    async def run_once(self, work: Work, planned: Planned | None = None) -> Planned | None:
        """One pass over its scope; a plan for everything that was just made is carried out as it is.

        Returns what was planned; None: nothing was seen, or nothing could be concluded.
        """
        report = _Report(next(self._numbers), "full" if work.everything else "hint", len(work.keys))
        term = self._state.term
        with within_pass(report.number, self._state.desired.revision):
            try:
                if planned is not None:
                    await self._took_in(planned, report)
                elif work.everything:
                    planned = await self._plan_everything(report)
                else:
                    planned = await self._plan_some(work.keys, report)
            except ReconcilerError as error:
                self._not_seen(work, report, error)
                return None
            if planned is not None:
                _count(report, await self._carry_out(planned, self._due(planned, work.keys), term, report))
            self._tell(work, report, seen=True)
            return planned

    async def _plan_everything(self, report: _Report) -> Planned:
        """Beside it, single keys are looked at and planned for until this begins to plan: what does not answer takes long."""
        self._looking = True
        self._looked.clear()
        try:
            return await self._looked_at_everything(report)
        finally:
            self._looking = self._planning = False
            self._looked.set()

    async def _looked_at_everything(self, report: _Report) -> Planned:
        state = self._state
        with self._phase(report, "load"):
            await self._manifests.load(full=True)
        declared, desired, rules = state.declared, state.desired, state.rules
        named, connection = tuple(state.authors), state.connections
        with self._phase(report, "snapshot"):
            live = None
            state.begin_snapshot()
            try:
                live = await self._ports.reader.snapshot(wanted_by(desired, rules))
                check_expectation(desired, live.server)
            finally:
                state.end_snapshot(live)
        self._planning = True
        self._plans += 1
        with self._phase(report, "diff"):
            planned = await plan_from(desired, state.seen, rules, state.recollection.memory, self._ports.reader)
        state.trusted, state.judged = connection == state.connections, declared
        await self._took_in(planned, report)
        self._aftermath.name_authors(named)
        return planned

    async def _took_in(self, planned: Planned, report: _Report) -> None:
        """Everybody who has to knows of a plan for everything."""
        state, plan, desired = self._state, planned.plan, planned.desired
        state.recollection.learn(state.seen)
        state.recollection.wants(plan, without_prunes=bool(state.prunes_wait()))
        state.refused, state.stopped = plan.halted, tuple(plan.stopped)
        self._aftermath.replan_all(plan.changes)
        state.telemetry.refused(reason.code for reason in plan.refused)
        state.telemetry.planned(Counter((change.key.kind, change.action) for change in plan.changes))
        state.board.full_plan(counts=plan.summary, refused=plan.refused, fingerprint=plan.fingerprint)
        for _ in state.board.looking(desired, planned.live, (*plan.changes, *plan.left)):
            await asyncio.sleep(0)  # whoever renews the lease needs this loop
        await state.telemetry.behind(planned.live, planned.rules.owner)
        self._aftermath.silent(planned.live.unknown, tuple(planned.live.streams))
        if plan.refused:
            report.result, report.error = "refused", "; ".join(str(reason) for reason in plan.refused)

    async def _plan_some(self, keys: frozenset[Key], report: _Report) -> Planned | None:
        """Plans for the keys of a hint; None when nobody may rely on a few keys, since everything is about to be looked at."""
        state = self._state
        if not await self._may_judge():
            return None
        named = [key for key in keys if key in state.authors]
        with self._phase(report, "snapshot"):
            seen = await self._ports.reader.refresh(state.seen, keys)
            state.learn()
            state.patch(seen)
        if not await self._may_judge():
            return None
        desired, live, plans = state.desired, state.seen, self._plans
        with self._phase(report, "diff"):
            scope = frozenset(key for key in keys if not state.keeper.owns(key))
            memory = state.recollection.memory
            planned = await plan_from(desired, live, state.rules, memory, self._ports.reader, scope)
            if plans != self._plans:  # everything is planned for meanwhile, from what was seen before or after
                state.agenda.look(keys)
                return None
            state.recollection.learn_keys(live, keys)
        self._aftermath.replan(planned.plan.changes, scope)
        self._aftermath.name_authors(named)
        state.board.looked(desired, planned.live, (*planned.plan.changes, *planned.plan.left), scope)
        self._aftermath.silent({key: why for key in scope if (why := live.why_unknown(key))}, scope)
        return planned

    async def _may_judge(self) -> bool:
        """Whether single keys may be planned for: everything was held against these manifests on this connection.

        Returns when nobody plans for everything, and not before a look that decides this is over.
        """
        state = self._state
        while True:
            known = state.trusted and state.live is not None and state.declared is state.judged
            if not self._planning and (known or not self._looking):
                return known
            await self._looked.wait()

    def _due(self, planned: Planned, keys: Collection[Key]) -> tuple[list[Change], Failures]:
        """What is tried in this pass, and what its dependants have to wait for."""
        state = self._state
        changes = [self._aftermath.noted(change) for change in planned.plan.changes]
        for change in planned.plan.blocked if state.speaks else ():
            state.telemetry.change_ended(Ending(change=change, result=Word.SKIPPED.value))
        due, waiting = divide(state, filter(self._may_do, changes), keys)
        failures = Failures()
        later = {change.key.live_key for change in due}
        for key, change in state.open.items() if due else ():
            if key not in later:
                failures.add(change, waiting.get(key, "is not in place"))
        return due, failures

    async def _carry_out(
        self, planned: Planned, due_and_failures: tuple[list[Change], Failures], term: int, report: _Report
    ) -> tuple[Outcome, ...]:
        due, failures = due_and_failures
        if not due:
            return ()
        state = self._state
        scene = Scene(planned.desired, planned.live, planned.rules, planned.memory)
        permit_of = permits(self._ports.lease, state, term, planned.desired)
        supervisor = Supervisor(self._ports, scene.normal, permit_of)
        starter = Starter(state.keeper, supervisor, planned.desired, state.deadline)
        ledger = _Ledger(self._ports.observer, state, self._aftermath, {key for change in due for key in change.members})
        ports = replace(self._ports, observer=ledger)
        requests = SingleRequests(ports.writes, scene, permit_of)
        bounds = ExecutionBounds(state.deadline, state.options.concurrency)
        executor = Executor(ports, requests, starter.begin, bounds, failures)
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
            state.refused, state.stopped = (Reason("expectation", str(error)),), ()
            state.telemetry.refused(reason.code for reason in state.refused)
            state.board.full_plan(counts={}, refused=state.refused)
        if work.everything:
            state.board.unseen(str(error))
        if isinstance(error, NatsError):
            self._aftermath.unseen(work.keys)
        self._tell(work, report, seen=not isinstance(error, NatsError))

    def _tell(self, work: Work, report: _Report, *, seen: bool) -> None:
        state = self._state
        report.revision = state.desired.revision
        if work.everything:
            state.last_error = report.error
        if work.everything and seen:
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


def _count(report: _Report, outcomes: Collection[Outcome]) -> None:
    report.results |= {word.value: number for word, number in Counter(outcome.word for outcome in outcomes).items()}
    if Word.FAILED.value in report.results:
        report.result = "error"
    elif outcomes and report.result == "noop":
        report.result = "success"
