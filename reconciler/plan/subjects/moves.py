"""Subjects that move from one stream to another, and subjects that two streams would both listen to.

The server refuses overlaps between streams (10065), so a subject has to be given up before it can be taken.
All streams connected by such moves become one change: one procedure, one key, the other streams in `touches`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import orjson

from reconciler.model import subjects
from reconciler.model.flow import listened
from reconciler.model.identity import Key
from reconciler.plan.change import Action, Change, FieldDiff, Reason
from reconciler.plan.scene import Scene
from reconciler.procedures.move_subject import MoveSubject, StreamTarget

_ANEW_FIRST = "do it in two steps: first make {} anew with the subjects it has now, then move them"
_ANEW_LAST = "do it in two steps: first move the subjects with the rest of {} as it is now, then make it anew"
_CHANGING = frozenset({Action.CREATE, Action.UPDATE, Action.ADOPT, Action.RECREATE})


@dataclass(frozen=True)
class _Board:
    """Who listens to what, now and after all changes."""

    before: Mapping[Key, list[str]]
    after: Mapping[Key, list[str]]
    index: subjects.SubjectIndex[Key]


def _board(scene: Scene, changes: Mapping[Key, Change]) -> _Board:
    before = {key: listened(stream.config, key.name) for key, stream in scene.live.streams.items()}
    after = dict(before)
    for key, change in changes.items():
        if change.action is Action.DELETE:
            after[key] = []
        elif change.action in _CHANGING:
            after[key] = listened(orjson.loads(change.config), key.name)
    index: subjects.SubjectIndex[Key] = subjects.SubjectIndex()
    for key, held in before.items():
        for subject in held:
            index.add(subject, key)
    return _Board(before, after, index)


def _gained(scene: Scene, key: Key, change: Change) -> list[str]:
    """The subjects that a stream begins to listen to."""
    live = scene.live.streams.get(key)
    held = listened(live.config, key.name) if live else []
    return [subject for subject in listened(orjson.loads(change.config), key.name) if not subjects.covered(subject, held)]


def resolve(scene: Scene, changes: Iterable[Change]) -> list[Change]:
    """The changes with moves joined into procedures, and impossible overlaps blocked."""
    everything = list(changes)
    streams = {change.key.stream_key: change for change in everything if change.key.is_stream}
    grows = {key: change for key, change in streams.items() if change.action in _CHANGING and b'"subjects"' in change.config}
    grows |= {key: change for key, change in streams.items() if change.action is Action.CREATE}
    gains = {key: gained for key, change in grows.items() if (gained := _gained(scene, key, change))}
    if not gains:
        return everything
    board = _board(scene, streams)
    links: dict[Key, set[Key]] = {}
    for key, gained in gains.items():
        for subject in gained:
            givers = {other for _, other in board.index.overlapping(subject) if other != key and other.domain == key.domain}
            stuck = sorted(other for other in givers if any(subjects.overlap(subject, held) for held in board.after[other]))
            if stuck:
                streams[key] = _overlap(scene, grows[key], subject, stuck[0])
            for other in givers - set(stuck):
                links.setdefault(key, set()).add(other)
                links.setdefault(other, set()).add(key)
    joined = {change.key.stream_key: change for change in _joined(scene, streams, links)}
    members = {key for key in links if key not in joined}
    others = [change for change in everything if not change.key.is_stream]
    return [*others, *(joined.get(key, change) for key, change in streams.items() if key not in members)]


def _overlap(scene: Scene, change: Change, subject: str, other: Key) -> Change:
    declared = "declared without giving it up" if other in scene.streams else "not declared here"
    way_out = f"take the subject away from {other} first, or narrow one of them"
    reason = Reason("subject-overlap", f"{subject} overlaps what {other} listens to ({declared})", way_out)
    return change.blocked(reason)


def _joined(scene: Scene, streams: Mapping[Key, Change], links: Mapping[Key, set[Key]]) -> Iterable[Change]:
    left = set(links)
    while left:
        group, frontier = set(), [min(left)]
        while frontier:
            key = frontier.pop()
            if key not in group:
                group.add(key)
                frontier.extend(links[key])
        left -= group
        yield from _group(scene, {key: streams[key] for key in sorted(group)})


def _live_config(scene: Scene, key: Key) -> bytes:
    stream = scene.live.stream(key)
    return orjson.dumps(stream.config) if stream else b""


def _not_while_moving(change: Change) -> Change:
    if change.action is Action.CREATE and b'"retention":"interest"' in change.config:
        way_out = "first declare it without those subjects and with its consumers, apply, then move them"
        message = "a new interest stream drops what is published before its consumers exist"
        return change.blocked(Reason("interest-gap", message, way_out))
    if change.action is not Action.RECREATE:
        return change
    way_out = (_ANEW_FIRST if _takes_more(change) else _ANEW_LAST).format(change.key)
    return change.blocked(Reason("depends-on", "a subject moves to or from it, and it would be made anew", way_out))


def _takes_more(change: Change) -> bool:
    """Whether it gets a subject: what is published there meanwhile would go with it when it is made anew."""
    before, after = (listened(orjson.loads(config), change.key.name) for config in (change.live_config, change.config))
    return any(not subjects.covered(subject, before) for subject in after)


def _group(scene: Scene, group: Mapping[Key, Change]) -> Iterable[Change]:
    parts = [_not_while_moving(change) for change in group.values()]
    bad = [change for change in parts if change.action is Action.BLOCKED]
    if bad:
        for change in parts:
            message = f"a subject moves between it and {bad[0].key}, which is blocked"
            reason = Reason("depends-on", message, f"see {bad[0].key}")
            yield change if change in bad else change.blocked(reason)
        return
    kept = [change.key for change in group.values() if change.action is not Action.DELETE]
    lead = min(kept).stream_key
    members = [change for key, change in group.items() if key != lead]
    deleted = [change for change in members if change.action is Action.DELETE]
    needs = {key for change in group.values() for key in change.needs}
    machine = MoveSubject(
        tuple(StreamTarget(change.key, change.config) for change in group.values()),
        tuple(StreamTarget(change.key, _live_config(scene, change.key)) for change in group.values()),
        scene.live.server.level,
    )
    told = [FieldDiff(f"{change.key}.{field.path}", field.live, field.declared) for change in members for field in change.fields]
    yield replace(
        group[lead],
        action=Action.PROCEDURE,
        fields=(*group[lead].fields, *told),
        machine=machine,
        touches=tuple(change.key for change in members),
        needs=tuple(sorted(needs)),
    )
    # What gives its subjects away goes only when they have arrived.
    yield from (replace(change, needs=(*change.needs, group[lead].key)) for change in deleted)
