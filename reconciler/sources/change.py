"""Streams that copy through durables: what has to change about their entries and durables becomes one change of the stream.

Invariant: durables, and user-declared consumers that are caught up in a migration, have no change of their own beside it;
where nothing of the kind is needed, a plain change stays plain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from reconciler.model.desired import Declared
from reconciler.model.flow import copies
from reconciler.model.identity import Key
from reconciler.model.normal import canonical
from reconciler.model.seen.live import LiveStream
from reconciler.plan import losses
from reconciler.plan.change import Action, Cause, Change, FieldDiff, Reason, not_seen, suspended, update_prevented
from reconciler.plan.comparing import diff
from reconciler.plan.comparing.difference import compare
from reconciler.plan.decide import outline
from reconciler.plan.faults import guarded
from reconciler.plan.scene import Scene
from reconciler.procedures.consumer import ConsumerSeen
from reconciler.procedures.move_subject import StreamTarget
from reconciler.sources.entries import EntryChange, origin_info, origin_subjects, readers, recreated
from reconciler.sources.judge import Judge, Move, drops, move_of
from reconciler.sources.migration.migrate import MigrateSource, Slot
from reconciler.sources.regrouping import regrouped
from reconciler.sources.unfinished import settled
from reconciler.sources.words import point_of_no_return, steps, warnings

_HELD = {"suspended", "prevented"}
"""What keeps a change from being begun, but not from being finished: a paused durable would be left behind."""
_ANOTHER = (Move.ADD, Move.TAKE, Move.LEAVE, Move.RENAME)
"""An entry is read through another durable, or through none, by its manifest: until that changes, nothing is to be done."""
_ANEW_FIRST = "do it in two steps: first make it anew with the `sources` it has now, then change them"
_ANEW_LAST = "do it in two steps: first change its `sources` with the rest as it is now, then make it anew"
_CAUSES = {Move.RESTORE: Cause.MISSING, Move.REFRESH: Cause.DRIFT}


@dataclass(frozen=True, slots=True)
class _Work:
    """One entry with what is to be done about it."""

    reader: EntryChange
    move: Move
    retention: str
    slot: Slot
    again: int | None = None
    """How many messages are copied again at most: somebody allowed that, or nothing was copied; None: it takes care of that."""


def resolve(scene: Scene, streams: Iterable[Key], changes: Iterable[Change]) -> list[Change]:
    """The changes, with those of streams that copy through durables made whole."""
    found = {change.key: change for change in changes}
    for key in streams:
        declared = scene.streams.get(key)
        seen = scene.live.streams.get(key)
        if declared is not None and seen is None and (why := scene.live.why_unknown(key)):
            found.update(_kept_as_they_are(scene, key, why, found))
            continue
        if declared is None or not (_copies(declared, seen) or key in scene.kept_durables):
            continue
        change = guarded(scene, declared.key, partial(_of_stream, scene, declared, seen, found))
        if change is not None:
            for member in change.touches:
                if not _says_why(found.get(member)):
                    found.pop(member, None)
            found[declared.key] = change
    return list(found.values())


def _kept_as_they_are(scene: Scene, key: Key, why: str, found: Mapping[Key, Change]) -> Iterator[tuple[Key, Change]]:
    """The durables of a stream that does not answer: how it reads through them by now, nobody knows."""
    reason = not_seen(f"{key} reads through it, and could not be read: {why}", key)
    for durable, stream in scene.read_durables.items():
        change = found.get(durable) if stream == key else None
        if change is not None and change.action is not Action.BLOCKED:
            yield durable, change.blocked(reason)


def _copies(declared: Declared, seen: LiveStream | None) -> bool:
    return copies(declared.wire) or (seen is not None and copies(seen.raw))


def _says_why(member: Change | None) -> bool:
    """Whether the change of a durable is in the way by itself."""
    return member is not None and member.action is Action.BLOCKED and not member.continues


def _of_stream(scene: Scene, declared: Declared, seen: LiveStream | None, changes: Mapping[Key, Change]) -> Change | None:
    """The stream's change with its durables in it; None where it stays as it is."""
    change = changes.get(declared.key)
    adopting = change is not None and Action.ADOPT in (change.action, change.wanted)
    if seen and not scene.ours(declared.key, seen) and not adopting:
        return None
    difference = compare(scene, declared, seen) if seen else None
    entries = readers(scene, declared, difference, changes)
    work = [_work(scene, declared, reader, move) for reader, move in _due(scene, entries)]
    work.sort(key=lambda one: one.reader.live is not None or one.reader.wanted is not None)  # what is left over is in the way
    regrouping, passing = losses.permitted(scene, declared.key, regrouped(scene, entries))
    if not (work or regrouping):
        notes = (*passing, *(_begins_late(scene, entries) if change and _is_remade(change) else ()))
        return replace(change, notes=(*change.notes, *notes)) if change and notes else None
    continues = any(one.move is Move.CONTINUE for one in work)
    if change is not None and continues and {reason.code for reason in change.reasons} <= _HELD:
        change = replace(change, action=change.wanted or change.action, reasons=())
    if change is None:
        if difference is None:
            return None
        change = replace(outline(scene, difference, Action.PROCEDURE), cause=_cause(scene, work))
    found_ = dict.fromkeys((*_remade(change, work), *regrouping, *_reasons(scene, declared, work, changes)))
    against, allowed = losses.permitted(scene, declared.key, found_)
    reasons = (*change.reasons, *against)
    fields, notes = (*change.fields, *_fields(scene, work)), (*change.notes, *passing, *allowed)
    change = replace(change, fields=fields, notes=notes, gone=tuple(_gone(scene, work)))
    if reasons:
        waiting = [one.target.key for one in entries if one.target] if regrouping else []
        blocked = replace(change.blocked(*reasons), touches=tuple(dict.fromkeys((*_touched(work), *waiting))))
        begun = [(one.reader, one.slot) for one in work if one.move is Move.CONTINUE]
        return (settled(scene, blocked, seen, begun) if seen and begun else None) or blocked
    return _with_machine(scene, change, work)


