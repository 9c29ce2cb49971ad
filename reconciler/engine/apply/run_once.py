"""A one-shot apply: the passes of a daemon with a plan filter, and an agenda that may run empty. Each looks at everything.

Invariants: a plan with something refused or (without `continue`) blocked writes nothing at all; a later pass does only what
the reviewed plan was about, never a removal it did not show.
"""

from __future__ import annotations

import asyncio
import math
import os
import socket
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import cast

from reconciler import __version__
from reconciler.engine.apply.outcome import After, Later, No, Outcome, Verdict, Word, verdict
from reconciler.engine.daemon.assembly import make_state
from reconciler.engine.daemon.passes import Passes
from reconciler.engine.daemon.queue import Work
from reconciler.engine.daemon.state import DaemonOptions
from reconciler.engine.planning import Planned
from reconciler.engine.ports import Ports
from reconciler.engine.writing.outgoing import Noted
from reconciler.engine.writing.writes import NOTHING, Reply
from reconciler.errors import LeaseLost, Moved, NatsError, NotSent
from reconciler.jetstream.clock import SystemClock
from reconciler.model.desired import Desired
from reconciler.model.identity import Key
from reconciler.model.seen.live import Live
from reconciler.observe.status.board import Board, Process
from reconciler.observe.telemetry import Telemetry
from reconciler.plan.change import Action, Change, Plan, Reason
from reconciler.procedures.machine import Done
from reconciler.procedures.requests import Write

_LOOKS = 3
"""Some changes become possible only through others; what is still open after this many looks at everything is said."""
_ELECTION = 10.0
"""A stream whose replicas were just changed has no leader for a moment; seconds, after which that is no moment any more."""
_GLANCE = 0.2
_GATHER = 0.1
"""Seconds in which what is due becomes one look."""
_EVERYTHING = Work(frozenset(), 0.0)
_REMOVALS = (Action.DELETE, Action.RECREATE)
_OVER = (Done, No)
_LATE = Later("the time was over before its turn came")


@dataclass(frozen=True, slots=True)
class ApplyOptions:
    """How a one-shot apply behaves."""

    continue_: bool = False
    """Do what can be done although something is blocked."""
    timeout: float = 300.0
    concurrency: int = 32


@dataclass(frozen=True, slots=True)
class Applied:
    """What an apply did."""

    plan: Plan
    verdict: Verdict
    outcomes: tuple[Outcome, ...] = ()
    """One per change, in plan order; changes that turned up on the way come last."""
    refused: tuple[Reason, ...] = ()
    remaining: Plan | None = None
    """The plan made after the last write; None when nothing was written, or nobody answered any more."""
    unverified: str = ""
    """Why it could not be looked at again after writing."""
    come_up: tuple[Key, ...] = ()
    """What is not as declared by now, and was no part of what was reviewed: it is not done unseen."""


async def apply_plan(planned: Planned, ports: Ports, options: ApplyOptions) -> Applied:
    """Do what the plan says, then plan again until nothing is left that can be done."""
    refused = planned.plan.refused or _refused_by_blocks(planned.plan, options)
    if refused:
        return Applied(planned.plan, Verdict.REFUSED, refused=refused)
    return await _Apply(planned, ports, options).to_end()


def _refused_by_blocks(plan: Plan, options: ApplyOptions) -> tuple[Reason, ...]:
    """Why a one-shot apply does not even begin."""
    if not plan.in_the_way or (options.continue_ and len(plan.blocked) < len(plan.changes)):
        return ()
    blocks = ((change.key, reason) for change in plan.in_the_way for reason in change.reasons)
    return tuple(replace(reason, message=f"{key}: {reason.message}") for key, reason in blocks)


