"""Which changes of a plan are tried now, and why the others have to wait.

| waits | until |
|---|---|
| blocked | the manifests or the live state change |
| this process may not write (follower, dry run, refused plan) | it may |
| part of what too much is wanted of | less is wanted, or somebody approves it |
| removed for not being declared, while manifests change | they have been the same for a while |
| drift, with `--drift=report` | somebody settles it |
| owned by a procedure | that has ended, which looks at it again |
| being written to by another pass | a second later |
| failed before | its backoff is over |
| fought over | its pause is over |
| aborted by request | retried by request, or declared otherwise |

Invariant: a change that only gives context (a partner in the same stream) is never tried by the pass of a hint.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from reconciler.engine.daemon.state import DaemonState
from reconciler.model.identity import Key
from reconciler.plan.bounds.guard import stops
from reconciler.plan.change import Action, Cause, Change


def divide(state: DaemonState, changes: Iterable[Change], keys: Collection[Key]) -> tuple[list[Change], dict[Key, str]]:
    """The changes to try now, and for the others (by live key) what to tell their dependants; no `keys`: a full pass."""
    due: list[Change] = []
    waiting: dict[Key, str] = {}
    may_write, prunes_wait = state.may_write, state.prunes_wait() > 0
    if not keys:
        state.prunes_waiting = 0
    for change in changes:
        if keys and not _meant(change, keys):
            continue
        reason = _waits(state, change, may_write=may_write)
        if not reason and prunes_wait and change.cause is Cause.PRUNE:
            reason = "waits until the manifests have not changed for a while"
            state.prunes_waiting += 1
            state.board.held(change.key, reason)
        if reason:
            waiting[change.key.live_key] = reason
        else:
            due.append(change)
    return due, waiting


def _meant(change: Change, keys: Collection[Key]) -> bool:
    """Whether the hint was about it: itself, its stream, or a partner it moves with."""
    mine = (change.key, change.key.stream_key, *change.touches)
    return any(key.live_key in keys for key in mine)


def reported_only(state: DaemonState, change: Change) -> bool:
    """Whether others made this difference, and it is left to them."""
    if state.options.repair_drift:
        return False
    return change.cause is Cause.DRIFT or (change.cause is Cause.MISSING and was_ours(state, change))


def was_ours(state: DaemonState, change: Change) -> bool:
    """Whether this process has seen it as ours before."""
    return change.key.live_key in state.recollection.memory.owned


def _waits(state: DaemonState, change: Change, *, may_write: bool) -> str:
    if change.action is Action.BLOCKED:
        return "is blocked"
    if not may_write or reported_only(state, change):
        return "is left as it is"
    if stops(state.stopped, change):
        return "is part of what too much is wanted of"
    if state.keeper.owns_any(change.members):
        return "is being worked on"
    if state.busy and not state.busy.isdisjoint(change.members):
        state.agenda.worked_on(change.key.live_key)
        return "is being worked on"
    if change.machine is not None and change.key.live_key in state.aborted:
        return "was aborted by request"
    return state.agenda.not_now(change)
