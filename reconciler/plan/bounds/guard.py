"""The brake: refusals of a whole plan or of what it wants too much of, and blocks that spread to what depends on a blocked one.

Counted is what the manifests want, whether it is possible or not: that most of it is blocked makes the rest no wiser.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

import orjson

from reconciler.model.flow import copies, origins
from reconciler.model.identity import Key
from reconciler.plan.change import Action, Cause, Change, Mass, Reason, Wish
from reconciler.plan.scene import Scene

MAX_CHANGE_PERCENT = 30
FEW = 10
"""Below this many owned resources a percentage says nothing."""

_COUNTED = frozenset({Cause.MANIFEST, Cause.PRUNE})
_MASS = {Action.DELETE: Mass.REMOVED, Action.RECREATE: Mass.REMOVED, Action.UPDATE: Mass.UPDATED}


def owned(scene: Scene) -> int:
    """How many streams and consumers are ours: what is not declared has to say so by its name, or anybody could make it many."""
    owner, streams = scene.rules.owner, scene.desired.streams
    found = sum(seen.owner == owner and (key in streams or seen.named) for key, seen in scene.live.streams.items())
    for stream, consumers in scene.live.consumers.items():
        declared = scene.desired.consumers.get(stream, {})
        found += sum(seen.owner == owner and (name in declared or seen.named) for name, seen in consumers.items())
    return found


def nothing_declared(scene: Scene) -> Iterator[Reason]:
    """Nothing at all may be written when the manifests have gone, whether our marks have names or not."""
    if scene.desired.resources or scene.desired.held_back:
        return
    live = scene.live
    everything = (*live.streams.values(), *(seen for consumers in live.consumers.values() for seen in consumers.values()))
    count = sum(seen.owner == scene.rules.owner for seen in everything)
    if count:
        message = f"nothing is declared, but {count:,} resources belong to {scene.rules.owner!r}"
        yield Reason("empty", message, "check the path; to remove them, declare tombstones (`state: absent`)")


def wanted(scene: Scene, changes: Iterable[Change]) -> dict[Key, Wish]:
    """What the manifests want of resources, blocked or not, by live key: with a stream go its consumers."""
    found: dict[Key, Wish] = {}
    for change in changes:
        mass = _MASS.get(change.wanted or change.action)
        if mass is None or change.cause not in _COUNTED or change.suspended:
            continue
        found[change.key.live_key] = wish = Wish(mass, change.cause)
        if mass is Mass.REMOVED and change.key.is_stream:
            stream = change.key.stream_key
            for name, consumer in scene.live.consumers_of(stream).items():
                if consumer.owner == scene.rules.owner:
                    found[Key("Consumer", name, stream.name, stream.domain)] = wish
    return found


def approved(scene: Scene, fingerprint: str) -> bool:
    """Whether somebody has looked at this very plan, and wants it."""
    return scene.desired.governance.approve == fingerprint


def too_much(scene: Scene, now: Mapping[Key, Wish], fingerprint: str) -> Iterator[tuple[Mass, Reason]]:
    """Of what too much is wanted now, with what was wanted in the last hour: each key once, also where it has gone since."""
    limit = MAX_CHANGE_PERCENT if scene.rules.max_change_percent is None else scene.rules.max_change_percent
    for mass in Mass:
        keys = {key for key, wish in now.items() if wish.mass is mass}
        if not keys:
            continue
        before = keys | set(scene.memory.wanted.get(mass, ()))
        number, count = len(before), owned(scene) + sum(not _is_owned(scene, key) for key in before)
        if count >= FEW and number * 100 > count * limit:
            of_late = f", with those of the last hour {number:,}" if number > len(keys) else ""
            share = f"{len(keys):,} of {count:,} owned resources would be {mass}{of_late}"
            share += f" ({number * 100 // count} %, more than {limit} %)"
            way_out = f"raise --max-change-percent, or approve it in a Policy: `approve: {fingerprint}`"
            yield mass, Reason("mass-change", share, way_out)


def stops(stopped: Collection[Mass], change: Change) -> bool:
    """Whether a change is part of what too much is wanted of; what was begun is brought to its end, and drift is repaired."""
    if not stopped or change.cause not in _COUNTED or change.continues:
        return False
    return (Mass.UPDATED if change.action is Action.PROCEDURE else _MASS.get(change.action)) in stopped


def _is_owned(scene: Scene, key: Key) -> bool:
    seen = scene.live.seen(key)
    return seen is not None and seen.owner == scene.rules.owner


def spread(changes: Iterable[Change], targets: Collection[Key] = ()) -> list[Change]:
    """The changes, with those blocked that need something which is blocked itself, or which is not one of the targets."""
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
    return _waiting(result, targets)


def _waiting(changes: list[Change], targets: Collection[Key]) -> list[Change]:
    """The changes, with those blocked whose needs are not part of the plan, or blocked themselves."""
    possible = {change.key for change in changes if change.action is not Action.BLOCKED}
    while True:
        stuck = {c.key: key for c in changes if c.key in possible for key in c.needs if key not in possible}
        if not stuck:
            return changes
        possible -= stuck.keys()
        changes = [depends(change, stuck[change.key], targets) if change.key in stuck else change for change in changes]


def depends(change: Change, needed: Key, targets: Collection[Key]) -> Change:
    """The change, blocked by something that is blocked itself, or is not one of the targets."""
    if targets and needed not in targets:
        message = f"it needs {needed}, which --target leaves out"
        return change.blocked(Reason("depends-on", message, f"give this as well: `--target {needed}`"))
    reason = Reason("depends-on", f"it needs {needed}, which is blocked or left out", f"see {needed}")
    return change.blocked(reason)


def _needs(change: Change) -> list[Key]:
    if change.key.kind == "Consumer":
        return [change.key.stream_key]
    return origins(orjson.loads(change.config), change.key.domain) if copies(change.config) else []