class _Apply:
    """An apply under way, which is also the observer of its passes."""

    def __init__(self, planned: Planned, ports: Ports, options: ApplyOptions) -> None:
        self._planned = planned
        self._clock, self._observer = ports.clock, ports.observer
        self._reviewed = {change.key.live_key: change for change in planned.plan.changes}
        process = Process(pid=os.getpid(), host=socket.gethostname(), version=__version__, owner=planned.rules.owner)
        state = self._state = make_state(
            DaemonOptions(concurrency=options.concurrency),
            lambda _: planned.rules,
            cast("Telemetry", _Untold()),
            _Unshown(SystemClock().now, process),
            finished=self._procedure_ended,
            after_a_no=math.inf,
        )
        state.leading = state.trusted = state.silent = True
        state.deadline = self._clock.monotonic() + options.timeout
        state.declared = state.judged = planned.desired
        state.live = replace(planned.live, facts={})
        ports.writes.witnessed_by(_Unread(state, lambda _: NOTHING))
        self._passes = Passes(state, replace(ports, observer=self), _AsTheyAre(), self._may_follow)
        self._outcomes: dict[Key, Outcome] = {}
        self._waiting: set[Key] = set()
        """What is worth another try."""
        self._tried = False
        """Something was tried since the last look at everything."""
        self._remaining: Plan | None = None
        """As of the last look at everything."""
        self._looks_left = _LOOKS
        self._lost = False
        """So is the lease."""

    async def to_end(self) -> Applied:
        """All of it."""
        await self._pass(self._planned)
        await self._work_off()
        while self._tried and self._looks_left:
            self._looks_left -= 1
            looked = await self._look_again()
            if looked is None:
                return self._finished(unverified=self._state.last_error)
            if looked.plan.refused:
                break
            await self._work_off()
        return self._finished()

    def stepped(self, key: Key, title: str) -> None:
        """A procedure took a step."""
        self._observer.stepped(key, title)

    def finished(self, outcome: Outcome) -> None:
        """A change was tried, or its procedure began."""
        self._tried = True
        if not self._state.keeper.owns(outcome.change.key.live_key):
            self._ended(outcome)

    def _procedure_ended(self, outcome: Outcome) -> None:
        self._tried = True
        self._ended(outcome)

    def _ended(self, outcome: Outcome) -> None:
        """How a change stands, for now or for good."""
        key = outcome.change.key
        self._outcomes[key] = outcome
        over = _is_over(outcome)
        if over or outcome.word is Word.SKIPPED or _unseen_removal(outcome):
            self._waiting.discard(key)
        else:
            self._lost = self._lost or isinstance(outcome.cause, LeaseLost)
            self._waiting.add(key)
        if over:
            self._observer.finished(outcome)

    async def _work_off(self) -> None:
        """Until nothing is worth another try, nothing may be written any more, or the time is over."""
        state = self._state
        while state.may_write and not self._lost and (self._waiting or state.keeper.running() or state.agenda.due):
            left = state.deadline - self._clock.monotonic()
            try:
                work = await asyncio.wait_for(state.agenda.take(), max(0.0, min(left, state.options.interval)))
            except TimeoutError:
                if left <= state.options.interval:
                    break
                state.agenda.everything("interval")
                continue
            if not work.everything:
                await self._clock.sleep(max(0.0, min(left, _GATHER)))
                state.agenda.done(work)
                state.agenda.everything("something is to be tried again")
                work = await state.agenda.take()
            await self._pass()
            state.agenda.done(work)
        await state.keeper.stop_all()

    async def _pass(self, planned: Planned | None = None) -> Planned | None:
        waited, tried, self._tried = self._waiting.copy(), self._tried, False
        found = await self._passes.run_once(_EVERYTHING, planned)
        if found is None:
            self._tried = tried
            return None
        if found is not planned:
            self._remaining = found.plan
        self._learn(found.plan, waited)
        return found

    def _learn(self, plan: Plan, waited: set[Key]) -> None:
        """What waited and is in place by now, and what cannot be done."""
        if waited:
            for key in waited - {key for change in plan.changes for key in (change.key, *change.touches)}:
                self._ended(replace(self._outcomes[key], result=Done()))
        for change in plan.changes if waited else plan.blocked:
            if change.key in waited and not self._may_ever_follow(change):
                self._waiting.discard(change.key)
            elif change.action is Action.BLOCKED:
                self._learn_blocked(change, waited)

    def _learn_blocked(self, change: Change, waited: set[Key]) -> None:
        """What cannot be done by now; what does not answer may still."""
        before, waits = self._outcomes.get(change.key), change.key in waited
        if (waits and _is_unknown(change)) or not self._may_ever_follow(change):
            return
        if before is not None and isinstance(before.cause, Moved):
            self._waiting.discard(change.key)  # somebody else's doing, and said already
        elif waits or before is None or before.word is Word.SKIPPED:
            self._ended(Outcome(change, Later("; ".join(map(str, change.reasons)), After.OTHERS)))

    async def _look_again(self) -> Planned | None:
        """A pass over everything; what was written and does not answer yet is waited for. None: nobody could look."""
        give_up = min(self._state.deadline, self._clock.monotonic() + _ELECTION)
        while True:
            planned = await self._pass()
            over = self._clock.monotonic() >= give_up
            if over or (self._state.refused if planned is None else not any(map(self._silent, planned.plan.changes))):
                return planned
            await self._clock.sleep(_GLANCE)

    def _silent(self, change: Change) -> bool:
        """Whether this was written, and did not answer when it was looked at again."""
        before = self._outcomes.get(change.key)
        written = before is not None and isinstance(before.result, Done)
        return written and _is_unknown(change)

    def _may_follow(self, change: Change) -> bool:
        """Whether a pass may do this now."""
        over = self._lost or not self._looks_left or self._clock.monotonic() >= self._state.deadline
        return not over and self._may_ever_follow(change)

    def _may_ever_follow(self, change: Change) -> bool:
        """Whether a pass may do this: part of what was reviewed, and no removal of what nobody has seen."""
        before = self._outcomes.get(change.key)
        return (before is None or not _unseen_removal(before)) and follows(change, self._reviewed)

    def _finished(self, unverified: str = "") -> Applied:
        """Everything may be in place though nobody could look."""
        reviewed, remaining = self._planned.plan, None if unverified else self._remaining
        for key in self._waiting:
            self._outcomes[key] = _given_up(self._outcomes[key])
        in_order = {change.key: self._outcomes.get(change.key) or Outcome(change, _LATE) for change in reviewed.changes}
        in_order |= self._outcomes
        for outcome in in_order.values():
            if not _is_over(outcome):
                self._observer.finished(outcome)
        outcomes = _seen_again(in_order, remaining)
        said, more = verdict(outcomes), _come_up(remaining, outcomes)
        if (unverified or more) and said is Verdict.IN_PLACE:
            said = Verdict.PARTLY
        return Applied(reviewed, said, outcomes, remaining=remaining, unverified=unverified, come_up=more)


