"""What a step machine is.

A procedure is a frozen value (its target) with one pure method, `step`. The engine calls it again and again:

    observation ──▶ step ──▶ Ask(reads)      read these, concurrently, then call again with the facts
                            Do(write)        send exactly this one write, then call again (facts are forgotten, but what it keeps)
                            Wait(until)      call again at that time (nanoseconds since the epoch, server time)
                            Done()           everything is in place
                            Abort(reason)    stopped before the point of no return, everything as it was or safe to retry

Invariants: one write at a time, and what it concerns is read again after it; time is data; nothing but the markers on the server
and `memory` connects two steps, and a machine that lost its memory (a crash) reaches the same end from the markers alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from reconciler.model.identity import Key
from reconciler.procedures.requests import Fact, Read, Write


@dataclass(frozen=True, slots=True)
class Observation:
    """What a step may look at: the time, and the answers to the last Ask."""

    now: int
    facts: Mapping[Read, Fact]
    failure: str = ""
    """Why the last Do was refused for good; the machine then takes back what it can, and aborts."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Read these and come back."""

    reads: tuple[Read, ...]
    memory: Any = None
    spare: tuple[Read, ...] = ()
    """Those of them that this user may not be allowed: they are Unanswered then."""


@dataclass(frozen=True, slots=True)
class Do:
    """Send one write; `title` is the line a user sees."""

    write: Write
    title: str
    memory: Any = None
    final: bool = False
    """The point of no return: once this is sent, the procedure can only go on."""
    keeps: tuple[Read, ...] = ()
    """What was read, but not for this: it counts on once the write has gone well. All else was what it was computed from."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do before `until`; `title` says what is being waited for."""

    until: int
    title: str
    memory: Any = None


@dataclass(frozen=True, slots=True)
class Done:
    """Everything is in place; `notes` are worth telling (ranges, duplicates)."""

    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Abort:
    """Stopped safely; `code` is one of the reason codes of a blocked change."""

    code: str
    message: str


Step = Ask | Do | Wait | Done | Abort


def kept(facts: Mapping[Read, Fact], step: Do) -> dict[Read, Fact]:
    """What still counts once a write has gone well."""
    return {read: facts[read] for read in step.keeps if read in facts}


class Procedure(Protocol):
    """One change of more than one request."""

    @property
    def name(self) -> str:
        """As users know it, e.g. `filter-add`."""
        ...

    @property
    def key(self) -> Key:
        """The resource whose change this is."""
        ...

    @property
    def touches(self) -> tuple[Key, ...]:
        """Every other key nobody else may act on meanwhile."""
        ...

    def describe(self) -> Description:
        """What the plan prints."""
        ...

    def step(self, observation: Observation, memory: Any) -> Step:  # noqa: ANN401 - each machine has its own memory
        """The next thing to do."""
        ...


@dataclass(frozen=True, slots=True)
class Description:
    """A procedure as a plan shows it."""

    name: str
    steps: tuple[str, ...] = field(default_factory=tuple)
    point_of_no_return: str = ""
    expected_duplicates: int = 0
    notes: tuple[str, ...] = ()
    again: str = "delivered again"
    """What becomes of a duplicate."""
