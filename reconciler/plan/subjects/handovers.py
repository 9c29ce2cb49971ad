"""What has to be in place before what, when subjects change hands between the consumers of one stream.

| retention | rule | why |
|---|---|---|
| interest | who takes a subject goes before who gives it up | what nobody wants is acknowledged and dropped |
| interest | who takes a subject goes before the stream begins to store it, or turns from limits to interest | the same |
| workqueue | who gives a subject up goes before who takes it | it may have only one reader (a cluster accepts two) |
| any | procedures of its consumers go before consumer limits of a stream that fall | no limit may be below a consumer's |

On limits the order does not matter: what is stored stays, and who takes a subject is moved back to it.
Invariant: the order this asks for has no circle; what stands in one is blocked.
"""

from __future__ import annotations

import graphlib
from collections.abc import Iterable, Mapping
from dataclasses import replace

import orjson

from reconciler.model.flow import listened
from reconciler.model.identity import Key
from reconciler.model.subjects import SubjectIndex, covered
from reconciler.plan.change import Action, Change, Reason
from reconciler.plan.order import limits_fall
from reconciler.plan.scene import Scene
from reconciler.procedures.consumer import delivered_by

_STREAM_FIRST = frozenset({"consumerLimits", "maxConsumers", "replicas"})
"""Fields of a stream that its consumers may have to wait for."""

Needs = dict[Key, set[Key]]


def linked(scene: Scene, changes: Iterable[Change]) -> list[Change]:
    """The changes, each knowing which others it needs; those that need each other are blocked."""
    everything = _limits_last(list(changes))
    turning = {change.key.stream_key: change for change in everything if change.key.is_stream and _turns_to_interest(change)}
    read = {change.key.stream_key for change in everything if change.key.kind == "Consumer"}
    retentions = {stream: "interest" if stream in turning else _retention(scene, stream) for stream in read}
    groups: dict[Key, list[Change]] = {stream: [] for stream, retention in retentions.items() if retention != "limits"}
    if not groups:
        return everything
    for change in everything:
        if change.key.kind == "Consumer" and change.key.stream_key in groups:
            groups[change.key.stream_key].append(change)
    needs: Needs = {}
    takers = {stream: _takers(group) for stream, group in groups.items()}
    for stream, group in groups.items():
        _between_consumers(group, takers[stream], needs, queue=retentions[stream] == "workqueue")
    tangled = {
        change.key
        for change in everything
        if change.key.is_stream
        and retentions.get(stream := change.key.stream_key) == "interest"
        and not _before_growth(change, takers[stream], needs, all_of_it=stream in turning)
    }
    circle = _circle(needs)
    changes = (_both_at_once(change) if change.key in tangled else change for change in everything)
    return [_swap(c) if c.key in circle else _needing(c, needs.get(c.key, set())) for c in changes]


def _limits_last(changes: list[Change]) -> list[Change]:
    """The server refuses consumer limits below what a consumer has: a stream waits for the procedures of its consumers."""
    falling = {change.key.stream_key for change in changes if change.key.is_stream and limits_fall(change)}
    if not falling:
        return changes
    needs: Needs = {stream: set() for stream in falling}
    for change in changes:
        if change.key.kind == "Consumer" and change.machine is not None and change.key.stream_key in falling:
            needs[change.key.stream_key].add(change.key)
    return [_needing(c, needs.get(c.key.stream_key, set())) if c.key.is_stream else c for c in changes]


def _retention(scene: Scene, key: Key) -> str:
    """Of the stream as it is; one that is yet to be made stores nothing that could be lost."""
    stream = scene.live.stream(key)
    if stream is None or not (b'"interest"' in stream.raw or b'"workqueue"' in stream.raw):
        return "limits"
    return str(stream.config.get("retention", "limits"))


def _turns_to_interest(change: Change) -> bool:
    return any(field.path == "retention" and field.declared == "interest" for field in change.fields)


def _filters(config: bytes) -> tuple[str, ...]:
    return delivered_by(orjson.loads(config)) if config else ()


def _without(filters: Iterable[str], others: tuple[str, ...]) -> list[str]:
    return [subject for subject in filters if not covered(subject, others)]


def _takers(group: list[Change]) -> SubjectIndex[Key]:
    """Who will want what it does not want now."""
    index: SubjectIndex[Key] = SubjectIndex()
    for change in group:
        for subject in _without(_filters(change.config), _filters(change.live_config)):
            index.add(subject, change.key)
    return index


def _between_consumers(group: list[Change], takers: SubjectIndex[Key], needs: Needs, *, queue: bool) -> None:
    for giver in group:
        for given in _without(_filters(giver.live_config), _filters(giver.config)):
            for _, taker in takers.overlapping(given):
                if taker != giver.key:
                    first, then = (giver.key, taker) if queue else (taker, giver.key)
                    needs.setdefault(then, set()).add(first)


def _before_growth(change: Change, takers: SubjectIndex[Key], needs: Needs, *, all_of_it: bool) -> bool:
    """Lets a stream wait for those who will read what it begins to store; False when they in turn have to wait for it."""
    if not change.config or not change.live_config:
        return True
    held = [] if all_of_it else listened(orjson.loads(change.live_config), change.key.stream_name)
    grown = _without(listened(orjson.loads(change.config), change.key.stream_name), tuple(held))
    readers = {taker for subject in grown for _, taker in takers.overlapping(subject)}
    if readers and _STREAM_FIRST & {field.path for field in change.fields}:
        return False
    if readers:
        needs.setdefault(change.key, set()).update(readers)
    return True


def _circle(needs: Needs) -> frozenset[Key]:
    """Everything that needs itself by way of others."""
    left: Mapping[Key, set[Key]] = needs
    found: set[Key] = set()
    while True:
        try:
            graphlib.TopologicalSorter(left).prepare()
        except graphlib.CycleError as error:
            found.update(error.args[1])
            left = {key: others - found for key, others in needs.items() if key not in found}
        else:
            return frozenset(found)


def _needing(change: Change, needs: set[Key]) -> Change:
    return replace(change, needs=tuple(sorted({*change.needs, *needs}))) if needs else change


def _swap(change: Change) -> Change:
    if change.action is Action.BLOCKED:
        return change
    message = "it swaps subjects with another consumer: whichever goes first, one of them is wanted by nobody or by both"
    way_out = "do it in two steps (interest: first let both have the subjects; workqueue: first take them away)"
    reason = Reason("swap", message, way_out)
    return change.blocked(reason)


def _both_at_once(change: Change) -> Change:
    message = "it begins to store subjects whose readers wait for its other changes: what nobody reads yet would be dropped"
    way_out = "first change consumerLimits, maxConsumers and replicas, then the subjects"
    return change.blocked(Reason("interest-gap", message, way_out))
