"""What is to be done about one resource.

| declared | live | marker | action |
|---|---|---|---|
| present | absent | – | create |
| present | equal | ours | nothing |
| present | equal | wiped in this process | update (the marker comes back) |
| present | differs | ours | update, procedure, or blocked when it cannot be |
| present | any | none | adopt when permitted, else blocked `not-owned` |
| present | any | another owner | blocked `other-owner` |
| present | the server's own | – | blocked `server-made` |
| absent | absent | – | nothing |
| absent | any | ours | delete, or blocked when messages would be lost |
| unmanaged | absent | – | blocked `missing` |
| unmanaged | any | – | nothing |
| – | any | ours | delete under policy sync, see `prune` |

Anything that did not answer is blocked `unknown`: silence is never absence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from shlex import quote

from reconciler.model.desired import Declared
from reconciler.model.identity import Key
from reconciler.model.kinds.common import State
from reconciler.model.marker import Marker
from reconciler.model.normal import canonical
from reconciler.model.seen.live import LiveConsumer, LiveStream
from reconciler.plan import losses
from reconciler.plan.change import Action, Cause, Change, Reason, delete_prevented, not_seen, suspended, update_prevented
from reconciler.plan.comparing import diff, mutability
from reconciler.plan.comparing.difference import Difference, compare, with_marker, within_limits
from reconciler.plan.comparing.display import in_short
from reconciler.plan.machines import consumer_machine, continuation, journal_of, pause_differs, resumed_creation
from reconciler.plan.marks import damage, not_owned
from reconciler.plan.scene import Scene, Seen


def decide(scene: Scene, declared: Declared) -> Change | None:
    """The change for one declared resource, or None when it is as declared."""
    change = _decide(scene, declared)
    if change is None or not declared.intent.suspend or change.action is Action.BLOCKED or _half_done(scene, declared.key):
        return change
    return change.blocked(suspended(declared.key))


def _decide(scene: Scene, declared: Declared) -> Change | None:
    key, seen = declared.key, scene.seen(declared.key)
    unknown = scene.live.why_unknown(key)
    if unknown and seen is None:
        return blocked(key, Cause.UNKNOWN, (not_seen(unknown, key),))
    if declared.intent.state is State.UNMANAGED:
        return None if seen else _missing_unmanaged(key)
    if declared.intent.state is State.ABSENT:
        return delete(scene, key, seen, Cause.MANIFEST) if seen else None
    if seen is None and key in scene.stood_for:
        return None
    if seen is None:
        change = create(scene, declared)
        plain = change.action is Action.BLOCKED or key.kind != "Consumer"
        return change if plain else resumed_creation(scene, declared, change)
    return _compare(scene, declared, seen)


def blocked(key: Key, cause: Cause, reasons: tuple[Reason, ...], wanted: Action | None = None) -> Change:
    """A change that may not be done."""
    return Change(key=key, action=Action.BLOCKED, cause=cause, reasons=reasons, wanted=wanted)


def _missing_unmanaged(key: Key) -> Change:
    way_out = "whoever owns it must create it"
    return blocked(key, Cause.MISSING, (Reason("missing", "declared unmanaged, but it does not exist", way_out),))


def create(scene: Scene, declared: Declared) -> Change:
    """Making a resource as if there had never been one."""
    key, config = declared.key, within_limits(scene, declared.key, declared.config)
    normal = scene.normal(key, config)
    level, path = mutability.required_level(key, normal)
    reasons = []
    if level > scene.live.server.level:
        reasons.append(mutability.level_reason(level, path, scene.live.server.level))
    stream = key.stream_key
    if key.kind == "Consumer":
        if stream not in scene.streams and stream not in scene.live.streams:
            way_out = "declare the stream, or create it first"
            reasons.append(Reason("no-such-stream", f"stream {stream.name} is neither declared nor live", way_out))
        if declared.intent.pause_until:
            config["pause_until"] = declared.intent.pause_until
    if config.pop("sealed", False):
        for forced in ("deny_delete", "deny_purge"):  # the server refuses sealed at creation: the next pass seals
            config.pop(forced, None)
    marker = Marker(owner=scene.rules.owner, spec=declared.digest, pause_until=declared.intent.pause_until)
    change = Change(key=key, action=Action.CREATE, cause=Cause.MISSING, config=with_marker(key, config, marker), level=level)
    if reasons:
        return change.blocked(*reasons)
    return _unless_allowed(scene, change, losses.unkept_sources(scene, key, normal))


def _compare(scene: Scene, declared: Declared, seen: Seen) -> Change | None:
    key = declared.key
    if isinstance(seen, LiveConsumer) and seen.server_made:
        return blocked(key, Cause.MANIFEST, (Reason("server-made", "the server keeps this consumer for a source or mirror"),))
    if seen.owner and seen.owner != scene.rules.owner and (reason := _why_not_taken(scene, key, seen)):
        return blocked(key, Cause.MANIFEST, (reason,))
    special = seen.special or bool(declared.intent.ignore or declared.intent.pause_until) or _held(scene, key)
    if not special and seen.digest == declared.digest and seen.owner == scene.rules.owner and not scene.limited(key.stream_key):
        return None
    if damaged := damage(seen):
        return blocked(key, Cause.UNKNOWN, (damaged,))
    difference = compare(scene, declared, seen)
    if not scene.ours(key, seen):
        return _adopt(scene, difference)
    journal = journal_of(scene, key, seen) if isinstance(seen, LiveConsumer) else None
    if journal is not None and isinstance(seen, LiveConsumer):
        return continuation(scene, journal, seen, outline(scene, difference, Action.UPDATE))
    if not difference.names and seen.owner and not pause_differs(scene, difference):
        return None
    return _change(scene, difference, Action.UPDATE)


def _why_not_taken(scene: Scene, key: Key, seen: Seen) -> Reason | None:
    """Why what belongs to another owner stays that owner's; None where somebody takes it over by name."""
    rules, owner = scene.rules, seen.owner
    if not (rules.adopt and owner in rules.take_from and key in rules.targets):
        taking = f"`--adopt --take-from {quote(owner)} --target {key}`"
        way_out = f"take it out of these manifests, or out of that owner's and take it over: {taking}"
        return Reason("other-owner", f"it belongs to {owner!r}", way_out)
    if seen.marker.journal is not None:
        message = f"{owner!r} is in the middle of {seen.marker.journal.name}"
        return Reason("other-owner", message, "take it over when that has ended")
    return None


