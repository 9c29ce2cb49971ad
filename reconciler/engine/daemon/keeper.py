"""Procedures beside the passes: a hand-off of two minutes never holds back a repair.

Invariant: while a procedure runs, it owns its key and every key it touches, and nobody else acts on them; it can be stopped
between any two of its steps, since what it has done is journaled on the server. One that there is no room for is not begun: it
owns nothing, and is planned anew when its turn comes.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from reconciler.engine.apply.outcome import After, Later, Outcome, Result
from reconciler.engine.apply.procedures import Halt, Supervisor
from reconciler.model.desired import Desired
from reconciler.model.identity import Key
from reconciler.plan.change import Change
from reconciler.procedures.machine import Done

SIDE_BY_SIDE = 32
BY_REQUEST = "aborted by request"


@dataclass(slots=True, eq=False)
class Running:
    """One procedure under way."""

    change: Change
    halt: Halt
    digests: Mapping[Key, str]
    """What the manifests said of its keys when it began."""
    deadline: float = math.inf
    """Monotonic; it is left as it is then, journaled."""
    task: asyncio.Task[None] | None = None

    @property
    def keys(self) -> frozenset[Key]:
        """All it owns, as live keys."""
        return frozenset(self.change.members)


Ended = Callable[[Running, Outcome], None]


class Keeper:
    """Begins procedures and keeps them until they end; `ended` is told how."""

    def __init__(self, monotonic: Callable[[], float], ended: Ended) -> None:
        self._monotonic = monotonic
        self._ended = ended
        self._owned: dict[Key, Running] = {}

    @property
    def room(self) -> int:
        """How many more may be begun."""
        return max(0, SIDE_BY_SIDE - len(self.running()))

    def owns(self, key: Key) -> bool:
        """Whether a running procedure owns this live key."""
        return bool(self._owned) and key in self._owned

    def of(self, key: Key) -> Running | None:
        """The procedure that owns this live key."""
        return self._owned.get(key)

    def owns_any(self, keys: Iterable[Key]) -> bool:
        """Whether running procedures own any of these live keys."""
        return bool(self._owned) and not self._owned.keys().isdisjoint(keys)

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
            result = await _end_of(supervisor, running)
        finally:
            for key in running.keys:
                if self._owned.get(key) is running:
                    del self._owned[key]
        self._ended(running, Outcome(change, result, self._monotonic() - started))


async def _end_of(supervisor: Supervisor, running: Running) -> Result:
    change = running.change
    if change.machine is None:
        return Done()
    return await supervisor.run(change.machine, change.level, running.deadline, running.halt)


@dataclass(frozen=True, slots=True)
class Starter:
    """Begins the procedures of a pass; within the pass they only begin."""

    keeper: Keeper
    supervisor: Supervisor
    desired: Desired
    deadline: float = math.inf

    def begin(self, change: Change) -> Result:
        """Begins the procedure, or lets it wait for its turn; for this pass it is unfinished."""
        if not self.keeper.room:
            return Later(f"waits until one of {SIDE_BY_SIDE} procedures under way has ended", After.A_TURN)
        halt = Halt(abortable=not change.continues)
        running = Running(change, halt, digests_of(self.desired, change.members), self.deadline)
        self.keeper.begin(running, self.supervisor)
        return Later(f"{change.machine.name if change.machine else change.action.value} is under way")


def digests_of(desired: Desired, keys: Collection[Key]) -> Mapping[Key, str]:
    """What the manifests want these live keys to be."""
    found = ((key, desired.under(key)) for key in keys)
    return {key: f"{declared.digest} {declared.intent.state}" for key, declared in found if declared is not None}
