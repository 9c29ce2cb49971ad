"""The planner: (Desired, Live) → Plan, as one sequence of small steps.

Invariant: pure and order-independent. A plan with `questions` is provisional: read the answers, put them into
`Live.facts`, and plan again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial

from reconciler.model.desired import Declared, Desired
from reconciler.model.identity import Key
from reconciler.model.kinds.common import DEFAULT_INTENT, State
from reconciler.model.seen.live import Live, LiveConsumer
from reconciler.plan.aspect import Aspect
from reconciler.plan.bounds import guard, limits
from reconciler.plan.bounds.policy import permits
from reconciler.plan.bounds.scope import Part, everything, part_of, touched_by
from reconciler.plan.change import NO_MEMORY, Action, Cause, Change, Plan, Reason, Remembered, Rules, not_seen
from reconciler.plan.comparing.display import in_short
from reconciler.plan.decide import create, decide
from reconciler.plan.faults import guarded
from reconciler.plan.fingerprint import fingerprint
from reconciler.plan.machines import is_hold
from reconciler.plan.order import ordered
from reconciler.plan.removals import folded, nameless, removed_consumers, removed_durables, removed_streams, undeclared
from reconciler.plan.scene import Scene, Seen
from reconciler.plan.subjects import moves
from reconciler.plan.subjects.handovers import linked
from reconciler.procedures.move_subject import MoveSubject


def plan(  # noqa: PLR0913 - what a plan is made of
    desired: Desired,
    live: Live,
    rules: Rules,
    memory: Remembered = NO_MEMORY,
    scope: frozenset[Key] | None = None,
    *,
    aspects: Iterable[Aspect],
) -> Plan:
    """Everything that has to change, in a safe order, with what may not be changed and why.

    With a `scope` (keys of any kind), only the changes of the streams behind these keys and of their consumers, moves of
    subjects that touch them, and what these need: the same changes as in the plan of everything, but never a removal of what
    is no longer declared, and what needs such a removal is blocked until the next plan of everything. `unchanged` counts those
    streams and consumers only, and there are no notes. It is refused when nothing is declared at all; how much of everything
    would change is judged by plans of everything alone.
    """
    scene = Scene(desired, live, rules, memory)
    part, found = _differing(scene, scope, aspects)
    unknown = tuple(_unknown(scene, part, found))
    unchanged = part.declared(desired) - sum(map(part.has, found)) - len(unknown)
    found += _to_remove(scene, part, found)
    stays = nameless(scene, {*part.near, *scene.live.streams} if part.everything else part.touched)
    unnamed = sorted(stays, key=lambda change: change.key.sort_key)
    in_order = _in_order(scene, part, found)
    name = fingerprint(rules, in_order)
    wishes = guard.wanted(scene, in_order) if part.everything else {}
    approved = bool(wishes) and guard.approved(scene, name)
    stopped = {} if approved else dict(guard.too_much(scene, wishes, name))
    return Plan(
        changes=in_order,
        left=tuple(_left_out(rules, part, found, unnamed, in_order)),
        unchanged=unchanged,
        unknown=unknown,
        refused=(*_refusals(scene, part, in_order), *stopped.values()),
        stopped=stopped,
        wanted=wishes,
        approved=approved,
        notes=tuple(_notes(scene, found, unnamed)) if part.everything else (),
        fingerprint=name,
        server=live.server,
        environment=desired.environment,
        rules=rules,
        faults=scene.faults,
        questions=frozenset(scene.open),
    )


def _differing(scene: Scene, scope: frozenset[Key] | None, aspects: Iterable[Aspect]) -> tuple[Part, list[Change]]:
    """Which part of everything this is about, and what is declared in it and is not so."""
    found = _changes(scene, _streams(scene))
    part = _part(scene, scope, found)
    found = _remade(scene, part, [*found, *_changes(scene, _consumers(scene, part.near))])
    near = scene.streams if part.everything else part.near
    for aspect in aspects:
        found = [_known(scene, change) for change in aspect.resolve(scene, near, found)]
    return part, found


def _unknown(scene: Scene, part: Part, found: Iterable[Change]) -> Iterator[Key]:
    """What nothing is known to differ of, because not all of it was seen."""
    if not scene.live.unknown:
        return
    differing = {change.key for change in found}
    yield from (key for key in part.keys(scene.desired) if key not in differing and scene.live.why_unknown(key))


def _to_remove(scene: Scene, part: Part, found: list[Change]) -> list[Change]:
    """What is ours and no longer declared, but for what is part of a change that was found."""
    streams = list(removed_streams(scene, part.pruned))
    gone = removed_consumers(scene, part.near, prune=part.everything or scene.rules.policy == "sync")
    consumers = _not_part_of([*found, *streams], gone)
    removed = [*streams, *consumers]
    return [*removed, *removed_durables(scene, [*found, *removed]), *_pools(scene, part)]


def _in_order(scene: Scene, part: Part, found: list[Change]) -> tuple[Change, ...]:
    """What may be done of it, and how it hangs together."""
    rules = scene.rules
    wanted = [change for change in found if permits(rules.policy, change)]
    changes = limits.within(scene, _targeted(rules, moves.resolve(scene, linked(scene, folded(wanted)))))
    return ordered(part.wanted(guard.spread(part.without_removals(changes), rules.targets)), scene)


def _left_out(
    rules: Rules, part: Part, found: list[Change], unnamed: list[Change], in_order: tuple[Change, ...]
) -> Iterator[Change]:
    """What is not part of the plan."""
    covered = {one for change in in_order for one in (change.key, *change.touches)}
    ending = {change.key.stream_key for change in in_order if change.key.is_stream and change.action is Action.DELETE}
    yield from (_left(rules, change) for change in found if part.has(change) and change.key not in covered)
    yield from (change for change in unnamed if change.key not in covered and change.key.stream_key not in ending)


def _part(scene: Scene, scope: frozenset[Key] | None, streams: list[Change]) -> Part:
    if scope is None:
        return everything({**scene.desired.consumers, **scene.live.consumers}.keys(), undeclared(scene))
    pruned = undeclared(scene) if scene.rules.policy == "sync" else frozenset()
    return part_of(touched_by(scope, scene.desired), scene.desired, streams, pruned)


def _changes(scene: Scene, resources: Iterable[Declared]) -> list[Change]:
    decided = (guarded(scene, declared.key, partial(decide, scene, declared)) for declared in resources)
    return [_known(scene, change) for change in decided if change]


def _remade(scene: Scene, part: Part, found: list[Change]) -> list[Change]:
    """The changes, with the consumers of a stream that is made anew made anew as well: they go with it."""
    streams = {change.key.stream_key for change in found if change.action is Action.RECREATE}
    kept = [change for change in found if change.key.kind != "Consumer" or change.key.stream_key not in streams]
    remade = (scene.desired.consumers.get(stream, {}) for stream in streams if stream in part.near)
    consumers = (declared for consumers in remade for declared in consumers.values())
    return [*kept, *(create(scene, declared) for declared in consumers if declared.intent.state is State.PRESENT)]


def _streams(scene: Scene) -> Iterator[Declared]:
    """All declared streams but those which one look shows to be as declared."""
    for key, declared in scene.desired.streams.items():
        seen = scene.live.streams.get(key)
        if seen is None or seen.digest != declared.digest or not _plain(scene, declared, seen):
            yield declared


def _consumers(scene: Scene, streams: Iterable[Key]) -> Iterator[Declared]:
    """The same of their declared consumers: nearly all of them are left out, nearly always."""
    for stream in streams:
        consumers = scene.desired.consumers.get(stream, {})
        live = scene.live.consumers_of(stream)
        if scene.limited(stream) or any(map(is_hold, live)):
            yield from consumers.values()
            continue
        for name, declared in consumers.items():
            seen = live.get(name)
            if seen is None or seen.digest != declared.digest or not _plain(scene, declared, seen):
                yield declared


def _plain(scene: Scene, declared: Declared, seen: Seen) -> bool:
    """Nothing but the digests has to be looked at."""
    ours = seen.owner == scene.rules.owner and not seen.special and not (isinstance(seen, LiveConsumer) and seen.server_made)
    intent = declared.intent
    return ours and (intent is DEFAULT_INTENT or (intent.state is State.PRESENT and not intent.ignore and not intent.pause_until))


def _known(scene: Scene, change: Change) -> Change:
    """A change that hangs on a question nobody answered is blocked: silence is never an answer."""
    reason = scene.silent.get(change.key) or scene.silent.get(change.key.live_key)
    if reason is None or change.action is Action.BLOCKED:
        return change
    return change.blocked(not_seen(f"what it depends on could not be read: {reason}", change.key.live_key))


def _not_part_of(changes: Iterable[Change], others: Iterable[Change]) -> list[Change]:
    """The other changes, but those of consumers that are part of a change of a stream, be it blocked."""
    members = {key for change in changes if change.key.is_stream for key in change.touches}
    return [change for change in others if change.key not in members]


def _pools(scene: Scene, part: Part) -> Iterator[Change]:
    """Worker pools are checked, but not reconciled yet: that must not look like done."""
    for pool in scene.desired.pools.values():
        if not (part.everything or pool.stream in part.touched):
            continue
        reason = Reason(
            "unsupported",
            "worker pools are loaded and shown, but this version does not reconcile them",
            "declare Consumers for what has to run, and apply with `--continue` (a daemon goes on anyway); "
            "`reconciler status --daemon URL` shows each generation and what it moves",
        )
        yield Change(key=pool.key, action=Action.BLOCKED, cause=Cause.MISSING, reasons=(reason,), wanted=Action.CREATE)


def _targeted(rules: Rules, changes: Iterable[Change]) -> list[Change]:
    if not rules.targets:
        return list(changes)
    found = list(changes)
    meant = [change for change in found if rules.targets & _members(change)]
    made = {change.key.stream_key: change.key for change in found if change.key.is_stream and change.action is Action.CREATE}
    left_out = {stream: key for stream, key in made.items() if key not in rules.targets}
    return [_with_stream(rules, left_out, _whole(rules, change)) for change in meant]


def _with_stream(rules: Rules, left_out: Mapping[Key, Key], change: Change) -> Change:
    """A consumer cannot be made on a stream that is not there, and is not one of the targets."""
    needed = left_out.get(change.key.stream_key) if change.action is Action.CREATE and not change.key.is_stream else None
    return guard.depends(change, needed, rules.targets) if needed else change


def _refusals(scene: Scene, part: Part, changes: tuple[Change, ...]) -> Iterator[Reason]:
    yield from guard.nothing_declared(scene)
    if part.everything:
        yield from _unknown_targets(scene, changes)


def _unknown_targets(scene: Scene, changes: Iterable[Change]) -> Iterator[Reason]:
    if not scene.rules.targets:
        return
    known = {*scene.desired.resources, *(key for change in changes for key in _members(change))}
    for key in sorted(scene.rules.targets - known):
        yield Reason("unknown-target", f"--target {key} is not declared, and nothing would be done about it", "check the name")


def _members(change: Change) -> frozenset[Key]:
    """The resources that a change brings to what is declared: with a move of subjects several, else one."""
    return frozenset((change.key, *change.touches) if isinstance(change.machine, MoveSubject) else (change.key,))


def _whole(rules: Rules, change: Change) -> Change:
    """Half of a move cannot be done: a subject leaves one stream and enters another."""
    left_out = sorted(_members(change) - rules.targets)
    if not left_out:
        return change
    targets = " ".join(f"--target {key}" for key in left_out)
    message = f"it is one change with {in_short([str(key) for key in left_out])}, which --target leaves out"
    return change.blocked(Reason("depends-on", message, f"give the rest of it, too: `{targets}`"))


def _left(rules: Rules, change: Change) -> Change:
    """What is not part of the plan, with the reason."""
    if permits(rules.policy, change):
        return change.blocked(Reason("not-targeted", "--target leaves it out"))
    deleting = "`plan --prune` shows what stands in the way" if change.action is Action.BLOCKED else "`--prune` deletes it"
    way_out = deleting if change.cause is Cause.PRUNE else "`--policy upsert-only` does it"
    return change.blocked(Reason("policy", f"policy {rules.policy} leaves it as it is", way_out))


def _notes(scene: Scene, found: list[Change], stays: Iterable[Change]) -> Iterator[str]:
    left = [change for change in found if not permits(scene.rules.policy, change)]
    going = {change.key.stream_key for change in found if change.key.is_stream and change.action is Action.DELETE} - {
        change.key.stream_key for change in left
    }
    pruned = sorted(str(c.key) for c in left if c.cause is Cause.PRUNE and c.key.stream_key not in going)
    if pruned:
        shown = "`plan --prune` shows whether `--prune` can delete them"
        yield f"{len(pruned)} owned but no longer declared ({in_short(pruned, 3)}); {shown}"
    unnamed = sorted(str(change.key) for change in stays)
    if unnamed:
        yield (
            f"{len(unnamed)} owned but no longer declared, by marks of an earlier version, which a copy has as well "
            f"({in_short(unnamed, 3)}): they are never pruned; a tombstone (`state: absent`) deletes them"
        )
    others = sum(change.cause is not Cause.PRUNE for change in left)
    if others:
        yield f"policy {scene.rules.policy} leaves {others} differences as they are"
    for what, named in sorted(scene.rules.allow):
        if not _is_there(scene, Key.parse(named)):
            yield f"`--allow {what}={named}` allows nothing: {named} is neither declared nor live"
    for pool, reason in scene.desired.held_back.items():
        yield f"{pool} is left as it is: {reason}"
    for key, reason in sorted(scene.live.unknown.items(), key=lambda item: item[0].sort_key):
        yield f"{key} is unknown: {reason}"


def _is_there(scene: Scene, key: Key) -> bool:
    live = scene.live.stream(key) if key.is_stream else scene.live.consumer(key)
    return key in scene.desired.resources or live is not None or bool(scene.live.why_unknown(key))
