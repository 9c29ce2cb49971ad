"""The name of a plan: two plans with one fingerprint would do the same to the same."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from reconciler.model.normal import canonical
from reconciler.plan.change import Change, Rules
from reconciler.procedures.move_subject import MoveSubject


def _contents(change: Change) -> list[str]:
    """All that the change is about, also what it does beside its own key."""
    beside = [str(key) for key in change.touches]
    if isinstance(change.machine, MoveSubject):
        beside += [target.config.decode() for target in change.machine.streams]
    return [change.config.decode(), change.live_config.decode(), *beside]


def fingerprint(rules: Rules, changes: Iterable[Change]) -> str:
    """Covers owner, policy flags, and each change's key, action, desired and live configuration; never counts."""
    flags = {
        "owner": rules.owner,
        "policy": rules.policy,
        "adopt": rules.adopt,
        "allow": sorted(f"{what}={key}" for what, key in rules.allow),
        "targets": sorted(str(key) for key in rules.targets),
        **({"take_from": sorted(rules.take_from)} if rules.take_from else {}),
    }
    rows = [[str(change.key), change.action.value, *_contents(change)] for change in changes]
    payload = canonical({"flags": flags, "changes": rows})
    return f"sha256:{hashlib.sha256(payload).hexdigest()}"
