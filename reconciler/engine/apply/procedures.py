"""Drives step machines: asks what they ask, sends what they say, waits as long as they want.

Invariants: one write at a time per procedure, and the machine looks again after each; what is left when the time is over is
journaled on the server, and the next pass goes on from there. Times of a procedure are the server's, not ours.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from typing import Any

import structlog

from reconciler.engine.apply.outcome import Later, No, Result, result_of
from reconciler.engine.daemon.backoff import Backoff
from reconciler.engine.ports import Ports
from reconciler.engine.writing.echo import NormalOf
from reconciler.engine.writing.judging import StepJudge
from reconciler.engine.writing.turns import Rank
from reconciler.engine.writing.writes import Order, PermitOf
from reconciler.errors import AccessDenied, LeaseLost, Moved, NatsError, Refused
from reconciler.model import units
from reconciler.procedures.looks import Looking
from reconciler.procedures.machine import Abort, Ask, Do, Done, Observation, Procedure, Step, Wait, kept
from reconciler.procedures.requests import Fact, PauseConsumer, Read, Unanswered, Write

log = structlog.get_logger(__name__)

_NANOSECONDS = 10**9
_LONG = 5.0
"""Seconds after which it is told what is waited for."""


class Halt:
    """Lets somebody stop a running procedure: between two steps, never within one."""

    def __init__(self, *, abortable: bool = True) -> None:
        self.abortable = abortable
        """Whether everything can still be taken back; a continuation never knows, so it says no."""
        self.requested = asyncio.Event()
        self.refusal = ""

    def stop(self) -> None:
        """Leave it as it is, journaled: whoever plans next goes on."""
        self.refusal = ""
        self.requested.set()

    def abort(self, why: str) -> None:
        """Take back what was done, and end; only as long as `abortable`."""
        self.refusal = why
        self.requested.set()


class Supervisor:
    """Runs any number of procedures side by side; each `run` is one of them."""

    def __init__(self, ports: Ports, normal: NormalOf, permit_of: PermitOf) -> None:
        self._ports = ports
        self._normal = normal
        self._permit_of = permit_of

    async def run(self, machine: Procedure, level: int, deadline: float, halt: Halt | None = None) -> Result:
        """Steps the machine to its end, or until `deadline` (monotonic); `level` is what its writes need of the server."""
        permit = self._permit_of((machine.key, *machine.touches))
        order = Order(permit=permit, judge=StepJudge(self._ports.reader, {}), normal=self._normal, level=level)
        try:
            return await _Run(self._ports, order, machine, deadline, halt or Halt()).to_end()
        except Exception as error:  # about one key, never the rest
            log.exception("procedure.crashed", resource=str(machine.key), procedure=machine.name)
            message = f"internal-error: a bug in reconciler: {error!r}; the procedure is journaled, and can be retried"
            return No(message)


class _Run:
    """One procedure under way."""

    def __init__(self, ports: Ports, order: Order, machine: Procedure, deadline: float, halt: Halt) -> None:
        self._ports = ports
        self._halt = halt
        self._order = order
        self._machine = Looking(machine)
        self._deadline = deadline
        self._backoff = Backoff(ports.clock.monotonic)
        self._ahead = 0
        """How far the server's clock is ahead of ours, in nanoseconds."""
        self._told_at = 0.0
        """When it is, or was, told what is being waited for; 0: nothing is."""
        self._facts: dict[Read, Fact] = {}
        self._memory: Any = None
        self._refusal = ""
        """Why the server refused the last write for good: the machine takes back what it can."""
        self._refused_by: NatsError | None = None
        """What came of that write; None when somebody stops the procedure."""
        self._refused: set[Write] = set()
        self._final = False
        """It can only go on."""

    async def to_end(self) -> Result:
        while self._ports.clock.monotonic() < self._deadline:
            if self._halt.requested.is_set():
                if not self._halt.refusal:
                    return Later("stopped between two steps; the next pass goes on from where it stands")
                self._facts, self._refusal, self._refused_by = {}, self._halt.refusal, None
                self._halt.requested.clear()
            step = self._machine.step(Observation(self._now(), self._facts, self._refusal), self._memory)
            self._refusal = ""
            try:
                result = await self._take(step)
            except NatsError as error:
                result = await self._trouble(step, error)
            except (LeaseLost, Refused) as error:
                return result_of(error)
            if result is not None:
                return result
        return Later("the time was over; the next pass goes on from where it stands")

    async def _take(self, step: Step) -> Result | None:
        match step:
            case Ask(reads, memory, spare):
                answers = await asyncio.gather(*(self._answer(read, spare) for read in reads))
                self._learn_time(answers)
                self._facts, self._memory = dict(zip(reads, answers, strict=True)), memory
            case Do(write, title, memory, final):
                self._ports.observer.stepped(self._machine.key, title)
                keeps = kept(self._facts, step)
                given = {read: fact for read, fact in self._facts.items() if read not in keeps}
                self._facts, self._told_at = {}, 0.0
                self._halt.abortable = self._halt.abortable and not final
                await self._ports.writes.send(write, self._ordered(write, given))
                self._facts = keeps
                self._final = self._final or final
                self._memory = memory
                self._backoff.forget(self._machine.key)
            case Wait(until, what, memory):
                self._tell_of_waiting(what)
                self._facts, self._memory = {}, memory
                await self._sleep((until - self._now()) / _NANOSECONDS)
            case Done():
                return step
            case Abort("moved", message):
                return Later(message)
            case Abort(code, message):
                return No(f"{code}: {message}", self._refused_by if code == "refused" else None)
        return None

    async def _answer(self, read: Read, spare: tuple[Read, ...]) -> Fact:
        try:
            return await self._ports.reader.read(read)
        except AccessDenied as error:
            if read not in spare:
                raise
            return Unanswered(str(error))

    def _ordered(self, write: Write, given: dict[Read, Fact]) -> Order:
        """A step is judged by what it was computed from; while it holds a consumer still, nobody goes before it."""
        holds = isinstance(write, PauseConsumer) or any(isinstance(fact, dict) and fact.get("paused") for fact in given.values())
        rank = Rank.STILL if holds or self._final else Rank.STEP
        return replace(self._order, judge=StepJudge(self._ports.reader, given), rank=rank)

    def _tell_of_waiting(self, what: str) -> None:
        """What a step has been waited for so long that somebody may wonder; once."""
        now = self._ports.clock.monotonic()
        self._told_at = self._told_at or now + _LONG
        if now > self._told_at:
            self._ports.observer.stepped(self._machine.key, f"waiting: {what}")
            self._told_at = math.inf

    async def _trouble(self, step: Step, error: NatsError) -> Result | None:
        """A request failed: let the machine take back what it can, or forget everything and look again, as after a crash.

        What was not sent, because something has moved, is looked at again with all that is known.
        """
        moved = isinstance(error, Moved)
        if not (error.transient or moved):
            if not isinstance(step, Do) or step.write in self._refused:
                return result_of(error)
            self._refused.add(step.write)
            self._facts, self._memory, self._refusal, self._refused_by = {}, step.memory, str(error), error
            return None
        self._facts, self._memory = {}, self._memory if moved else None
        await self._sleep(self._backoff.failed(self._machine.key))
        return None

    async def _sleep(self, seconds: float) -> None:
        left = self._deadline - self._ports.clock.monotonic()
        sleep = asyncio.ensure_future(self._ports.clock.sleep(max(0.0, min(seconds, left))))
        halt = asyncio.ensure_future(self._halt.requested.wait())
        try:
            await asyncio.wait({sleep, halt}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleep.cancel()
            halt.cancel()

    def _now(self) -> int:
        return self._ports.clock.now() + self._ahead

    def _learn_time(self, answers: list[Fact]) -> None:
        """Every INFO carries the server's time."""
        for answer in answers:
            if isinstance(answer, dict) and answer.get("ts"):
                self._ahead = units.parse_time(answer["ts"]) - self._ports.clock.now()