def _come_up(remaining: Plan | None, outcomes: Iterable[Outcome]) -> tuple[Key, ...]:
    """What is not as declared by now, and was no part of what was reviewed."""
    told = {outcome.change.key.live_key for outcome in outcomes}
    changes = remaining.changes if remaining else ()
    return tuple(one.key for one in changes if one.action is not Action.BLOCKED and one.key.live_key not in told)


class _Unread(Noted):
    """A witness of writes whose answers nobody needs: the next look is at everything."""

    def wrote(self, write: Write, reply: Reply) -> None:
        """Fine."""


class _AsTheyAre:
    """Manifests that nobody changes."""

    async def load(self, *, full: bool = False) -> bool:  # noqa: ARG002 - see Declarations
        """They are the same."""
        return False


class _Untold:
    """Hears all that a daemon tells, and keeps it to itself: a command tells its own way."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return _nothing

    async def behind(self, live: Live, owner: str) -> None:
        """Nothing is worked out for it."""


def _nothing(*_: object, **__: object) -> None:
    """What comes of it."""


class _Unshown(Board):
    """A status that nobody asks for: nothing is worked out for it."""

    def looking(
        self,
        desired: Desired,  # noqa: ARG002 - see Board
        live: Live,  # noqa: ARG002
        changes: Iterable[Change],  # noqa: ARG002
        scope: Collection[Key] | None = None,  # noqa: ARG002
    ) -> Iterator[None]:
        """Nothing."""
        return iter(())

    def settled(self, key: Key) -> None:
        """Nothing."""


def _is_unknown(change: Change) -> bool:
    """Whether it did not answer."""
    return any(reason.code == "unknown" for reason in change.reasons)


def follows(change: Change, reviewed: Mapping[Key, Change]) -> bool:
    """Whether it is part of what was reviewed (by identity); a removal only if it was to be one."""
    shown = reviewed.get(change.key.live_key)
    if shown is None:
        remade = reviewed.get(change.key.stream_key)
        return change.action is Action.CREATE and remade is not None and remade.action is Action.RECREATE
    return change.action not in _REMOVALS or shown.action is change.action


def _is_over(outcome: Outcome) -> bool:
    """Whether no later try of this apply can change how it ended."""
    return isinstance(outcome.result, _OVER)


def _unseen_removal(outcome: Outcome) -> bool:
    """Whether what was to be removed is another thing by now, which nobody has reviewed; what others of the plan moved is not."""
    change = outcome.change
    return isinstance(outcome.cause, Moved) and change.action in _REMOVALS and not change.needs


def _given_up(outcome: Outcome) -> Outcome:
    result, cause = outcome.result, outcome.cause
    if isinstance(result, Done) or not isinstance(cause, NatsError) or not cause.transient:
        return outcome
    away = isinstance(cause, NotSent)
    why = "the server is not connected: apply again when it is back" if away else "gave up, the time was over"
    return replace(outcome, result=replace(result, why=f"{result.why}; {why}"))


def _seen_again(outcomes: Mapping[Key, Outcome], remaining: Plan | None) -> tuple[Outcome, ...]:
    """The outcomes; what was applied and differs again is not in place."""
    left = {change.key: change for change in remaining.changes} if remaining else {}
    if not left:
        return tuple(outcomes.values())
    return tuple(_differing(outcome, left.get(key)) for key, outcome in outcomes.items())


def _differing(outcome: Outcome, left: Change | None) -> Outcome:
    if left is None or not isinstance(outcome.result, Done):
        return outcome
    fields = ", ".join(field.path for field in left.fields) or "; ".join(map(str, left.reasons)) or left.action.value
    return replace(outcome, result=Later(f"applied, but not in place when looked at again: {fields}"))
