"""What a walk is about, chosen by its seed: manifests one after the other, and how uneasy it is meanwhile.

Invariants: the same seed gives the same course; what each manifest wants follows from what the one before wanted without
anybody's permission, so that nothing of it may stay undone.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from reconciler.model.desired import Declared, Desired
from reconciler.model.kinds.common import DEFAULT_INTENT, Intent
from tests.support.values.build import consumer, stream
from tests.support.world.declared import RETENTIONS, Entry, managed, own, plain
from tests.support.world.keeper import manifests

MOST_CHANGES = 5
_RECREATED = Intent(allow=frozenset({"recreate"}))
_PAUSED = replace(_RECREATED, pause_until="2026-02-01T00:00:00Z")
_FORMS = ("ephemeral", "c", "d", "u", "v", "c declared", "c transformed", "u transformed", "u elsewhere")
_PICKED = (("c", "d"), ("u", "v", "u elsewhere"))
"""Of an entry with a filter: who moves that between the entry and its durable has to allow duplicates by name."""
_WIDENED = (("c",), ("u",))
"""Of an entry that loses its filter."""
_WORK = ("a", "a b", "a | b")


@dataclass(frozen=True)
class Lane:
    """One entry of the aggregate."""

    number: int
    origin: str
    retention: str
    chosen: str = ""
    """The filter; none where it reads all of its origin."""
    since: int = 0
    """The manifest with which it comes."""
    forms: tuple[str, ...] = _FORMS
    """How it may read."""
    wide: int = 0
    """The manifest with which its filter goes; 0: never."""

    @property
    def subjects(self) -> tuple[str, ...]:
        """What it copies."""
        return (self.chosen,) if self.chosen else (f"{self.origin}.a", f"{self.origin}.b")

    @property
    def durables(self) -> tuple[str, ...]:
        """Whatever it reads through at times."""
        return tuple(f"{one}{self.number}" for one in "cduv")

    def at(self, number: int) -> Lane:
        """As that manifest has it."""
        return replace(self, chosen="") if 0 < self.wide <= number else self

    def declared(self, form: str) -> tuple[Entry, list[Declared]]:
        """Its entry, and the durable that is declared beside it."""
        name = f"{form[0]}{self.number}"
        picked = {"filterSubject": self.chosen} if self.chosen else {}
        source = self.chosen or f"{self.origin}.>"
        if form == "ephemeral":
            return plain(name=self.origin, **picked), []
        if form in ("c", "d"):
            return managed(name, name=self.origin, **picked), []
        if form == "c transformed":
            moved = [{"src": source, "dest": f"moved.{self.number}"}]
            return managed(name, name=self.origin, subjectTransforms=moved), []
        deliver = f"x.{name}" if form == "u elsewhere" else f"dlv.{name}"
        same = {"subjectTransforms": [{"src": source, "dest": source}]} if form == "u transformed" else {}
        filters = {"filterSubjects": [self.chosen]} if self.chosen else {}
        spec = {"ackPolicy": "flow_control", "deliverSubject": deliver, **filters}
        return own(name, deliver, name=self.origin, **same), [consumer(self.origin, name, spec)]


@dataclass(frozen=True)
class Wish:
    """One manifest, before it is written."""

    forms: tuple[str, ...]
    """How each lane reads."""
    worked: str = "a"
    """What ordinary consumers do: `a`, `a b` (one does both) or `a | b` (each its own)."""
    paused: bool = False
    """One of them shall stand still."""
    waiting: int = 512
    """A field of it that no update can change."""
    moved: bool = False
    """The subject `p.x` is the other stream's."""
    words: int = 0
    """A description, which takes a plain update of all that is there."""


@dataclass(frozen=True)
class Mood:
    """How often something happens, for each request of a process; and what does not at all."""

    killed: float = 0.0
    refused: float = 0.0
    silent: float = 0.0
    elected: float = 0.0
    lags: float = 0.0
    meddled: float = 0.0
    slow: float = 0.0


