"""What became of a change: done, later, no, or unsure; and what that means for the whole apply."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum, IntEnum, StrEnum

from reconciler.errors import (
    AccessDenied,
    LeaseLost,
    Moved,
    NatsError,
    NoAnswer,
    NoResponders,
    NotSent,
    ReconcilerError,
    Refused,
    Unreachable,
    Unsettled,
)
from reconciler.plan.change import Change
from reconciler.procedures.machine import Done

_OUT_OF_REACH = (AccessDenied, NoResponders, NotSent, Unreachable)
_NOT_TRIED = (NotSent, Moved, Unsettled)


class After(Enum):
    """What has to come before something is tried again."""

    A_WHILE = "a little time"
    OTHERS = "what it waits for"
    A_TURN = "room beside what is under way"
    NOTHING = "nothing: something else is wanted by now"
    A_LOOK = "a look at everything"


@dataclass(frozen=True, slots=True)
class Later:
    """It is not done, and can be without any change of the manifest or of what is live."""

    why: str
    after: After = After.A_WHILE
    cause: ReconcilerError | None = None


@dataclass(frozen=True, slots=True)
class No:
    """It is not done, and cannot be before the manifest or what is live changes."""

    why: str
    cause: ReconcilerError | None = None


@dataclass(frozen=True, slots=True)
class Unsure:
    """Nobody answered: a look has to show whether it is done."""

    why: str
    cause: NoAnswer


Result = Done | Later | No | Unsure


def result_of(error: ReconcilerError) -> Result:
    """What an error means for what was tried."""
    why = str(error)
    match error:
        case NoAnswer():
            return Unsure(why, error)
        case Refused():
            return Later(why, After.NOTHING, error)
        case LeaseLost() | NotSent():
            return Later(why, After.A_LOOK, error)
        case Unsettled():
            return Later(why, After.OTHERS, error)
        case Moved():
            return Later(why, After.A_WHILE, error)
        case NatsError(transient=True):
            return Later(why, After.A_WHILE, error)
    return No(why, error)


class Word(StrEnum):
    """How a change ended, as users read it."""

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


@dataclass(slots=True)
class Outcome:
    """The end of one change; never changed, but not frozen, which would cost half a microsecond for each."""

    change: Change
    result: Result
    seconds: float = 0.0

    @property
    def word(self) -> Word:
        """How it ended, in one word."""
        match self.result:
            case Done():
                return Word.APPLIED
            case Later(after=After.OTHERS, cause=None):
                return Word.SKIPPED
            case Later(cause=NatsError() as cause) if not isinstance(cause, _NOT_TRIED):
                return Word.FAILED
            case Later() | Unsure():
                return Word.UNFINISHED
        return Word.FAILED

    @property
    def why(self) -> str:
        """Why not, for the user; empty when applied."""
        return "" if isinstance(self.result, Done) else self.result.why

    @property
    def cause(self) -> ReconcilerError | None:
        """The error behind it, if there was one."""
        return None if isinstance(self.result, Done) else self.result.cause

    @property
    def notes(self) -> tuple[str, ...]:
        """What a procedure had to say at its end."""
        return self.result.notes if isinstance(self.result, Done) else ()


def verdict(outcomes: Collection[Outcome]) -> Verdict:
    """In place, partly, refused (all there was to do is blocked), out of reach, or failed otherwise."""
    judged = [outcome for outcome in outcomes if not outcome.change.suspended]
    trouble = [outcome for outcome in judged if not isinstance(outcome.result, Done)]
    if not trouble:
        return Verdict.IN_PLACE
    if len(trouble) < len(judged):
        return Verdict.PARTLY
    tried = [outcome for outcome in trouble if outcome.word is not Word.SKIPPED]
    if not tried:
        return Verdict.REFUSED  # everything was blocked, or waits for what is
    if all(isinstance(outcome.cause, _OUT_OF_REACH) for outcome in tried):
        return Verdict.DENIED
    return Verdict.FAILED
