"""Carries out a plan: wave after wave, many changes at once, each tried once.

Invariants: a failure holds back only what depends on it; nothing is written after the lease is lost or the time is over.
What failed is not tried again here: when that is done, the agenda knows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import structlog

from reconciler.engine.apply.dependencies import Failures
from reconciler.engine.apply.outcome import After, Later, No, Outcome, Result, result_of
from reconciler.engine.ports import Ports
from reconciler.errors import LeaseLost, NatsError, Refused
from reconciler.plan.change import Change
from reconciler.procedures.machine import Done

log = structlog.get_logger(__name__)

_DONE = Done()
T = TypeVar("T")
Waves = Iterable[tuple[Change, ...]]
Begin = Callable[[Change], Result]
"""Lets a procedure run by itself from now on; how it stands for this pass."""


@dataclass(frozen=True, slots=True)
class ExecutionBounds:
    """How far an executor may go."""

    deadline: float
    """Monotonic; nothing is begun after it."""
    concurrency: int


class _Requests(Protocol):
    """Whoever carries out changes that need no procedure."""

    async def carry_out(self, change: Change) -> None:
        """Returns when the change is in place, raises what came in between otherwise."""
        ...


class Executor:
    """One use: carries out the waves of one plan. `failures` is what does not go on in this pass, and holds others back."""

    def __init__(self, ports: Ports, requests: _Requests, begin: Begin, bounds: ExecutionBounds, failures: Failures) -> None:
        self._monotonic = ports.clock.monotonic
        self._observer = ports.observer
        self._requests = requests
        self._begin = begin
        self._bounds = bounds
        self._failures = failures
        self._outcomes: list[Outcome] = []
        self._lost: LeaseLost | None = None

    async def execute(self, waves: Waves) -> tuple[Outcome, ...]:
        """An outcome for every change."""
        for wave in waves:
            begun_first = sorted(wave, key=lambda change: not change.continues)
            await work_off(begun_first, self._try, self._bounds.concurrency)
        return tuple(self._outcomes)

    async def _try(self, change: Change) -> None:
        started = self._monotonic()
        result = self._held_back(change, started)
        if result is None and change.machine is not None:
            result = self._begin(change)
        if result is None:
            try:
                await self._requests.carry_out(change)
                result = _DONE
            except LeaseLost as error:
                self._lost = error
                result = result_of(error)
            except (Refused, NatsError) as error:
                result = result_of(error)
            except Exception as error:  # about one key, never the rest
                log.exception("change.crashed", resource=str(change.key))
                result = No(f"internal-error: a bug in reconciler: {error!r}")
        self._end(Outcome(change, result, self._monotonic() - started))

    def _held_back(self, change: Change, at: float) -> Result | None:
        """How a change ends that must not be tried."""
        if self._lost is not None:
            return result_of(self._lost)
        if at >= self._bounds.deadline:
            return Later("the time was over before its turn came")
        if reason := self._failures.hold_back(change):
            return Later(reason, After.OTHERS)
        return None

    def _end(self, outcome: Outcome) -> None:
        if isinstance(outcome.result, Done):
            self._failures.remove(outcome.change)
        else:
            self._failures.add(outcome.change, f"is {outcome.word}")
        self._outcomes.append(outcome)
        self._observer.finished(outcome)


async def work_off(items: Collection[T], work: Callable[[T], Awaitable[None]], workers: int) -> None:
    """Returns when every item was worked on, no more than so many at once."""
    waiting = iter(items)

    async def take_some() -> None:
        for item in waiting:
            await work(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(workers, len(items))):
            group.create_task(take_some())
