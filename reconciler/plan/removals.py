"""What is ours and no longer declared, and what goes along with a stream that goes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial

from reconciler.model import units
from reconciler.model.flow import copied_entries
from reconciler.model.identity import Key
from reconciler.model.kinds.common import State
from reconciler.model.normal import canonical
from reconciler.model.seen.live import LiveConsumer
from reconciler.model.sourcing import durable_of
from reconciler.plan import losses
from reconciler.plan.change import Action, Cause, Change, Reason, not_seen
from reconciler.plan.comparing.display import in_short
from reconciler.plan.decide import delete
from reconciler.plan.faults import guarded
from reconciler.plan.marks import damage
from reconciler.plan.scene import Scene, Seen
from reconciler.procedures.holds import held_consumer, hold_key


def undeclared(scene: Scene) -> frozenset[Key]:
    """Streams of ours that are no longer declared, and say so by their name."""
    owner, declared = scene.rules.owner, scene.desired.streams
    return frozenset(
        key for key, seen in scene.live.streams.items() if seen.owner == owner and seen.named and key not in declared
    )


def nameless(scene: Scene, streams: Iterable[Key]) -> Iterator[Change]:
    """The same of which nobody can tell that they are no copies: their marks are from before marks had names, and they stay."""
    owner = scene.rules.owner
    for stream in streams:
        seen = scene.live.streams.get(stream)
        if seen is not None and seen.owner == owner and not seen.named and stream not in scene.desired.streams:
            yield _stays(stream.resource_key, seen)
        declared = scene.desired.consumers.get(stream, {})
        for name, consumer in scene.live.consumers_of(stream).items():
            if name in declared or consumer.owner != owner or consumer.named:
                continue
            key = Key("Consumer", name, stream.name, stream.domain)
            reader = _stands_for(key, consumer) if consumer.special else None
            if key not in scene.desired.durables and not (reader and reader.is_stream and _reads(scene, reader.stream_key, key)):
                yield _stays(key, consumer)


def _stays(key: Key, seen: Seen) -> Change:
    """Left as it is under every policy."""
    message = "its mark is of an earlier version, which a copy has as well"
    reason = Reason("policy", message, "a tombstone (`state: absent`) deletes it")
    return Change(key=key, action=Action.DELETE, cause=Cause.PRUNE, live_config=canonical(seen.config)).blocked(reason)


def removed_streams(scene: Scene, keys: Iterable[Key]) -> Iterator[Change]:
    """Deletes of such streams."""
    for key in keys:
        yield guarded(scene, key.resource_key, partial(_removed_stream, scene, key))


def _removed_stream(scene: Scene, key: Key) -> Change:
    change = delete(scene, key.resource_key, scene.live.streams[key], Cause.PRUNE)
    damaged = damage(scene.live.streams[key])
    if damaged:
        return change.blocked(damaged)
    if change.action is Action.DELETE and (still := _declared_on(scene, key)):
        way_out = "declare the stream again, or take these out of the manifests as well"
        return change.blocked(Reason("removed-stream", f"still declared on it: {in_short(still)}", way_out))
    return _protected(scene, change)


def _declared_on(scene: Scene, key: Key) -> list[str]:
    """The consumers that the manifests still want on a stream that they no longer declare."""
    consumers = scene.desired.consumers.get(key, {})
    return sorted(f"consumer {name}" for name, one in consumers.items() if one.intent.state is not State.ABSENT)


def removed_consumers(scene: Scene, streams: Iterable[Key], *, prune: bool) -> Iterator[Change]:
    """Deletes of consumers of ours that are no longer declared; without `prune`, only of what goes with a declared delete."""
    owner = scene.rules.owner
    for stream in streams:
        declared = scene.desired.consumers.get(stream, {})
        for name, consumer in scene.live.consumers_of(stream).items():
            if name in declared or consumer.owner != owner or not (prune or consumer.special):
                continue
            key = Key("Consumer", name, stream.name, stream.domain)
            change = guarded(scene, key, partial(_removed_consumer, scene, key, consumer, prune=prune))
            if change is not None:
                yield change


def _removed_consumer(scene: Scene, key: Key, consumer: LiveConsumer, *, prune: bool) -> Change | None:
    """The delete of one consumer of ours that is no longer declared, if it is to go."""
    if key in scene.desired.durables or (consumer.special and _is_read(scene, consumer.marker.source)):
        return None
    if not consumer.named:
        return None  # its mark may be a copy, and no reason to remove it, or to believe what it goes with
    if damaged := damage(consumer):
        shown = Change(key=key, action=Action.DELETE, cause=Cause.PRUNE, live_config=canonical(consumer.config))
        return shown.blocked(damaged) if prune else None
    wanted_by = (_stands_for(key, consumer) if consumer.special else None) or key
    if wanted_by in scene.desired.resources:
        return _going_with(scene, key, wanted_by, consumer)
    return _pruned(scene, key, wanted_by, consumer) if prune else None


def _pruned(scene: Scene, key: Key, wanted_by: Key, consumer: LiveConsumer) -> Change | None:
    """The delete of one that nothing which is declared wants."""
    if consumer.special and consumer.marker.source:
        return _without_reader(scene, key, wanted_by, consumer, Cause.PRUNE)
    if key in scene.read_durables:
        return _drop(key, consumer, Cause.PRUNE).blocked(_is_needed(scene.read_durables[key].resource_key))
    if silent := _may_be_read(scene, consumer):
        return _drop(key, consumer, Cause.PRUNE).blocked(silent)
    if _held_back(scene, key.name):
        return None
    spent = _is_spent(scene, key, wanted_by, consumer)
    return _protected(scene, _drop(key, consumer, Cause.PRUNE) if spent else delete(scene, key, consumer, Cause.PRUNE))


def _may_be_read(scene: Scene, consumer: LiveConsumer) -> Reason | None:
    """Why a durable stays for now: a declared stream that did not answer may be the one that copies through it."""
    if not scene.live.unknown or consumer.config.get("ack_policy") != "flow_control":
        return None
    silent = ((key, scene.live.why_unknown(key)) for key in scene.streams if key not in scene.live.streams)
    return next((not_seen(f"{key} may read through it, and could not be read: {why}", key) for key, why in silent if why), None)


def _is_spent(scene: Scene, key: Key, held: Key, hold: LiveConsumer) -> bool:
    """Whether this is the hold of a consumer that is there and goes by its own position: what it keeps is in that one's hands."""
    seen = scene.live.consumer(held)
    if held == key or key != hold_key(held) or seen is None or not scene.ours(held, seen):
        return False
    made_before = units.parse_time(seen.info["created"]) < units.parse_time(hold.info["created"])
    return made_before or bool(seen.info["delivered"]["consumer_seq"])


