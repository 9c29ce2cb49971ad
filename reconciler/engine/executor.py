"""Carries out a plan: wave after wave, many changes at once, each tried until it is in place, hopeless or out of time.

Invariants: a failure holds back only what depends on it; a key that has to wait for its next try occupies nobody;
nothing is written after the lease is lost or the time is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from reconciler.engine.attempt import Attempt, SingleRequests
from reconciler.engine.backoff import Backoff
from reconciler.engine.dependencies import Failures, identity, prerequisites
from reconciler.engine.outcome import End, Outcome, Result
from reconciler.engine.ports import Ports
from reconciler.engine.workers import work_off
from reconciler.errors import LeaseLost, NatsError, NotSent, ReconcilerError, Refused
from reconciler.model.identity import Key
from reconciler.plan.change import Action, Change
from reconciler.procedures.machine import Procedure

Waves = Iterable[tuple[Change, ...]]
_LOOK = 0.1
"""Seconds between looks at a connection that is down: it comes back by itself, and no key is to blame."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far an executor may go."""

    deadline: float
    """Monotonic."""
    concurrency: int
    once: bool = False
    """Each change gets one try: whoever called comes back to what failed."""


class Procedures(Protocol):
    """Whoever carries out step machines."""

    async def run(self, machine: Procedure, level: int, deadline: float) -> End:
        """Steps the machine to its end, or until `deadline` (monotonic)."""
        ...


class Executor:
    """One use: carries out the waves of one plan. `failures` are those of earlier plans of the same apply."""

    def __init__(
        self, ports: Ports, requests: SingleRequests, procedures: Procedures, bounds: Bounds, failures: Failures
    ) -> None:
        self._ports = ports
        self._requests = requests
        self._machines = procedures
        self._deadline = bounds.deadline
        self._once = bounds.once
        self._concurrency = bounds.concurrency
        self._failures = failures
        self._backoff = Backoff(ports.clock.monotonic)
        self._outcomes: list[Outcome] = []
        self._procedures: dict[Key, asyncio.Task[None]] = {}
        self._stopped: ReconcilerError | None = None
        self._offline: NotSent | None = None
        self._look_at = 0.0

    async def execute(self, waves: Waves) -> tuple[Outcome, ...]:
        """An outcome for every change."""
        async with asyncio.TaskGroup() as group:
            for wave in waves:
                await self._procedures_before(wave)
                await work_off(self._admit(wave, group), self._try_once, self._concurrency, self._ports.clock.sleep)
        return tuple(self._outcomes)

    def _admit(self, wave: tuple[Change, ...], group: asyncio.TaskGroup) -> list[Attempt]:
        """Starts the procedures; returns the attempts of the others. Blocked ones end here."""
        attempts = []
        for change in wave:
            if change.action is Action.BLOCKED:
                self._end(Attempt(change), End(Result.SKIPPED, "; ".join(str(reason) for reason in change.reasons)))
            elif change.machine is not None:
                task = group.create_task(self._run_procedure(Attempt(change)), name=str(change.key))
                self._procedures |= dict.fromkeys((identity(change.key), *map(identity, change.touches)), task)
            else:
                attempts.append(Attempt(change))
        return attempts

    async def _procedures_before(self, wave: tuple[Change, ...]) -> None:
        """Waits for those running procedures that somebody in this wave depends on."""
        if not self._procedures:
            return
        needed = {self._procedures[key] for change in wave for key in prerequisites(change) if key in self._procedures}
        if needed:
            await asyncio.wait(needed)

    async def _run_procedure(self, attempt: Attempt) -> None:
        change = attempt.change
        if self._held_back(attempt) or change.machine is None:
            return
        attempt.started = self._ports.clock.monotonic()
        try:
            self._ports.lease.check()
        except ReconcilerError as error:
            self._end(attempt, End(Result.UNFINISHED, str(error), error))
            return
        self._end(attempt, await self._machines.run(change.machine, change.level, self._deadline))

    def _held_back(self, attempt: Attempt) -> bool:
        """Ends an attempt that must not be made."""
        if self._stopped is not None or self._ports.clock.monotonic() >= self._deadline:
            cause = attempt.silence or self._stopped
            away = "the server is not connected: apply again when it is back" if self._offline else ""
            said = "; ".join(filter(None, (str(cause or ""), away))) or "the time was over before its turn came"
            self._end(attempt, End(Result.UNFINISHED, said, cause or self._offline))
        elif reason := self._failures.hold_back(attempt.change):
            self._end(attempt, End(Result.SKIPPED, reason))
        else:
            return False
        return True

    async def _try_once(self, attempt: Attempt) -> float | None:
        """One try. None when the attempt has ended, else the seconds until the next try."""
        if self._held_back(attempt):
            return None
        now = self._ports.clock.monotonic()
        if self._offline is not None and now < self._look_at:
            return self._look_at - now  # one of the many that wait looks for all
        attempt.started = attempt.started or now
        try:
            self._ports.lease.check()
            await self._requests.advance(attempt)
        except NotSent as error:
            if self._once:
                self._end(attempt, End(Result.UNFINISHED, str(error), error))
                return None
            self._offline, self._look_at = error, now + _LOOK
            return _LOOK
        except NatsError as error:
            return self._failed(attempt, error)
        except (LeaseLost, Refused) as error:
            self._stopped = error
            return 0.0
        self._offline = None
        self._backoff.forget(attempt.change.key)
        self._end(attempt, End(Result.APPLIED))
        return None

    def _failed(self, attempt: Attempt, error: NatsError) -> float | None:
        if not error.transient:
            self._end(attempt, End(Result.FAILED, str(error), error))
            return None
        result = Result.UNFINISHED if attempt.silence else Result.FAILED
        if self._once:
            self._end(attempt, End(result, str(error), error))
            return None
        delay = self._backoff.failed(attempt.change.key)
        if self._ports.clock.monotonic() + delay < self._deadline:
            return delay
        self._end(attempt, End(result, f"{error}; gave up, the time was over", error))
        return None

    def _end(self, attempt: Attempt, end: End) -> None:
        change = attempt.change
        if end.result is Result.APPLIED:
            self._failures.remove(change)
        else:
            self._failures.add(change, "is blocked" if change.action is Action.BLOCKED else f"is {end.result}")
        seconds = self._ports.clock.monotonic() - attempt.started if attempt.started else 0.0
        outcome = Outcome(change, end, seconds)
        self._outcomes.append(outcome)
        self._ports.observer.finished(outcome)
