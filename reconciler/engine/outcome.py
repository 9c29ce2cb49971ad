"""What became of a change, and what that means for the whole apply."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from reconciler.errors import AccessDenied, NoResponders, NotSent, ReconcilerError, Unreachable
from reconciler.plan.change import Change

_OUT_OF_REACH = (AccessDenied, NoResponders, NotSent, Unreachable)


class Result(StrEnum):
    """How a change ended in this pass."""

    APPLIED = "applied"
    FAILED = "failed"
    SKIPPED = "skipped"
    """Not tried: blocked, or something it depends on did not get there."""
    UNFINISHED = "unfinished"
    """Begun or due, but the time was over; the next pass goes on."""


class Verdict(IntEnum):
    """How an apply ended; the value is the exit code."""

    IN_PLACE = 0
    FAILED = 1
    REFUSED = 3
    PARTLY = 5
    DENIED = 6


@dataclass(frozen=True, slots=True)
class End:
    """How something ended, and what there is to say about it."""

    result: Result
    error: str = ""
    """Why not, for the user; empty when applied."""
    cause: ReconcilerError | None = None
    """The error behind it, if there was one."""
    notes: tuple[str, ...] = ()
    """What a procedure had to say at its end."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of one change."""

    change: Change
    end: End
    seconds: float = 0.0

    @property
    def result(self) -> Result:
        """How it ended."""
        return self.end.result

    @property
    def error(self) -> str:
        """Why not, for the user; empty when applied."""
        return self.end.error

    @property
    def notes(self) -> tuple[str, ...]:
        """What a procedure had to say at its end."""
        return self.end.notes


def verdict(outcomes: Collection[Outcome]) -> Verdict:
    """In place, partly, refused (all there was to do is blocked), out of reach, or failed otherwise."""
    judged = [outcome for outcome in outcomes if not outcome.change.suspended]
    trouble = [outcome for outcome in judged if outcome.result is not Result.APPLIED]
    if not trouble:
        return Verdict.IN_PLACE
    if len(trouble) < len(judged):
        return Verdict.PARTLY
    tried = [outcome for outcome in trouble if outcome.result is not Result.SKIPPED]
    if not tried:
        return Verdict.REFUSED  # everything was blocked, or waits for what is
    if all(isinstance(outcome.end.cause, _OUT_OF_REACH) for outcome in tried):
        return Verdict.DENIED
    return Verdict.FAILED
