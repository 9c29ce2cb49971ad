"""One pass of a one-shot apply, as prose: refuse or carry out the plan, then look again until nothing is left to do.

Invariants: a plan with something refused or (without `continue`) blocked writes nothing at all; a later pass does only what
the reviewed plan was about, never a removal it did not show.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from reconciler.engine.attempt import SingleRequests
from reconciler.engine.dependencies import Failures, identity
from reconciler.engine.executor import Bounds, Executor
from reconciler.engine.outcome import End, Outcome, Result, Verdict, verdict
from reconciler.engine.planning import Planned, make_plan
from reconciler.engine.ports import Ports
from reconciler.engine.procedures import Supervisor
from reconciler.engine.sending import Sender
from reconciler.engine.throttle import Throttle
from reconciler.errors import NatsError, ReconcilerError, Refused
from reconciler.model.identity import Key
from reconciler.plan.change import Action, Change, Plan, Reason
from reconciler.plan.order import waves
from reconciler.plan.scene import Scene

_PASSES = 3
"""Some changes become possible only through others; what is still open after this many passes is said."""
_ELECTION = 10.0
"""A stream whose replicas were just changed has no leader for a moment; seconds, after which that is no moment any more."""
_GLANCE = 0.2
_REMOVALS = (Action.DELETE, Action.RECREATE)


@dataclass(frozen=True, slots=True)
class ApplyOptions:
    """How a one-shot apply behaves."""

    continue_: bool = False
    """Do what can be done although something is blocked."""
    timeout: float = 300.0
    concurrency: int = 32
    requests_per_second: float = 0.0
    """0: no limit."""


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


@dataclass(slots=True)
class _Run:
    """An apply under way."""

    reviewed: Mapping[Key, Change]
    bounds: Bounds
    throttle: Throttle
    failures: Failures = field(default_factory=Failures)
    outcomes: dict[Key, Outcome] = field(default_factory=dict)


async def apply_plan(planned: Planned, ports: Ports, options: ApplyOptions) -> Applied:
    """Do what the plan says, then plan again until nothing is left that can be done."""
    reviewed = planned.plan
    refused = reviewed.refused or _refused_by_blocks(reviewed, options)
    if refused:
        return Applied(reviewed, Verdict.REFUSED, refused=refused)
    clock = ports.clock
    run = _Run(
        reviewed={identity(change.key): change for change in reviewed.changes},
        bounds=Bounds(clock.monotonic() + options.timeout, options.concurrency),
        throttle=Throttle(options.requests_per_second, clock),
    )
    due = reviewed.changes
    remaining: Plan | None = None
    for _ in range(_PASSES):
        if all(change.action is Action.BLOCKED for change in due):
            break
        await _carry_out(replace(planned, plan=replace(planned.plan, changes=due)), ports, run)
        try:
            planned = await _look_again(planned, ports, run)
        except (NatsError, Refused) as error:
            return _unverified(reviewed, run, error)
        remaining = planned.plan
        if remaining.refused or clock.monotonic() >= run.bounds.deadline:
            break
        due = tuple(change for change in remaining.changes if _may_follow(change, run))
    outcomes = _seen_again(run.outcomes, remaining)
    return Applied(reviewed, verdict(outcomes), outcomes, remaining=remaining)


async def _look_again(planned: Planned, ports: Ports, run: _Run) -> Planned:
    """The plan made again; what was written and does not answer yet is waited for."""
    clock = ports.clock
    give_up = min(run.bounds.deadline, clock.monotonic() + _ELECTION)
    while True:
        planned = await make_plan(planned.desired, planned.rules, ports.reader, planned.memory)
        if clock.monotonic() >= give_up or not any(_silent(change, run) for change in planned.plan.changes):
            return planned
        await clock.sleep(_GLANCE)


def _silent(change: Change, run: _Run) -> bool:
    """Whether this was written, and did not answer when it was looked at again."""
    before = run.outcomes.get(change.key)
    written = before is not None and before.result is Result.APPLIED
    return written and any(reason.code == "unknown" for reason in change.reasons)


def _unverified(plan: Plan, run: _Run, error: ReconcilerError) -> Applied:
    """Everything may be in place, but nobody could look."""
    outcomes = tuple(run.outcomes.values())
    said = verdict(outcomes)
    return Applied(plan, Verdict.PARTLY if said is Verdict.IN_PLACE else said, outcomes, unverified=str(error))


def _refused_by_blocks(plan: Plan, options: ApplyOptions) -> tuple[Reason, ...]:
    """Why a one-shot apply does not even begin."""
    if not plan.in_the_way or (options.continue_ and len(plan.blocked) < len(plan.changes)):
        return ()
    blocks = ((change.key, reason) for change in plan.in_the_way for reason in change.reasons)
    return tuple(replace(reason, message=f"{key}: {reason.message}") for key, reason in blocks)


async def _carry_out(planned: Planned, ports: Ports, run: _Run) -> None:
    """One plan, wave after wave."""
    scene = Scene(planned.desired, planned.live, planned.rules, planned.memory)
    sender = Sender(ports, run.throttle, scene.normal)
    requests = SingleRequests(ports.reader, sender, scene)
    executor = Executor(ports, requests, Supervisor(ports, sender), run.bounds, run.failures)
    # In a thread, like planning: sorting a hundred thousand changes must not keep the lease from being renewed.
    outcomes = await executor.execute(await asyncio.to_thread(waves, planned.plan.changes, scene))
    by_key = {outcome.change.key: outcome for outcome in outcomes}
    for change in planned.plan.changes:
        run.outcomes[change.key] = by_key[change.key]


def _may_follow(change: Change, run: _Run) -> bool:
    """Whether a later pass may do this: part of what was reviewed, not hopeless, and no removal that was not shown."""
    before = run.outcomes.get(change.key)
    if (before is not None and before.result in (Result.FAILED, Result.UNFINISHED)) or run.failures.hold_back(change):
        return False
    shown = run.reviewed.get(identity(change.key))
    if shown is None:
        remade = run.reviewed.get(change.key.stream_key)
        return change.action is Action.CREATE and remade is not None and remade.action is Action.RECREATE
    return change.action not in _REMOVALS or shown.action is change.action


def _seen_again(outcomes: Mapping[Key, Outcome], remaining: Plan | None) -> tuple[Outcome, ...]:
    """The outcomes; what was applied and differs again is not in place."""
    left = {change.key: change for change in remaining.changes} if remaining else {}
    return tuple(_differing(outcome, left.get(key)) for key, outcome in outcomes.items())


def _differing(outcome: Outcome, left: Change | None) -> Outcome:
    if left is None or outcome.result is not Result.APPLIED:
        return outcome
    fields = ", ".join(field.path for field in left.fields) or "; ".join(map(str, left.reasons)) or left.action.value
    return replace(outcome, end=End(Result.UNFINISHED, f"applied, but not in place when looked at again: {fields}"))
