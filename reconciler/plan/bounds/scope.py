"""Which part of everything a plan is about: all of it, or what a few keys touch.

Invariant: a plan for a part says about this part what a plan for everything says. So streams are always compared all (a
subject that one takes is one that another gives up), and their consumers where that can make a difference to the part.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from reconciler.model.desired import Desired
from reconciler.model.identity import Key
from reconciler.model.sourcing import durables_read
from reconciler.plan.change import Action, Cause, Change

_WHOLE = frozenset({Action.CREATE, Action.RECREATE, Action.DELETE})


@dataclass(frozen=True, slots=True)
class Part:
    """The streams that a plan is about."""

    touched: Collection[Key]
    """Whose changes it is about."""
    near: Collection[Key]
    """Whose consumers are compared: they can make a difference to those changes."""
    pruned: Collection[Key]
    """Streams of ours that are no longer declared, as far as they can make a difference."""
    everything: bool = True

    def declared(self, desired: Desired) -> int:
        """How many declared resources it is about."""
        if self.everything:
            return len(desired.resources)
        return sum((stream in desired.streams) + len(desired.consumers.get(stream, ())) for stream in self.touched)

    def keys(self, desired: Desired) -> Iterator[Key]:
        """The declared resources it is about."""
        if self.everything:
            yield from desired.resources
            return
        for stream in self.touched:
            if stream in desired.streams:
                yield desired.streams[stream].key
            yield from (declared.key for declared in desired.consumers.get(stream, {}).values())

    def has(self, change: Change) -> bool:
        """Whether it is about a change, for its own sake or for those that it touches."""
        if self.everything or change.key.kind == "WorkerPool":
            return True
        return change.key.stream_key in self.touched or any(key.stream_key in self.touched for key in change.touches)

    def without_removals(self, changes: list[Change]) -> list[Change]:
        """Nothing is removed for not being declared, unless everything was looked at."""
        return changes if self.everything else [change for change in changes if change.cause is not Cause.PRUNE]

    def wanted(self, changes: list[Change]) -> list[Change]:
        """The changes it is about, and those of its neighbours that they need: who carries them out has to know of these."""
        if self.everything:
            return changes
        left = {change.key: change for change in changes}
        frontier = [change for change in changes if self.has(change)]
        found = []
        while frontier:
            change = frontier.pop()
            if left.pop(change.key, None) is not None:
                found.append(change)
                frontier += [left[key] for key in change.needs if key in left]
        return found


def everything(streams: Collection[Key], undeclared: Collection[Key]) -> Part:
    """All that is declared or live."""
    return Part(streams, streams, undeclared)


def touched_by(scope: Iterable[Key], desired: Desired) -> frozenset[Key]:
    """The streams behind keys of any kind; a durable that a stream reads through belongs to that stream, too."""
    pools: Mapping[str, Key] = {name: pool.stream for name, pool in desired.pools.items()}
    keys = list(scope)
    found = (pools.get(key.name) if key.kind == "WorkerPool" else key.stream_key for key in keys)
    durables = durables_read(desired)
    read = (durables[key] for key in keys if key in durables)
    return frozenset((*(key for key in found if key is not None), *read))


def part_of(touched: frozenset[Key], desired: Desired, changes: Iterable[Change], undeclared: frozenset[Key]) -> Part:
    """A part, given all changes of declared streams; where subjects move, all who may give or take them belong to it."""
    near = _with_readers(touched, desired)
    moving = {change.key.stream_key for change in changes if change.key.is_stream and _moves_subjects(change)}
    if touched.isdisjoint(moving) and touched.isdisjoint(undeclared):
        return Part(touched, near, frozenset(), everything=False)
    return Part(touched, near | moving, undeclared, everything=False)


def _with_readers(streams: frozenset[Key], desired: Desired) -> frozenset[Key]:
    """With who reads through durables of these, and where those durables are: how it is read changes all at once."""
    durables = durables_read(desired)
    readers = streams | {reader for durable, reader in durables.items() if durable.stream_key in streams}
    return readers | {durable.stream_key for durable, reader in durables.items() if reader in readers}


def _moves_subjects(change: Change) -> bool:
    whole = change.action in _WHOLE or change.wanted in _WHOLE
    return whole or any(field.path == "subjects" for field in change.fields)