def _held(scene: Scene, key: Key) -> bool:
    return key.kind == "Consumer" and journal_of(scene, key, None) is not None


def _half_done(scene: Scene, key: Key) -> bool:
    """A procedure under way goes on, suspended or not: it would leave a paused consumer behind."""
    return key.kind == "Consumer" and journal_of(scene, key, scene.live.consumer(key)) is not None


def _adopt(scene: Scene, difference: Difference) -> Change:
    declared = difference.declared
    change = _change(scene, difference, Action.ADOPT)
    if not (scene.rules.adopt or declared.intent.adopt):  # of another owner's it was asked before
        return change.blocked(not_owned(difference.seen))
    return change


def outline(scene: Scene, difference: Difference, action: Action) -> Change:
    """The change as such, before it is asked whether it can and may be done."""
    declared, seen = difference.declared, difference.seen
    key = declared.key
    remembered = seen.spec or scene.remembered(key)
    return Change(
        key=key,
        action=action,
        cause=Cause.DRIFT if remembered == declared.digest else Cause.MANIFEST,
        fields=diff.fields(key, difference.wanted, difference.live, scene.defaults),
        config=difference.marked(scene.rules.owner),
        live_config=canonical(difference.live),
        level=mutability.required_level(key, difference.wanted)[0],
    )


def _change(scene: Scene, difference: Difference, action: Action) -> Change:
    declared, seen = difference.declared, difference.seen
    change = outline(scene, difference, action)
    if change.level > scene.live.server.level:
        level, path = mutability.required_level(change.key, difference.wanted)
        return change.blocked(mutability.level_reason(level, path, scene.live.server.level))
    reasons = tuple(_impossible(scene, difference))
    if reasons:
        return change.blocked(*reasons)
    if declared.intent.prevent_update and difference.names:
        return change.blocked(update_prevented())
    if isinstance(seen, LiveStream):
        return _stream_change(scene, difference, seen, change)
    return _consumer_change(scene, difference, seen, change)


def _impossible(scene: Scene, difference: Difference) -> Iterator[Reason]:
    """What no update and no procedure can do on the resource as it is."""
    key, names = difference.declared.key, difference.names
    yield from mutability.one_way_reasons(key, names, difference.wanted, difference.live, scene.live.server.level)


