"""Policies are filters on the plan, not flags inside apply.

| | create-only | upsert-only | sync |
|---|---|---|---|
| create, adopt | yes | yes | yes |
| update, procedure, recreate | no | yes | yes |
| delete by tombstone | no | yes | yes |
| delete by absence | no | no | yes |
"""

from __future__ import annotations

from reconciler.plan.change import Action, Cause, Change

POLICIES = ("create-only", "upsert-only", "sync")

_CREATE_ONLY = frozenset({Action.CREATE, Action.ADOPT})


def permits(policy: str, change: Change) -> bool:
    """Whether this policy lets the change be part of the plan."""
    action = change.wanted or change.action
    if action is Action.BLOCKED:
        return True  # it would have been nothing: it only says what is wrong
    if policy == "create-only":
        return action in _CREATE_ONLY
    if policy == "upsert-only":
        return change.cause is not Cause.PRUNE
    return True