def _due(scene: Scene, entries: Iterable[EntryChange]) -> list[tuple[EntryChange, Move]]:
    due = []
    for reader in entries:
        if _waits_for_origin(scene, reader):
            continue
        current = recreated(scene, reader)
        move = move_of(scene, current)
        if move is not None:
            due.append((current, move))
    return due


def _waits_for_origin(scene: Scene, reader: EntryChange) -> bool:
    """Whether the origin is still to be made: its durable, and what was copied before, are looked at once it is there."""
    return reader.live is not None and reader.origin in scene.streams and reader.origin not in scene.live.streams


def _work(scene: Scene, declared: Declared, reader: EntryChange, move: Move) -> _Work:
    info = origin_info(scene, reader)
    origin = reader.origin or reader.stream
    declared_origin = scene.streams.get(origin)
    config = info["config"] if info else declared_origin.config if declared_origin else {}
    retention = config.get("retention", "limits")
    afresh = move in (Move.TAKE, Move.RENAME) and scene.allows(losses.POSITION_LOSS, declared.key) and reader.target is not None
    repeats = afresh and any(Judge(scene, declared.key, reader, move).positions())
    slot = Slot(
        origin=origin,
        before=b"" if repeats or reader.anew or reader.live is None else canonical(reader.live),
        after=canonical(reader.wanted) if reader.wanted else b"",
        said=canonical(reader.said) if reader.said else b"",
        durable=reader.target,
        old=None if repeats else reader.old,
        drop_old=drops(scene, reader),
        retention=retention,
        subjects=origin_subjects(info),
        skips=scene.allows(losses.POSITION_LOSS, declared.key),
        made=str(info["created"]) if info else "",
    )
    gone = reader.anew or (reader.stands_in and (reader.old is None or scene.live.consumer(reader.old) is None))
    again = (info["state"]["messages"] if info else 0) if repeats else 0 if gone else None
    return _Work(reader, move, retention, slot, again)


def _cause(scene: Scene, work: list[_Work]) -> Cause:
    found = {_cause_of(scene, one) for one in work}
    return next((cause for cause in (Cause.MANIFEST, Cause.MISSING, Cause.UNKNOWN) if cause in found), Cause.DRIFT)


def _cause_of(scene: Scene, one: _Work) -> Cause:
    target = one.reader.target
    if one.reader.anew or one.reader.stands_in:
        return Cause.DRIFT
    if one.move is Move.RESTORE and target and scene.live.why_unknown(target.key):
        return Cause.UNKNOWN
    seen = scene.live.consumer(target.key) if target else None
    if one.move is Move.EXCHANGE and one.reader.unchanged and target and seen and seen.spec == target.marker.spec:
        return Cause.DRIFT
    return _CAUSES.get(one.move, Cause.MANIFEST)


def _gone(scene: Scene, work: list[_Work]) -> Iterable[Key]:
    """The durables that are to be made again; of one that does not answer nobody knows."""
    targets = [one.reader.target.key for one in work if one.move is Move.RESTORE and one.reader.target]
    return (key for key in targets if not scene.live.why_unknown(key))