def _stream_change(scene: Scene, difference: Difference, seen: LiveStream, change: Change) -> Change:
    key = change.key
    fixed = mutability.immutable_reasons(key, difference.names, difference.wanted, difference.live, scene.live.server.level)
    if fixed:
        return _recreate_stream(scene, difference, change, fixed)
    wanted, live = difference.wanted, difference.live
    lost = chain(
        losses.fewer_replicas(wanted, live, key),
        losses.shrinking_stream(scene, key, seen, wanted),
        losses.cut_off(scene, key, seen, wanted),
        losses.unkept_sources(scene, key, wanted, live),
        losses.repeating_sources(scene, key, seen, wanted),
        losses.mirror_as_source(scene, key, seen, wanted),
    )
    return _unless_allowed(scene, change, lost)


def _recreate_stream(scene: Scene, difference: Difference, change: Change, fixed: tuple[Reason, ...]) -> Change:
    if change.action is Action.ADOPT or not scene.allows("recreate", change.key):
        return change.blocked(*fixed)
    if difference.marker.residue or difference.marker.before:  # what is made anew has no past that it would have to respect
        difference = compare(scene, difference.declared, difference.seen, anew=True)
        change = outline(scene, difference, change.action)
    change = replace(change, action=Action.RECREATE)
    unknown = scene.live.why_unknown(change.key)
    if unknown:
        return change.blocked(not_seen(unknown, change.key))
    change = replace(change, notes=tuple(_goes_with(scene, change.key)))
    seen = difference.seen
    assert isinstance(seen, LiveStream)  # noqa: S101 - only streams are made anew here
    lost = chain(losses.deleting_stream(scene, change.key, seen), losses.unkept_sources(scene, change.key, difference.wanted))
    return _unless_allowed(scene, change, lost)


def _consumer_change(scene: Scene, difference: Difference, seen: LiveConsumer, change: Change) -> Change:
    key = change.key
    fixed = mutability.immutable_reasons(key, difference.names, difference.wanted, difference.live, scene.live.server.level)
    if fixed and (change.action is Action.ADOPT or not scene.allows("recreate", key)):
        return change.blocked(*fixed)
    wanted, live = difference.wanted, difference.live
    removed = losses.uncovered(live.get("filter_subjects", []), wanted.get("filter_subjects", []))
    lost = chain(
        losses.fewer_replicas(wanted, live, key) if live.get("num_replicas") else (),  # 0 means: as the stream
        losses.removed_filters(scene, key, seen, removed) if removed else (),
        losses.giving_up(scene, key, seen, wanted),
    )
    change = _unless_allowed(scene, change, lost)
    if change.reasons:
        return change
    return consumer_machine(scene, difference, change, recreate=bool(fixed))


def delete(scene: Scene, key: Key, seen: Seen, cause: Cause) -> Change:
    """Removing a resource that is ours, or the reasons why not."""
    shown = canonical(seen.config)
    change = Change(key=key, action=Action.DELETE, cause=cause, live_config=shown)
    declared = scene.desired.resources.get(key)
    unknown = scene.live.why_unknown(key)
    if unknown:
        return change.blocked(not_seen(unknown, key))
    if not scene.ours(key, seen):
        if seen.owner:
            return change.blocked(Reason("other-owner", f"it belongs to {seen.owner!r}", "ask that owner to remove it"))
        if not (scene.rules.adopt or (declared and declared.intent.adopt)):
            return change.blocked(not_owned(seen))
    if declared and declared.intent.prevent_delete:
        return change.blocked(delete_prevented())
    if isinstance(seen, LiveStream):
        change = replace(change, notes=tuple(_goes_with(scene, key)))
        return _unless_allowed(scene, change, losses.deleting_stream(scene, key, seen))
    return _unless_allowed(scene, change, losses.deleting_consumer(scene, key, seen))


def _unless_allowed(scene: Scene, change: Change, found: Iterable[Reason]) -> Change:
    """Blocked by what would be lost; where that is allowed, the plan still says what it is."""
    reasons, allowed = losses.permitted(scene, change.key, found)
    change = replace(change, notes=(*change.notes, *allowed))
    if change.cause is Cause.PRUNE:  # there is no manifest that could have an annotation
        tombstone = "a tombstone (`state: absent`) with the annotation `reconciler/allow: data-loss`"
        way_out = f"allow it by name: `--allow data-loss={change.key}`, or declare {tombstone}"
        reasons = tuple(replace(reason, way_out=way_out) for reason in reasons)
    return change.blocked(*reasons) if reasons else change


def _goes_with(scene: Scene, stream: Key) -> Iterator[str]:
    """Consumers have no life of their own: the server deletes them with their stream."""
    names = sorted(name for name, consumer in scene.live.consumers_of(stream).items() if not consumer.server_made)
    if names:
        yield f"its consumers go with it: {in_short(names)}"