def _is_needed(reader: Key) -> Reason:
    way_out = f"declare it again, or take the entry that reads through it out of the manifest of {reader}"
    return Reason("depends-on", f"{reader} reads through it, and is declared", way_out)


def _going_with(scene: Scene, key: Key, wanted_by: Key, consumer: LiveConsumer) -> Change | None:
    """The delete of a consumer that is there because of another resource, if that one is to go."""
    if scene.desired.resources[wanted_by].intent.state is not State.ABSENT:
        return None
    if wanted_by.is_stream:
        return _without_reader(scene, key, wanted_by, consumer, Cause.MANIFEST)
    return delete(scene, key, consumer, Cause.MANIFEST)


def removed_again(scene: Scene, change: Change) -> Change | None:
    """The delete of something that is not declared, judged on another look."""
    key = change.key
    seen = scene.seen(key)
    if isinstance(seen, LiveConsumer):
        return _removed_consumer(scene, key, seen, prune=True)
    return next(removed_streams(scene, [key.stream_key])) if seen is not None else None


def removed_durables(scene: Scene, changes: Iterable[Change]) -> Iterator[Change]:
    """Deletes of durables that are kept for streams that go: after these, whose own delete says what is lost with them."""
    for change in changes:
        if not change.key.is_stream or change.action is not Action.DELETE:
            continue
        for key in scene.kept_durables.get(change.key.stream_key, ()):
            consumer = scene.live.consumer(key)
            declared = key in scene.desired.resources or key in scene.desired.durables
            if consumer is None or declared or consumer.owner != scene.rules.owner:
                continue
            if consumer.named or _reads(scene, change.key.stream_key, key):
                yield replace(_drop(key, consumer, change.cause), needs=(change.key,))


