"""A plan as JSON.

Invariant: the shapes are a contract with programs outside; keys are added, never renamed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from reconciler.model.flow import with_domains
from reconciler.model.identity import API_VERSION, Key
from reconciler.plan.change import Author, Change, FieldDiff, Plan, Reason
from reconciler.procedures.machine import Description

Result = Literal["applied", "failed", "skipped", "unfinished"]
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Ended:
    """How one change of an apply ended."""

    result: Result
    error: str = ""


def plan_document(plan: Plan) -> Json:
    """The object `plan --format json` prints."""
    return _document(plan, [change_document(change) for change in plan.changes])


def apply_document(plan: Plan, ended: Mapping[Key, Ended]) -> Json:
    """The same with `result` and `error` per change; what has no result was skipped."""
    skipped = Ended("skipped")
    changes = []
    for change in plan.changes:
        end = ended.get(change.key, skipped)
        changes.append(change_document(change) | {"result": end.result, "error": end.error or None})
    return _document(plan, changes)


def _document(plan: Plan, changes: list[Json]) -> Json:
    return {
        "apiVersion": API_VERSION,
        "kind": "Plan",
        "fingerprint": plan.fingerprint,
        "owner": plan.rules.owner,
        "environment": plan.environment,
        "policy": plan.rules.policy,
        "server": {"version": plan.server.version, "apiLevel": plan.server.level},
        "summary": plan.summary,
        "unknown": [str(key) for key in plan.unknown],
        "refused": _codes(plan.refused),
        "refusals": [_reason(reason) for reason in plan.refused],
        "notes": list(plan.notes),
        "changes": changes,
    }


def change_document(change: Change) -> Json:
    """One entry of `changes`."""
    return {
        "key": str(change.key),
        "action": change.action.value,
        "cause": change.cause.value,
        "procedure": _procedure(change.procedure) if change.procedure else None,
        "touches": [str(key) for key in change.touches],
        "fields": [_field(diff) for diff in change.fields],
        "reasons": _codes(change.reasons),
        "explanations": [_reason(reason) for reason in change.reasons],
        "by": _author(change.by) if change.by else None,
        "notes": list(change.notes),
        "wanted": change.wanted.value if change.wanted else None,
    }


def _field(diff: FieldDiff) -> Json:
    return {"path": diff.path, "from": with_domains(diff.live), "to": with_domains(diff.declared)}


def _procedure(procedure: Description) -> Json:
    return {
        "name": procedure.name,
        "steps": list(procedure.steps),
        "pointOfNoReturn": procedure.point_of_no_return,
        "expectedDuplicates": procedure.expected_duplicates,
        "notes": list(procedure.notes),
    }


def _codes(reasons: tuple[Reason, ...]) -> list[str]:
    """What a program looks for; the words for people stand beside them."""
    return list(dict.fromkeys(reason.code for reason in reasons))


def _reason(reason: Reason) -> Json:
    return {"code": reason.code, "message": reason.message, "wayOut": reason.way_out}


def _author(author: Author) -> Json:
    return {"client": author.client, "user": author.user, "at": author.at}
