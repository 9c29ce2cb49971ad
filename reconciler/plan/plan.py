"""The planner: (Desired, Live) → Plan, as one sequence of small steps.

Invariant: pure and order-independent. A plan with `questions` is provisional: read the answers, put them into
`Live.facts`, and plan again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from reconciler.model.common import DEFAULT_INTENT, State
from reconciler.model.desired import Declared, Desired
from reconciler.model.identity import Key
from reconciler.model.live import Live, LiveConsumer
from reconciler.plan import guard, limits, moves
from reconciler.plan.change import NO_MEMORY, Action, Cause, Change, Memory, Plan, Reason, Rules
from reconciler.plan.decide import create, decide, delete
from reconciler.plan.display import in_short
from reconciler.plan.fingerprint import fingerprint
from reconciler.plan.handovers import linked
from reconciler.plan.machines import is_hold
from reconciler.plan.order import ordered
from reconciler.plan.policy import permits
from reconciler.plan.scene import Scene
from reconciler.procedures.move_subject import MoveSubject
from reconciler.procedures.recreate_consumer import held_consumer


def plan(desired: Desired, live: Live, rules: Rules, memory: Memory = NO_MEMORY) -> Plan:
    """Everything that has to change, in a safe order, with what may not be changed and why."""
    scene = Scene(desired, live, rules, memory)
    found = [_known(scene, change) for declared in _to_compare(scene) if (change := decide(scene, declared))]
    found = _remade(scene, found)
    differing = len(found)
    found += _removed(scene)
    found += _pools(scene)
    wanted = [change for change in found if permits(rules.policy, change)]
    notes = tuple(_notes(scene, found))
    changes = limits.within(scene, _targeted(rules, moves.resolve(scene, linked(scene, _folded(wanted)))))
    changes = guard.spread(changes)
    in_order = ordered(changes, scene)
    name = fingerprint(rules, in_order)
    return Plan(
        changes=in_order,
        unchanged=len(desired.resources) - differing,
        refused=(*_unknown_targets(scene, in_order), *guard.refusals(scene, in_order, name)),
        notes=notes,
        fingerprint=name,
        server=live.server,
        environment=desired.environment,
        rules=rules,
        questions=frozenset(scene.open),
    )


def _remade(scene: Scene, found: list[Change]) -> list[Change]:
    """The changes, with the consumers of a stream that is made anew made anew as well: they go with it."""
    streams = {change.key.stream_key for change in found if change.action is Action.RECREATE}
    kept = [change for change in found if change.key.kind != "Consumer" or change.key.stream_key not in streams]
    consumers = (declared for stream in streams for declared in scene.desired.consumers.get(stream, {}).values())
    return [*kept, *(create(scene, declared) for declared in consumers if declared.intent.state is State.PRESENT)]


def _to_compare(scene: Scene) -> Iterator[Declared]:
    """All that is declared but the consumers which one look shows to be as declared: nearly all of them, nearly always."""
    yield from (declared for key, declared in scene.desired.resources.items() if key.kind != "Consumer")
    for stream, consumers in scene.desired.consumers.items():
        live = scene.live.consumers_of(stream)
        if stream in scene.limited_streams or any(map(is_hold, live)):
            yield from consumers.values()
            continue
        for name, declared in consumers.items():
            seen = live.get(name)
            if seen is None or seen.digest != declared.digest or not _plain(scene, declared, seen):
                yield declared


def _plain(scene: Scene, declared: Declared, seen: LiveConsumer) -> bool:
    """Nothing but the digests has to be looked at."""
    ours = seen.owner == scene.rules.owner and not seen.special and not seen.server_made
    intent = declared.intent
    return ours and (intent is DEFAULT_INTENT or (intent.state is State.PRESENT and not intent.ignore and not intent.pause_until))


def _known(scene: Scene, change: Change) -> Change:
    """A change that hangs on a question nobody answered is blocked: silence is never an answer."""
    reason = scene.silent.get(change.key)
    if reason is None or change.action is Action.BLOCKED:
        return change
    said = Reason("unknown", f"what it depends on could not be read: {reason}", "it is looked at again on the next pass")
    return change.blocked(said)


def _removed(scene: Scene) -> Iterator[Change]:
    """Deletes of what is ours and no longer declared."""
    declared_streams = {key.stream_key for key in scene.desired.resources if key.is_stream}
    for key, stream in scene.live.streams.items():
        if stream.owner == scene.rules.owner and key not in declared_streams:
            yield _protected(scene, delete(scene, key.resource_key, stream, Cause.PRUNE))
    for stream_key, consumers in scene.live.consumers.items():
        declared = scene.desired.consumers.get(stream_key, {})
        for name, consumer in consumers.items():
            if name in declared or consumer.owner != scene.rules.owner:
                continue
            key = Key("Consumer", name, stream_key.name, stream_key.domain)
            wanted_by = (held_consumer(key, consumer.config) if consumer.special else None) or key
            if wanted_by not in scene.desired.resources and not _held_back(scene, name):
                yield _protected(scene, delete(scene, key, consumer, Cause.PRUNE))
            elif wanted_by in scene.desired.resources and scene.desired.resources[wanted_by].intent.state is State.ABSENT:
                yield delete(scene, key, consumer, Cause.MANIFEST)  # a hold goes with the consumer whose place it keeps


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


def _pools(scene: Scene) -> Iterator[Change]:
    """Worker pools are checked, but not reconciled yet: that must not look like done."""
    for pool in scene.desired.pools.values():
        reason = Reason(
            "unsupported", "worker pools are validated, but this version does not reconcile them", "declare Consumers"
        )
        yield Change(key=pool.key, action=Action.BLOCKED, cause=Cause.MISSING, reasons=(reason,), wanted=Action.CREATE)


def _has_ours(scene: Scene, stream: Key) -> bool:
    """Whether consumers of ours would go with a stream."""
    return any(consumer.owner == scene.rules.owner for consumer in scene.live.consumers_of(stream).values())


def _folded(changes: Iterable[Change]) -> list[Change]:
    """Deletes of consumers are part of their stream's own delete."""
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


