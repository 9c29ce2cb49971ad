"""The words every rendering shares: what is done to a resource, why, by whom, and what it adds up to."""

from __future__ import annotations

from reconciler.plan.change import Action, Cause, Change, Plan
from reconciler.procedures.machine import Description
from reconciler.render.values import counted, printable

SYMBOLS = {
    Action.CREATE: "+",
    Action.UPDATE: "~",
    Action.ADOPT: "=",
    Action.PROCEDURE: ">",
    Action.RECREATE: "-/+",
    Action.DELETE: "-",
    Action.BLOCKED: "!",
}
DESTRUCTIVE = frozenset({Action.RECREATE, Action.DELETE})
_ALWAYS_COUNTED = ("create", "update", "delete")
_COUNTED = {
    "create": "to create",
    "update": "to update",
    "adopt": "to adopt",
    "procedure": "by procedure",
    "recreate": "to recreate",
    "delete": "to delete",
}
_CAUSES = {
    Cause.MANIFEST: "manifest changed",
    Cause.DRIFT: "drift",
    Cause.MISSING: "missing",
    Cause.PRUNE: "no longer declared",
    Cause.UNKNOWN: "not seen",
}


def headline(change: Change) -> str:
    """What is done and why, beside the key: `update, drift by nats CLI (bob) at …`."""
    unseen = any(reason.code == "unknown" for reason in change.reasons)  # silence does not say that it is missing
    if change.cause is Cause.UNKNOWN or (change.cause is Cause.MISSING and (change.action is Action.CREATE or unseen)):
        return _doing(change)
    return f"{_doing(change)}, {cause(change)}"


def _doing(change: Change) -> str:
    if change.action is Action.BLOCKED and change.wanted:
        return f"blocked ({change.wanted.value})"
    procedure = change.procedure
    if change.action is Action.PROCEDURE and procedure:
        return f"procedure {procedure.name}"
    return change.action.value


def cause(change: Change) -> str:
    """Why there is a difference, with its author where one is known."""
    text = _CAUSES[change.cause]
    if change.by is None:
        return text
    user = f" ({printable(change.by.user)})" if change.by.user else ""
    at = f" at {printable(change.by.at)}" if change.by.at else ""
    return f"{text} by {printable(change.by.client) or 'an unnamed client'}{user}{at}"


def counts(plan: Plan) -> str:
    """`3 to create, 1 to update, 0 to delete (1 blocked)`."""
    summary = plan.summary
    shown = [f"{summary[name]} {words}" for name, words in _COUNTED.items() if summary[name] or name in _ALWAYS_COUNTED]
    blocked = f" ({summary['blocked']} blocked)" if summary["blocked"] else ""
    return ", ".join(shown) + blocked


def duplicates(procedure: Description) -> str:
    """How many messages arrive a second time."""
    count = procedure.expected_duplicates
    return f"{counted(count, 'message')} will be {procedure.again}" if count else f"no message is {procedure.again}"


def own_notes(change: Change) -> tuple[str, ...]:
    """The notes that are not told with its procedure."""
    told = change.procedure.notes if change.procedure else ()
    return tuple(note for note in change.notes if note not in told)
