"""Facts as the fields of a log line or an event: short, in plain values, nothing that is empty.

Invariant: the same thing has the same field name everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reconciler.errors import Problem
from reconciler.plan.change import Author, Change

SHOWN = 20
"""So many fields or problems are named one by one."""

Fields = dict[str, Any]


def change_fields(change: Change) -> Fields:
    """What a change is about, and whose doing it was."""
    procedure = change.procedure
    fields = {
        "resource": str(change.key),
        "action": change.action.value,
        "wanted": change.wanted.value if change.wanted else None,
        "procedure": procedure.name if procedure else None,
        "cause": change.cause.value,
        "fields": [diff.path for diff in change.fields[:SHOWN]],
        "reasons": [str(reason) for reason in change.reasons],
        **author_fields(change.by),
    }
    return filled(fields)


def author_fields(author: Author | None) -> Fields:
    """Who did it, as far as that is known."""
    return filled({"client": author.client, "user": author.user}) if author else {}


def problem_fields(problem: Problem) -> Fields:
    """A fault of the manifests."""
    names = ("file", "line", "column", "code", "message", "field", "severity")
    return filled({name: getattr(problem, name) for name in names})


def filled(fields: Mapping[str, Any]) -> Fields:
    """Without what says nothing."""
    return {name: value for name, value in fields.items() if value not in (None, "", [])}
