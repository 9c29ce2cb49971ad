"""From a plan's flags to its rules."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.cli.flags.groups import PlanFlags
from reconciler.errors import UsageError
from reconciler.model.identity import Key
from reconciler.plan.change import Rules

ALLOWED = ("recreate", "data-loss", "position-loss", "replicas", "delete")
"""What `--allow` can permit."""


def rules_of(flags: PlanFlags, owner: str) -> Rules:
    """The rules; raises UsageError for a flag that makes no sense."""
    if flags.prune and flags.policy not in (None, "sync"):
        msg = f"--prune means --policy sync, but the policy is {flags.policy}: give one of them"
        raise UsageError(msg)
    if flags.take_from and not (flags.adopt and flags.target):
        msg = f"--take-from {flags.take_from[0]} takes over what is named: give --adopt and a --target for each"
        raise UsageError(msg)
    return Rules(
        owner=owner,
        policy="sync" if flags.prune else flags.policy or "upsert-only",
        adopt=flags.adopt,
        allow=frozenset(_allowed(flags.allow)),
        max_change_percent=flags.max_change_percent,
        targets=frozenset(_key("--target", text) for text in flags.target),
        take_from=frozenset(flags.take_from),
    )


def _allowed(entries: list[str]) -> Iterator[tuple[str, str]]:
    for entry in entries:
        what, _, key = entry.partition("=")
        if what not in ALLOWED or not key:
            msg = f"--allow {entry}: expected WHAT=KEY, where WHAT is one of {', '.join(ALLOWED)}"
            raise UsageError(msg)
        yield what, str(_key("--allow", key))


def _key(flag: str, text: str) -> Key:
    try:
        return Key.parse(text)
    except ValueError as error:
        msg = f"{flag}: {error}"
        raise UsageError(msg) from error
