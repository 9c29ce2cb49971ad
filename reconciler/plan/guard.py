"""The brake: refusals that stop the whole pass, and blocks that spread to what depends on a blocked resource."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import orjson

from reconciler.model.flow import copies, origins
from reconciler.model.identity import Key
from reconciler.plan.change import Action, Cause, Change, Reason
from reconciler.plan.scene import Scene

MAX_CHANGE_PERCENT = 30
FEW = 10
"""Below this many owned resources a percentage says nothing."""

_COUNTED = frozenset({Cause.MANIFEST, Cause.PRUNE})
_COUNTS = {"deleted or recreated": (Action.DELETE, Action.RECREATE), "updated": (Action.UPDATE,)}
_COUNTED_ACTIONS = frozenset(action for actions in _COUNTS.values() for action in actions)


def owned(scene: Scene) -> int:
    """How many streams and consumers carry our marker."""
    seen = chain(scene.live.streams.values(), *(consumers.values() for consumers in scene.live.consumers.values()))
    return sum(resource.owner == scene.rules.owner for resource in seen)


def nothing_declared(scene: Scene) -> Iterator[Reason]:
    """Nothing at all may be written when the manifests have gone."""
    if scene.desired.resources or scene.desired.held_back:
        return
    count = owned(scene)
    if count:
        message = f"nothing is declared, but {count:,} resources belong to {scene.rules.owner!r}"
        yield Reason("empty", message, "check the path; to remove them, declare tombstones (`state: absent`)")


def too_much(scene: Scene, changes: Iterable[Change], fingerprint: str) -> Iterator[Reason]:
    """Why nothing at all may be written: too much of everything would change."""
    if scene.desired.governance.approve == fingerprint:
        return
    counted = [change for change in changes if change.cause in _COUNTED and change.action in _COUNTED_ACTIONS]
    if not counted:
        return
    limit = MAX_CHANGE_PERCENT if scene.rules.max_change_percent is None else scene.rules.max_change_percent
    count = owned(scene)
    if count < FEW:
        return
    for what, actions in _COUNTS.items():
        number = sum(_size(scene, change) for change in counted if change.action in actions)
        if number * 100 > count * limit:
            share = f"{number:,} of {count:,} owned resources would be {what} ({number * 100 // count} %, more than {limit} %)"
            way_out = f"raise --max-change-percent, or approve it in a Policy: `approve: {fingerprint}`"
            yield Reason("mass-change", share, way_out)


def _size(scene: Scene, change: Change) -> int:
    """How many owned resources a change is about: with a stream go its consumers."""
    if not change.key.is_stream or change.action is Action.UPDATE:
        return 1
    return 1 + sum(consumer.owner == scene.rules.owner for consumer in scene.live.consumers_of(change.key).values())


def spread(changes: Iterable[Change]) -> list[Change]:
    """The changes, with those blocked that need something which is blocked itself."""
    result = list(changes)
    gone = {
        change.key.stream_key: change.key
        for change in result
        if change.action is Action.BLOCKED and change.wanted in (Action.CREATE, Action.RECREATE) and change.key.is_stream
    }
    while gone:
        found = {}
        for place, change in enumerate(result):
            if change.action in (Action.BLOCKED, Action.DELETE):
                continue
            cause = next((gone[key] for key in _needs(change) if key in gone), None)
            if cause is not None:
                reason = Reason("depends-on", f"it needs {cause}, which is blocked", f"see {cause}")
                result[place] = change.blocked(reason)
                if change.key.is_stream and change.action is Action.CREATE:
                    found[change.key.stream_key] = change.key
        gone = found
    return _waiting(result)


def _waiting(changes: list[Change]) -> list[Change]:
    """The changes, with those blocked whose needs are not part of the plan, or blocked themselves."""
    possible = {change.key for change in changes if change.action is not Action.BLOCKED}
    while True:
        stuck = {c.key: key for c in changes if c.key in possible for key in c.needs if key not in possible}
        if not stuck:
            return changes
        possible -= stuck.keys()
        changes = [_depends(change, stuck[change.key]) if change.key in stuck else change for change in changes]


def _depends(change: Change, needed: Key) -> Change:
    reason = Reason("depends-on", f"it needs {needed}, which is blocked or left out", f"see {needed}")
    return change.blocked(reason)


def _needs(change: Change) -> list[Key]:
    if change.key.kind == "Consumer":
        return [change.key.stream_key]
    return origins(orjson.loads(change.config), change.key.domain) if copies(change.config) else []
