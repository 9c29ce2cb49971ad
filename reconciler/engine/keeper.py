"""Procedures beside the passes: a hand-off of two minutes never holds back a repair.

Invariant: while a procedure runs, it owns its key and every key it touches, and nobody else acts on them; it can be stopped
between any two of its steps, since what it has done is journaled on the server.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

import structlog

from reconciler.engine.outcome import End, Outcome, Result
from reconciler.engine.procedures import Halt, Supervisor
from reconciler.model.desired import Desired
from reconciler.model.identity import Key
from reconciler.plan.change import Change
from reconciler.procedures.machine import Procedure

SIDE_BY_SIDE = 32
BY_REQUEST = "aborted by request"

log = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class Running:
    """One procedure under way."""

    change: Change
    halt: Halt
    digests: Mapping[Key, str]
    """What the manifests said of its keys when it began."""
    task: asyncio.Task[None] | None = None

    @property
    def keys(self) -> frozenset[Key]:
        """All it owns, as live keys."""
        return frozenset(key.live_key for key in (self.change.key, *self.change.touches))


Ended = Callable[[Running, Outcome], None]


class Keeper:
    """Begins procedures and keeps them until they end; `ended` is told how."""

    def __init__(self, monotonic: Callable[[], float], ended: Ended) -> None:
        self._monotonic = monotonic
        self._ended = ended
        self._owned: dict[Key, Running] = {}
        self._room = asyncio.Semaphore(SIDE_BY_SIDE)

    def owns(self, key: Key) -> bool:
        """Whether a running procedure owns this live key."""
        return key in self._owned

    def of(self, key: Key) -> Running | None:
        """The procedure that owns this live key."""
        return self._owned.get(key)

    def running(self) -> Collection[Running]:
        """Each procedure under way, once."""
        return dict.fromkeys(self._owned.values()).keys()

    def begin(self, running: Running, supervisor: Supervisor) -> None:
        """Lets a procedure run by itself from now on."""
        self._owned |= dict.fromkeys(running.keys, running)
        running.task = asyncio.get_running_loop().create_task(self._run(running, supervisor), name=str(running.change.key))

    def stop_outdated(self, desired: Desired) -> None:
        """Stops what works towards a manifest of yesterday; the next pass goes on towards that of today."""
        for running in self.running():
            if running.digests != digests_of(desired, running.keys):
                running.halt.stop()

    async def stop_all(self) -> None:
        """Stops everything between two steps, and returns when that is so."""
        tasks = [running.task for running in self.running() if running.task is not None]
        for running in self.running():
            running.halt.stop()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, running: Running, supervisor: Supervisor) -> None:
        started = self._monotonic()
        change = running.change
        try:
            async with self._room:
                end = await _end_of(supervisor, change, running.halt)
        finally:
            for key in running.keys:
                if self._owned.get(key) is running:
                    del self._owned[key]
        self._ended(running, Outcome(change, end, self._monotonic() - started))


async def _end_of(supervisor: Supervisor, change: Change, halt: Halt) -> End:
    if change.machine is None:
        return End(Result.APPLIED)
    try:
        return await supervisor.run(change.machine, change.level, math.inf, halt)
    except Exception as error:
        log.exception("procedure.crashed", resource=str(change.key), procedure=change.machine.name)
        return End(Result.FAILED, f"a bug in reconciler: {error!r}; the procedure is journaled, and can be retried")


@dataclass(frozen=True, slots=True)
class Starter:
    """What an executor of a daemon's pass hands its step machines to: they only begin within the pass."""

    keeper: Keeper
    supervisor: Supervisor
    changes: Mapping[int, Change]
    """By the `id` of their step machine."""
    desired: Desired

    async def run(self, machine: Procedure, _level: int, _deadline: float) -> End:
        """Begins the procedure; for this pass it is unfinished."""
        change = self.changes[id(machine)]
        halt = Halt(abortable=not change.continues)
        keys = {key.live_key for key in (change.key, *change.touches)}
        self.keeper.begin(Running(change, halt, digests_of(self.desired, keys)), self.supervisor)
        return End(Result.UNFINISHED, f"{machine.name} is under way")


def digests_of(desired: Desired, keys: Collection[Key]) -> Mapping[Key, str]:
    """What the manifests want these live keys to be."""
    return dict(_digests(desired, keys))


def _digests(desired: Desired, keys: Collection[Key]) -> Iterator[tuple[Key, str]]:
    for key in keys:
        declared = desired.resources.get(key) or desired.resources.get(key.resource_key)
        if declared is not None:
            yield key, f"{declared.digest} {declared.intent.state}"