def _targeted(rules: Rules, changes: Iterable[Change]) -> list[Change]:
    return [_whole(rules, change) for change in changes if not rules.targets or rules.targets & _members(change)]


def _unknown_targets(scene: Scene, changes: Iterable[Change]) -> Iterator[Reason]:
    known = {*scene.desired.resources, *(key for change in changes for key in _members(change))}
    for key in sorted(scene.rules.targets - known):
        yield Reason("unknown-target", f"--target {key} is not declared, and nothing would be done about it", "check the name")


def _members(change: Change) -> frozenset[Key]:
    """The resources that a change brings to what is declared: with a move of subjects several, else one."""
    return frozenset((change.key, *change.touches) if isinstance(change.machine, MoveSubject) else (change.key,))


def _whole(rules: Rules, change: Change) -> Change:
    """Half of a move cannot be done: a subject leaves one stream and enters another."""
    left_out = sorted(_members(change) - rules.targets) if rules.targets else []
    if not left_out:
        return change
    reason = Reason("depends-on", f"it is one change with {left_out[0]}, which --target leaves out", "give both as --target")
    return change.blocked(reason)


def _notes(scene: Scene, found: list[Change]) -> Iterator[str]:
    left = [change for change in found if not permits(scene.rules.policy, change)]
    going = {change.key.stream_key for change in found if change.key.is_stream and change.action is Action.DELETE} - {
        change.key.stream_key for change in left
    }
    pruned = sorted(str(c.key) for c in left if c.cause is Cause.PRUNE and c.key.stream_key not in going)
    if pruned:
        yield f"{len(pruned)} owned but no longer declared ({in_short(pruned, 3)}); `--prune` would delete them"
    others = sum(change.cause is not Cause.PRUNE for change in left)
    if others:
        yield f"policy {scene.rules.policy} leaves {others} differences as they are"
    for pool, reason in scene.desired.held_back.items():
        yield f"{pool} is left as it is: {reason}"
    for key, reason in sorted(scene.live.unknown.items(), key=lambda item: item[0].sort_key):
        yield f"{key} is unknown: {reason}"