@dataclass(frozen=True)
class Course:
    """All of a walk but its chances."""

    seed: int
    level: int
    lanes: tuple[Lane, ...]
    worked: str
    """The retention of the stream with an ordinary consumer; empty: there is none."""
    moves: bool
    wishes: tuple[Wish, ...]
    mood: Mood = field(default_factory=Mood)
    most: int = 0
    """How often the manifests shall change."""
    pauses: bool = False
    """An ordinary consumer is paused at times; else its filters change: a filter that waits does not go without permission."""

    @property
    def changes(self) -> int:
        """How often the manifests change."""
        return len(self.wishes) - 1

    def manifests(self, number: int) -> Desired:
        """What is declared then."""
        return manifests(*self._declared(number))

    def _declared(self, number: int) -> Iterator[Declared]:
        wish = self.wishes[number]
        words = {"description": f"words {wish.words}"} if wish.words else {}
        entries: list[Entry] = []
        for origin, retention in {lane.origin: lane.retention for lane in self.lanes}.items():
            yield stream(origin, {"subjects": [f"{origin}.>"], "retention": retention, **words})
        for lane, form in zip(self.lanes, wish.forms, strict=True):
            if lane.since <= number:
                entry, durables = lane.at(number).declared(form)
                entries.append(entry)
                yield from durables
        passed = Intent(allow=frozenset({"position-loss"})) if any(lane.wide for lane in self.lanes) else DEFAULT_INTENT
        yield stream("A", {"subjects": ["own.>"], "sources": entries, **words}, passed)
        if self.worked:
            yield from self._worked(wish, words)
        if self.moves:
            yield stream("P", {"subjects": ["p.a"] if wish.moved else ["p.a", "p.x"], **words})
            yield stream("Q", {"subjects": ["p.b", "p.x"] if wish.moved else ["p.b"], **words})

    def _worked(self, wish: Wish, words: dict[str, Any]) -> Iterator[Declared]:
        yield stream("W", {"subjects": ["w.>"], "retention": self.worked, **words})
        for name, does in zip("ce", wish.worked.split(" | "), strict=False):
            spec = {"filterSubjects": [f"w.{one}" for one in does.split()], "ackWait": "2s", "maxWaiting": wish.waiting, **words}
            yield consumer("W", name, spec, _PAUSED if wish.paused and name == "c" else _RECREATED)
        if self.worked == "interest":
            yield consumer("W", "other", {"filterSubject": "w.>"})


def course_of(seed: int, most: int = MOST_CHANGES) -> Course:
    """What the seed chooses."""
    dice = random.Random(f"course {seed}")
    changes = dice.randint(1, most)
    lanes = _lanes(dice, changes)
    worked = dice.choice(("", *RETENTIONS))
    moves = dice.random() < 0.3
    first = Wish(tuple(dice.choice(lane.forms) for lane in lanes), dice.choice(_WORK))
    course = Course(seed, dice.choice((4, 5)), lanes, worked, moves, (first,), _mood(dice), changes, dice.random() < 0.25)
    for number in range(1, changes + 1):
        course = replace(course, wishes=(*course.wishes, _next(course.wishes[-1], number, course, dice)))
    return course


def _lanes(dice: random.Random, changes: int) -> tuple[Lane, ...]:
    count = dice.choice((1, 1, 2, 2, 3))
    if count > 1 and dice.random() < 0.5:  # of one origin
        retention = dice.choice(RETENTIONS)
        found = [Lane(number, "S", retention, f"S.{'abc'[number]}", forms=dice.choice(_PICKED)) for number in range(count)]
    else:
        found = [Lane(number, f"S{number}", dice.choice(RETENTIONS)) for number in range(count)]
        if dice.random() < 0.2:
            form = dice.choice(_WIDENED)
            found[0] = replace(found[0], chosen=f"{found[0].origin}.a", forms=form, wide=dice.randint(1, changes))
    if count > 1 and dice.random() < 0.3:
        found[-1] = replace(found[-1], since=dice.randint(1, changes))
    return tuple(found)


def _next(before: Wish, number: int, course: Course, dice: random.Random) -> Wish:
    read = zip(course.lanes, before.forms, strict=True)
    wish = replace(before, forms=tuple(dice.choice(lane.forms) if dice.random() < 0.7 else form for lane, form in read))
    worked, moves = course.worked, course.moves
    if worked and course.pauses:
        wish = replace(wish, paused=dice.random() < 0.3 and number < course.most)
    elif worked and dice.random() < 0.5:
        wish = replace(wish, worked=dice.choice(_WORK))
    if worked and dice.random() < 0.3:
        wish = replace(wish, waiting=512 + number)
    if moves and dice.random() < 0.5:
        wish = replace(wish, moved=not wish.moved)
    return replace(wish, words=number) if dice.random() < 0.3 or wish == before else wish


def _mood(dice: random.Random) -> Mood:
    def sometimes(share: float, *rates: float) -> float:
        return dice.choice(rates) if dice.random() < share else 0.0

    return Mood(
        killed=sometimes(0.75, 0.01, 0.03, 0.1),
        refused=sometimes(0.4, 0.02, 0.06),
        silent=sometimes(0.4, 0.01, 0.04),
        elected=sometimes(0.2, 0.01),
        lags=sometimes(0.08, 0.01),
        meddled=sometimes(0.25, 0.05, 0.2),
        slow=sometimes(0.15, 0.02),
    )
