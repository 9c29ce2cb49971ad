"""Every error the product raises on purpose, as one tree.

ReconcilerError
├── UsageError              the command line itself is wrong                       exit 64
├── InvalidInput            manifests or input files are wrong, with every Problem   exit 4
├── Refused                 a guard, a gate or another writer said no; nothing written exit 3
│   └── LeaseHeld           another process holds the write lease
├── LeaseLost               the write lease was ours and is no longer: write nothing more
└── NatsError               anything about talking to JetStream
    ├── Unreachable         no server, wrong credentials, TLS mistake                exit 6
    ├── AccessDenied        the account may not publish or subscribe to a subject    exit 6
    ├── NotSent             the request never left this process: safe to try again
    ├── NoAnswer            sent, but nothing came back: the outcome is unknown
    ├── Unsettled           an earlier change there has no answer yet: not sent, safe to try again
    ├── TooLarge            the request is larger than the server takes; it was not sent
    ├── NoResponders        nobody serves the subject: JetStream or the domain is away, nothing was executed
    ├── ApiError            JetStream answered with an error
    ├── Rewritten           JetStream stored another configuration than it was sent
    └── Moved               live state is no longer what the plan was made for

Invariant: silence is never absence. Only an `ApiError` whose `absent` is true says that something is not there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One fault in the input, printable as `file:line:column: code: message`."""

    file: str
    line: int
    column: int
    code: str
    message: str
    field: str = ""
    severity: str = "error"

    def __str__(self) -> str:
        where = f" ({self.field})" if self.field else ""
        return f"{self.file}:{self.line}:{self.column}: {self.code}: {self.message}{where}"


class ReconcilerError(Exception):
    """Base of every expected error: its text is for the user, never a traceback."""


class UsageError(ReconcilerError):
    """The command was called in a way that cannot work."""


class InvalidInput(ReconcilerError):
    """The manifests (or another input file) are wrong; carries every problem found, not the first."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        super().__init__("\n".join(str(problem) for problem in problems))


class Refused(ReconcilerError):
    """A guard refused the whole pass; nothing was written."""

    def __init__(self, reasons: tuple[str, ...]) -> None:
        self.reasons = reasons
        super().__init__("\n".join(reasons))


class LeaseHeld(Refused):
    """Another process holds the write lease; the reason names it."""


class LeaseLost(ReconcilerError):
    """This process may no longer write: its lease ran out, was taken, or could not be renewed in time."""


class NatsError(ReconcilerError):
    """Something about the conversation with NATS went wrong."""

    transient = True
    """Worth trying again without any change in manifests or live state."""


class Unreachable(NatsError):
    """No connection could be made: no server there, credentials refused, TLS failed."""


class AccessDenied(NatsError):
    """The server refused a publish or a subscription of ours; `subject` is what has to be granted."""

    transient = False

    def __init__(self, operation: str, subject: str) -> None:
        self.operation = operation
        self.subject = subject
        super().__init__(f'permission denied: {operation} "{subject}"; grant it to this user ({_printed_by(operation, subject)})')


_LOOKS = re.compile(r"(^|\.)(INFO|STREAM\.LIST|CONSUMER\.LIST\..+|STREAM\.MSG\.GET\.(?!KV_reconciler-).+)$")
_OF_PROCEDURES = re.compile(r"\.(CONSUMER\.(PAUSE|RESET|DELETE)|STREAM\.PURGE|(STREAM|CONSUMER)\.INFO)\.|\._reconciler_hold_")
_DELETES = re.compile(r"\.(STREAM|CONSUMER)\.DELETE\.")


def _printed_by(operation: str, subject: str) -> str:
    """Which mode of `permissions` prints this subject, and what else that user may be for."""
    a_daemon = "for a daemon: `--mode daemon`"
    if operation == "subscribe" or _LOOKS.search(subject):
        all_of_it = "`reconciler permissions -f PATH --mode read` prints all that it needs to plan; to apply: `--mode procedures`"
    elif _OF_PROCEDURES.search(subject):
        all_of_it = "`reconciler permissions -f PATH --mode procedures` prints all that it needs to apply with procedures"
        all_of_it += "; only to plan: `--mode read`" if ".INFO." in subject else ""
    else:
        all_of_it = "`reconciler permissions -f PATH --mode apply` prints all that it needs to apply"
        all_of_it += "; with procedures: `--mode procedures`"
    pruning = "; to delete what is no longer declared: `--mode sync` beside it" if _DELETES.search(subject) else ""
    return f"{all_of_it}; {a_daemon}{pruning}"


class NotSent(NatsError):
    """The request was dropped before it was sent, because the connection was down."""


class NoAnswer(NatsError):
    """The request was sent and nothing came back in time; re-read before doing anything else."""


class Unsettled(NatsError):
    """An earlier change in the same place has no answer yet, so nothing else is changed there; nothing was sent."""


class TooLarge(NatsError):
    """The request is larger than the server takes; nothing was sent."""

    transient = False

    def __init__(self, key: object, size: int, most: int) -> None:
        super().__init__(f"too-large: {key} takes {size:,} bytes to write, and the server takes {most:,} (max_payload)")


class NoResponders(NatsError):
    """The server said that nobody serves the subject: JetStream is off, or the domain is away. Nothing was executed."""


CONSUMER_NOT_FOUND = 10014
MESSAGE_NOT_FOUND = 10037
STREAM_NOT_FOUND = 10059
_ABSENT = frozenset({CONSUMER_NOT_FOUND, MESSAGE_NOT_FOUND, STREAM_NOT_FOUND})
# "Not now": no room, no memory or storage left, cluster or peers not (yet) available, storage still recovering.
_TRANSIENT = frozenset(
    {10002, 10004, 10005, 10006, 10008, 10009, 10023, 10028, 10045, 10047, 10068, 10076, 10118, 10119, 10124, 10194, 10195, 10202}
)


class ApiError(NatsError):
    """JetStream answered with an error object."""

    def __init__(self, code: int, err_code: int, description: str, request: str = "") -> None:
        self.code = code
        self.err_code = err_code
        self.description = description
        self.request = request
        self.transient = code == 503 or err_code in _TRANSIENT  # noqa: PLR2004 - HTTP-like "unavailable"
        at = f"{request}: " if request else ""
        super().__init__(f"{at}{description} ({code}/{err_code})")

    @property
    def absent(self) -> bool:
        """True only when the server said that the thing itself is not there."""
        return self.err_code in _ABSENT


class Rewritten(NatsError):
    """The server accepted a configuration, but dropped or rewrote fields of it without saying so."""

    transient = False


class Moved(NatsError):
    """Somebody changed the resource since it was planned; what was judged is not what is there."""

    transient = False
