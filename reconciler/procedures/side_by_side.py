"""Parts of one procedure side by side: one look for all of them, and one write for what they want of a resource they share.

    look at every part that goes on ▸ each takes its next step by it ▸ what they ask ▸ what they do ▸ their edits, folded into one

A look dies with the first write to what it shows, and of age; then each part that is still due is looked at alone. Parts that
must not meet have the same lock, and go one after the other: the next one begins when the one before is settled. No part holds a
lock while it waits for another one, so none waits for ever.

Invariant: pure, no task for each part; a part that waits for its lock has read nothing and owns nothing. What is remembered here
spares work: with all of it lost, the parts find their way by what the server shows.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from reconciler.model.identity import Key
from reconciler.procedures.machine import Abort, Ask, Do, Observation, Step, Wait
from reconciler.procedures.requests import ConsumerInfo, Fact, LastCopied, Read, changed_by

FRESH = 250 * 10**6
"""How long a look at all counts."""
TOGETHER = 20 * 10**9
"""How long edits wait for those of other parts: longer than messages take to flow."""


@dataclass(frozen=True, slots=True)
class Edit:
    """What a part wants of a resource that it shares with the others."""

    what: Any
    title: str
    memory: Any = None
    final: bool = False


PartStep = Step | Edit
"""What one part wants to be done."""


@dataclass(frozen=True, slots=True)
class Course:
    """How far the parts are."""

    parts: Mapping[int, Any] = field(default_factory=dict)
    """What each part remembers."""
    settled: frozenset[int] = frozenset()
    """Those that want nothing, as seen when they were looked at last."""
    due: tuple[tuple[int, Do], ...] = ()
    """What the last look gave to do at what parts have for themselves, in this order."""
    looked_at: int = 0
    beside: tuple[Read, ...] = ()
    """What else is looked at once a wait is over."""
    together_since: int = 0
    """Since when edits wait for those of others."""
    giving_up: Abort | None = None

    def with_memory(self, steps: Iterable[tuple[int, Ask | Do | Wait | Edit]]) -> Course:
        """With what these parts remember."""
        return replace(self, parts={**self.parts, **{number: step.memory for number, step in steps}})


class Parts(Protocol):
    """Whoever is made of parts."""

    @property
    def locks(self) -> Sequence[Hashable]:
        """One for each part."""
        ...

    @property
    def shared(self) -> tuple[Read, ...]:
        """What every part goes by."""
        ...

    def consumers(self, number: int) -> Sequence[Key]:
        """What this part looks at and writes to besides: nobody else who goes on does."""
        ...

    def part_step(self, number: int, look: Observation, course: Course) -> PartStep | None:
        """What this part wants next; None when it is settled."""
        ...

    def folded(self, edits: Iterable[Any], look: Observation) -> Do:
        """One write for what several parts want."""
        ...

    def finish(self, look: Observation) -> Step:
        """What is left once all are settled."""
        ...


def side_by_side(parts: Parts, observation: Observation, memory: Course | None) -> Step:
    """The next thing to do."""
    course = memory or Course()
    if observation.failure:
        if course.giving_up:
            return course.giving_up
        course = _giving_up(course, Abort("refused", observation.failure))
    alone = [number for number, _ in course.due[:1]]
    fresh = observation.now - course.looked_at < FRESH
    if alone and fresh and _reads(parts, alone[0]) <= observation.facts.keys():
        return _send(parts, course, observation.facts)
    going = alone or _going(parts.locks, course)
    keys = dict.fromkeys(key for number in going for key in parts.consumers(number))
    reads: tuple[Read, ...] = (*parts.shared, *map(ConsumerInfo, keys))
    if any(read not in observation.facts for read in reads):
        return Ask((*reads, *course.beside), replace(course, beside=()))
    look = Observation(observation.now, observation.facts)
    steps = {number: parts.part_step(number, look, course) for number in going}
    abort = next((step for step in steps.values() if isinstance(step, Abort)), None)
    if abort:
        return side_by_side(parts, look, _giving_up(course, abort))
    moving = {number: step for number, step in steps.items() if step is not None}
    course = replace(course, settled=course.settled.union(going) - moving.keys())
    if alone and not isinstance(moving.get(alone[0]), Ask | Do):
        again = Observation(look.now, {})
        return side_by_side(parts, again, replace(course, due=course.due[1:]))  # it comes once more in the next round
    if moving:
        return _round(parts, look, course, moving)
    if len(going) < len(parts.locks):
        return side_by_side(parts, look, course)
    step = course.giving_up or parts.finish(look)
    return replace(step, memory=course) if isinstance(step, Do) else step


def _giving_up(course: Course, reason: Abort) -> Course:
    return replace(course, giving_up=course.giving_up or reason, settled=frozenset(), due=())


def _going(locks: Sequence[Hashable], course: Course) -> Sequence[int]:
    """The parts that go on: one of each lock, and once all are settled, each of them is looked at once more."""
    first: dict[Hashable, int] = {}
    for number, lock in enumerate(locks):
        if number not in course.settled:
            first.setdefault(lock, number)
    return tuple(first.values()) or range(len(locks))


def _reads(parts: Parts, number: int) -> frozenset[Read]:
    return frozenset(map(ConsumerInfo, parts.consumers(number)))


def _round(parts: Parts, look: Observation, course: Course, moving: Mapping[int, PartStep]) -> Step:
    """Questions first, then what each part does for itself, then the edits of all of them."""
    asks = {number: step for number, step in moving.items() if isinstance(step, Ask)}
    if asks:  # all of the look once more, too: it is of one moment
        more = (read for step in asks.values() for read in step.reads)
        return Ask(tuple(dict.fromkeys((*look.facts, *more))), course.with_memory(asks.items()))
    due = tuple((number, step) for number, step in moving.items() if isinstance(step, Do))
    if course.due:
        return _send(parts, replace(course, due=(*due, *course.due[1:])), look.facts)
    waits = {number: step for number, step in moving.items() if isinstance(step, Wait)}
    edits = {number: step for number, step in moving.items() if isinstance(step, Edit)}
    course = course.with_memory(waits.items())
    if due:
        return _send(parts, replace(course, due=due, looked_at=look.now), look.facts)
    since = course.together_since or look.now
    if edits and (not waits or look.now - since > TOGETHER):
        step = parts.folded((edit.what for edit in edits.values()), look)
        return replace(step, memory=replace(course.with_memory(edits.items()), together_since=0), **_told(edits.values()))
    first = min(waits.values(), key=lambda wait: wait.until)
    beside = tuple(read for read in look.facts if isinstance(read, LastCopied))
    return replace(first, memory=replace(course, together_since=since if edits else 0, beside=beside))


def _told(edits: Iterable[Edit]) -> dict[str, Any]:
    """How a write for several edits is called, and whether it is final."""
    titles = [edit.title for edit in edits]
    more = f", and {len(titles) - 1} more" if len(titles) > 1 else ""
    return {"title": f"{titles[0]}{more}", "final": any(edit.final for edit in edits)}


def _send(parts: Parts, course: Course, facts: Mapping[Read, Fact]) -> Step:
    """The next of what the look has given to do; what others go by still counts, but after a write to a stream."""
    (number, step), *rest = course.due
    own = _reads(parts, number)
    keeps = tuple(read for read in facts if read not in own) if changed_by(step.write).kind == "Consumer" else ()
    memory = replace(course.with_memory([(number, step)]), due=tuple(rest))
    return replace(step, memory=memory, keeps=keeps)
