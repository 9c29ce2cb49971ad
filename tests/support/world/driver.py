"""Runs a step machine against the model server, and kills it where the test says.

Invariant: a machine that is started again knows nothing but what the server shows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from reconciler.errors import ApiError
from reconciler.procedures.looks import Looking
from reconciler.procedures.machine import Abort, Ask, Do, Done, Observation, Procedure, Wait, kept
from reconciler.procedures.requests import Fact, Read, Write
from tests.support.world.server import ModelServer

MAX_STEPS = 400


@dataclass
class Run:
    """What happened."""

    writes: list[Write] = field(default_factory=list)
    steps: int = 0
    end: Done | Abort | None = None


@dataclass(frozen=True)
class Crash:
    """Forget everything before or after the n-th write, or before the n-th step (counted from 0)."""

    write: int = -1
    executed: bool = True
    step: int = -1
    stall: int = -1
    """Forget nothing, but be frozen just before the n-th write."""
    silence: int = 0
    """How long nobody comes back."""


NO_CRASH = Crash()


def run(
    machine: Procedure,
    server: ModelServer,
    crash: Crash = NO_CRASH,
    between: Callable[[], None] = lambda: None,
) -> Run:
    """Step the machine to its end; `between` is called before each step (workers, publishers)."""
    machine, done, failure = Looking(machine), Run(), ""
    memory: Any = None
    facts: dict[Read, Fact] = {}
    while done.steps < MAX_STEPS:
        if done.steps == crash.step:
            memory, facts, failure = None, {}, ""
            server.now += crash.silence
        between()
        done.steps += 1
        step = machine.step(Observation(server.now, facts, failure), memory)
        known, failure, facts = facts, "", {}
        if isinstance(step, Done | Abort):
            done.end = step
            return done
        memory = step.memory
        if isinstance(step, Ask):
            facts = _answers(server, step.reads)
        elif isinstance(step, Wait):
            assert step.until > server.now, "waiting for the past"
            server.now = step.until
        else:
            crashing = len(done.writes) == crash.write
            if len(done.writes) == crash.stall:
                server.now += crash.silence
                between()
            done.writes.append(step.write)
            if not crashing or crash.executed:
                failure = _execute(server, step)
            facts = {} if failure or crashing else kept(known, step)
            if crashing:
                memory, failure = None, ""
                server.now += crash.silence
    msg = f"no end after {MAX_STEPS} steps: {done.writes[-6:]}"
    raise AssertionError(msg)


def _answers(server: ModelServer, reads: tuple[Read, ...]) -> dict[Read, Fact]:
    return {read: server.read(read) for read in reads}


def _execute(server: ModelServer, step: Do) -> str:
    server.now += 10**6
    try:
        server.write(step.write)
    except ApiError as refused:
        return str(refused)
    return ""
