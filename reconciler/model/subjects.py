"""The grammar of subjects: which ones are valid, which contain or meet each other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")

_TOKEN = re.compile(r"[^\s.\x00-\x1f\x7f]+")


def problem_with(subject: str) -> str | None:
    """Why this is not a subject (wildcards allowed), or None when it is one."""
    if not subject:
        return "is empty"
    tokens = subject.split(".")
    for place, token in enumerate(tokens):
        if not token:
            return "has an empty token (two dots in a row, or one at an end)"
        if not _TOKEN.fullmatch(token):
            return "contains white space or control characters"
        if token == ">" and place != len(tokens) - 1:
            return "has `>` before the last token"
    return None


def is_literal(subject: str) -> bool:
    """Whether the subject has no wildcard token."""
    return not any(token in ("*", ">") for token in subject.split("."))


def covers(wide: str, narrow: str) -> bool:
    """Whether every subject matched by `narrow` is matched by `wide`."""
    left, right = wide.split("."), narrow.split(".")
    for place, token in enumerate(left):
        if token == ">":
            return place < len(right)
        if place >= len(right) or right[place] == ">" or (token != "*" and token != right[place]):
            return False
    return len(left) == len(right)


def overlap(one: str, other: str) -> bool:
    """Whether some subject is matched by both."""
    left, right = one.split("."), other.split(".")
    for a, b in zip(left, right, strict=False):
        if ">" in (a, b):
            return True
        if a != b and "*" not in (a, b):
            return False
    return len(left) == len(right)


def covered(subject: str, by: Iterable[str]) -> bool:
    """Whether one of the wider subjects covers this one."""
    return any(covers(wide, subject) for wide in by)


class SubjectIndex(Generic[T]):
    """A trie of subjects that finds every entry a subject overlaps without comparing all pairs."""

    __slots__ = ("children", "values")

    def __init__(self) -> None:
        self.children: dict[str, SubjectIndex[T]] = {}
        self.values: list[tuple[str, T]] = []

    def add(self, subject: str, value: T) -> None:
        """Remember `value` under `subject`."""
        node: SubjectIndex[T] = self
        for token in subject.split("."):
            node = node.children.setdefault(token, SubjectIndex())
        node.values.append((subject, value))

    def overlapping(self, subject: str) -> Iterator[tuple[str, T]]:
        """Every (subject, value) that shares at least one concrete subject with this one."""
        return _overlapping(self, subject.split("."), 0)


def _overlapping(node: SubjectIndex[T], tokens: list[str], place: int) -> Iterator[tuple[str, T]]:
    if place == len(tokens):
        yield from node.values
        return
    token = tokens[place]
    if token == ">":
        for child in node.children.values():
            yield from _everything(child)
        return
    if ">" in node.children:
        yield from node.children[">"].values
    branches = (name for name in node.children if name != ">") if token == "*" else (token, "*")
    for name in branches:
        if name in node.children:
            yield from _overlapping(node.children[name], tokens, place + 1)


def _everything(node: SubjectIndex[T]) -> Iterator[tuple[str, T]]:
    yield from node.values
    for child in node.children.values():
        yield from _everything(child)