def _reasons(scene: Scene, declared: Declared, work: list[_Work], changes: Mapping[Key, Change]) -> Iterable[Reason]:
    for one in work:
        yield from Judge(scene, declared.key, one.reader, one.move).reasons()
        target = one.reader.target
        consumer = changes.get(target.key) if target and not one.reader.managed else None
        if consumer is not None and _says_why(consumer):
            yield Reason("depends-on", f"it needs {consumer.key}, which is blocked", f"see {consumer.key}")
    if any(one.move is Move.CONTINUE for one in work):
        return
    if declared.intent.prevent_update and any(one.move is not Move.RESTORE for one in work):
        yield update_prevented()
    if declared.intent.suspend:
        yield suspended(declared.key)


def _remade(change: Change, work: list[_Work]) -> Iterable[Reason]:
    """A stream that is made anew has copied nothing: no durable can go on from where another one stood.

    So where one comes, it comes afterwards; and of one that goes, the plan can still say where it stands.
    """
    if _is_remade(change):
        anew_first = work and all(one.move in _ANOTHER for one in work)
        message = "the stream would be made anew, and how it reads would change at once"
        yield Reason("depends-on", message, _ANEW_FIRST if anew_first else _ANEW_LAST)


def _is_remade(change: Change) -> bool:
    return Action.RECREATE in (change.action, change.wanted)


def _begins_late(scene: Scene, entries: Iterable[EntryChange]) -> Iterable[str]:
    """What a stream that is made anew will not have: a durable that stays goes on from where it stands."""
    for reader in entries:
        seen = scene.live.consumer(reader.old) if reader.old else None
        floor = ConsumerSeen(seen.info).floor if seen else 0
        if floor:
            yield (
                f"it goes on behind sequence {floor:,} of {reader.origin or reader.stream}, where {reader.old} stands: "
                "what comes before will be missing, unless the stream and the durable are deleted first, in a step of their own"
            )


def _fields(scene: Scene, work: list[_Work]) -> Iterable[FieldDiff]:
    """What differs in durables that are there."""
    for one in work:
        target = one.reader.target
        seen = scene.live.consumer(target.key) if target else None
        if target is None or seen is None or one.move is Move.CONTINUE:
            continue
        wanted, live = scene.normal(target.key, target.wire), scene.normal(target.key, seen.config)
        for field in diff.fields(target.key, wanted, live, scene.defaults):
            yield replace(field, path=f"{target.key}.{field.path}")


def _touched(work: list[_Work]) -> tuple[Key, ...]:
    return tuple(dict.fromkeys(key for one in work for key in one.slot.keys))


def _told(one: _Work) -> tuple[str, ...]:
    if one.again is None:
        left = one.slot.old if one.move is Move.ADD and one.slot.drop_old else None
        room = (f"delete {left.name}, which makes room",) if left else ()
        return (*room, *steps(one.reader, one.move, one.retention))
    return (*steps(one.reader, Move.ADD, one.retention), f"read {one.slot.origin} through {one.reader.new_name}")


def _with_machine(scene: Scene, change: Change, work: list[_Work]) -> Change:
    told = [line for one in work if one.move is not Move.REMOVE for line in _told(one)]
    updates = change.action in (Action.UPDATE, Action.ADOPT) or any(one.move in (Move.ADD, Move.REMOVE) for one in work)
    name = change.key.stream_name
    if change.action is Action.CREATE:
        told.append(f"create {name}")
    elif updates and change.fields:
        told.append(f"update {name}")
    told += [line for one in work if one.move is Move.REMOVE for line in _told(one)]
    careful = [one for one in work if one.again is None]
    finals = [text for one in careful if (text := point_of_no_return(one.reader, one.move, one.retention))]
    notes = tuple(dict.fromkeys(note for one in work for note in warnings(scene, one.reader, one.move)))
    machine = MigrateSource(
        StreamTarget(change.key, change.config),
        tuple(one.slot for one in work),
        steps=tuple(told),
        final=finals[0] if finals else "",
        duplicates=sum(one.again or 0 for one in work),
        notes=notes,
    )
    spoken = (one.reader.spoken for one in work if one.reader.stands_in)
    stood_for = [key for key in spoken if key and key in scene.desired.resources]
    kept = change.action in (Action.CREATE, Action.ADOPT)
    return replace(
        change,
        action=change.action if kept else Action.PROCEDURE,
        machine=machine,
        continues=any(one.move is Move.CONTINUE for one in work),
        touches=tuple(dict.fromkeys((*machine.touches, *stood_for))),
        notes=(*change.notes, *notes),
    )
