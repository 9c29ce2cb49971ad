"""Exit codes, and which error ends with which.

Invariant: this table is the contract; the documentation repeats it and a test compares the two.
"""

from __future__ import annotations

from enum import IntEnum

from reconciler.errors import (
    AccessDenied,
    ApiError,
    InvalidInput,
    LeaseLost,
    NatsError,
    ReconcilerError,
    Refused,
    UsageError,
)


class ExitCode(IntEnum):
    """What the shell sees."""

    OK = 0
    FAILED = 1
    CHANGES = 2
    REFUSED = 3
    INVALID = 4
    PARTLY = 5
    UNREACHABLE = 6
    USAGE = 64
    INTERRUPTED = 130


DIFFERENCES = ExitCode.FAILED
"""`diff` says "there are differences" as diff(1) does."""

MEANINGS = {
    ExitCode.OK: "fine; `plan` also when there are changes; `diff` when there are none; `apply` when all is in place",
    ExitCode.FAILED: "failed otherwise; `diff`: differences",
    ExitCode.CHANGES: "`plan --detailed-exitcode`: any change or blocked resource",
    ExitCode.REFUSED: "refused by a guard or gate, or everything there was to do is blocked: nothing was written",
    ExitCode.INVALID: "invalid manifests or input",
    ExitCode.PARTLY: "partly applied: something failed, was blocked (`--continue`) or unfinished after some success",
    ExitCode.UNREACHABLE: "NATS unreachable or permission denied",
    ExitCode.USAGE: "usage (also: `apply` without `--yes` and no terminal)",
    ExitCode.INTERRUPTED: "interrupted",
}

_BY_ERROR: tuple[tuple[type[ReconcilerError], ExitCode], ...] = (
    (UsageError, ExitCode.USAGE),
    (InvalidInput, ExitCode.INVALID),
    (Refused, ExitCode.REFUSED),
    (LeaseLost, ExitCode.FAILED),
    (AccessDenied, ExitCode.UNREACHABLE),
    (ApiError, ExitCode.FAILED),  # it was reached, and it answered
    (NatsError, ExitCode.UNREACHABLE),
)


def exit_code(error: ReconcilerError) -> ExitCode:
    """The exit code of an error; the first matching row counts."""
    return next((code for kind, code in _BY_ERROR if isinstance(error, kind)), ExitCode.FAILED)