def _drop(key: Key, consumer: LiveConsumer, cause: Cause) -> Change:
    return Change(key=key, action=Action.DELETE, cause=cause, live_config=canonical(consumer.config))


def _without_reader(scene: Scene, key: Key, reader: Key, consumer: LiveConsumer, cause: Cause) -> Change:
    """The delete of a durable whose stream is gone already: nobody goes on from its position, but it may keep messages."""
    named = next((one for one in (reader, key) if scene.allows(losses.DATA_LOSS, one)), key)
    reasons, allowed = losses.permitted(scene, named, losses.not_copied(scene, key, key))
    change = replace(_drop(key, consumer, cause), notes=allowed)
    return change.blocked(*reasons) if reasons else change


def _stands_for(key: Key, consumer: LiveConsumer) -> Key | None:
    """What a consumer goes with: a hold with the consumer whose place it keeps, a durable with the stream that it is kept for."""
    try:
        return held_consumer(key, consumer.config) or Key.parse(consumer.marker.source)
    except ValueError:
        return None


def _is_read(scene: Scene, aggregate: str) -> bool:
    """Whether the stream that a durable is kept for is declared, or may be live: then it goes with a change of that stream."""
    try:
        key = Key.parse(aggregate).stream_key
    except ValueError:  # it is kept for nobody, or the marker was damaged
        return False
    return key in scene.streams or key in scene.live.streams or bool(scene.live.why_unknown(key))


def _reads(scene: Scene, stream: Key, durable: Key) -> bool:
    """Whether a stream really reads through a durable, whatever a mark says."""
    seen = scene.live.streams.get(stream)
    return seen is not None and any(durable_of(entry, stream.domain) == durable for entry in copied_entries(seen.config))


def folded(changes: Iterable[Change]) -> list[Change]:
    """The changes; deletes of consumers are part of their stream's own delete."""
    everything = list(changes)
    gone = {change.key.stream_key for change in everything if change.key.is_stream and change.action is Action.DELETE}
    kept = []
    inside: dict[Key, list[Key]] = {}
    for change in everything:
        deleting = Action.DELETE in (change.action, change.wanted)
        if change.key.kind == "Consumer" and deleting and change.key.stream_key in gone:
            inside.setdefault(change.key.stream_key, []).append(change.key)
        else:
            kept.append(change)
    return [
        replace(c, touches=tuple(sorted(inside[c.key.stream_key]))) if c.key.is_stream and c.key.stream_key in inside else c
        for c in kept
    ]


def _held_back(scene: Scene, consumer: str) -> bool:
    """A pool whose files are incomplete keeps its consumers as they are."""
    prefixes = (pool.consumer_prefix for name, pool in scene.desired.pools.items())
    return any(consumer.startswith(f"{prefix}-") for prefix in prefixes)


def _protected(scene: Scene, change: Change) -> Change:
    if change.action is not Action.DELETE or not scene.desired.governance.protect_names:
        return change
    if change.key.is_stream and not _has_ours(scene, change.key):
        return change
    if scene.rules.allows("delete", change.key):
        return change
    way_out = f"remove it by a tombstone (`state: absent`), or allow it: `--allow delete={change.key}`"
    reason = Reason("protected-name", "the policy protects consumer names", way_out)
    return change.blocked(reason)


def _has_ours(scene: Scene, stream: Key) -> bool:
    """Whether consumers of ours would go with a stream."""
    return any(consumer.owner == scene.rules.owner for consumer in scene.live.consumers_of(stream).values())
