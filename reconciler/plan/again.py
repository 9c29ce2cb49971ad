"""Planning one resource once more, on a fresh look at it: the same rules, for one key alone.

Invariant: pure, and nothing is computed over everything: it is done before every write.
"""

from __future__ import annotations

from reconciler.model.flow import copies
from reconciler.model.identity import Key
from reconciler.plan.change import Action, Change
from reconciler.plan.decide import decide
from reconciler.plan.losses import server_made_for
from reconciler.plan.removals import removed_again
from reconciler.plan.scene import Scene

_REMOVES = frozenset({Action.DELETE, Action.RECREATE})


def decide_again(scene: Scene, change: Change) -> Change | None:
    """What planning says of the change's resource now; None when it says nothing."""
    declared = scene.desired.resources.get(change.key)
    if declared is not None:
        return decide(scene, declared)
    return removed_again(scene, change) if change.action is Action.DELETE else None


def takers(change: Change) -> tuple[Key, ...]:
    """Consumers of the same stream that have to be in place before this change."""
    if change.key.kind != "Consumer":
        return ()
    return tuple(key for key in change.needs if key.kind == "Consumer" and key.stream_key == change.key.stream_key)


def beside(scene: Scene, change: Change) -> frozenset[Key]:
    """What the rules look at beside the resource itself; of a stream that goes, all its consumers, those that came since too."""
    key = change.key
    removes = change.action in _REMOVES
    if key.kind == "Consumer":
        filters = any(field.path.startswith("filterSubject") for field in change.fields)
        return frozenset({key.stream_key, *takers(change), *scene.taken_by(key)} if removes or filters else ())
    stream, found = scene.live.stream(key), set[Key]()
    if stream is not None and copies(stream.raw):
        found |= server_made_for(scene, key, stream)
    if removes:
        consumers = scene.live.consumers_of(key)
        found |= {key.live_key, *(Key("Consumer", name, key.stream_name, key.domain) for name in consumers)}
        found |= set(scene.kept_durables.get(key.stream_key, ()))
    return frozenset(found)
