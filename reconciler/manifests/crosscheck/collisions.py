"""Who else wants the same subject.

Invariant: literal subjects, nearly all of them, cost one look into a dict; only wildcards need the index.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, NamedTuple, TypeVar

from reconciler.model.subjects import SubjectIndex, is_literal

T = TypeVar("T")


class Collision(NamedTuple, Generic[T]):
    """Two who would get the same messages: the later one, its subject, and the one before."""

    owner: T
    subject: str
    other: T
    other_subject: str


def collisions(claims: Iterable[tuple[T, Iterable[str]]]) -> Iterator[Collision[T]]:
    """Every subject of an owner that meets a subject of another owner, each subject once."""
    literals: dict[str, T] = {}
    wildcards: SubjectIndex[T] = SubjectIndex()
    any_wildcard = False
    for owner, subjects in claims:
        for subject in subjects:
            if is_literal(subject):
                other = literals.setdefault(subject, owner)
                if other is not owner:
                    yield Collision(owner, subject, other, subject)
                continue
            any_wildcard = True
            hit = next(((s, o) for s, o in wildcards.overlapping(subject) if o is not owner), None)
            if hit:
                yield Collision(owner, subject, hit[1], hit[0])
            wildcards.add(subject, owner)
    for subject, owner in literals.items() if any_wildcard else ():
        hit = next(((s, o) for s, o in wildcards.overlapping(subject) if o is not owner), None)
        if hit:
            yield Collision(owner, subject, hit[1], hit[0])
