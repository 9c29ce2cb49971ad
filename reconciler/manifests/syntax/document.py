"""What every parser of manifest text takes and gives: a piece of a file in, documents and problems out.

Invariant: a `Document` is a tree of plain values (dict, list, str, int, float, bool, None) without aliases between its parts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from dataclasses import field as attribute
from typing import NamedTuple

from reconciler.errors import Problem
from reconciler.model.identity import Location

MAX_DEPTH = 64
MAX_DOCUMENT = 8 * 1024 * 1024
MAX_PROBLEMS = 100
"""Of one text; what comes after is cut off with a `too-many-problems`, so that garbage cannot flood memory."""
ENOUGH_PROBLEMS = 1000
"""Of one file, those of its documents included: the rest of a file with so many is not looked at."""

_TYPE_NAMES = {dict: "a mapping", list: "a list", str: "a string", int: "a number", float: "a number", bool: "a boolean"}


@dataclass(frozen=True, slots=True)
class Text:
    """Bytes of a file, or of a run of whole documents within it: where they start is known, so positions are the file's."""

    file: str
    data: bytes
    line: int = 1
    index: int = 0


@dataclass(frozen=True, slots=True)
class Document:
    """One manifest document. `text` is where it was read from, kept for `locate` alone."""

    value: dict[str, object]
    location: Location
    text: Text | None = attribute(default=None, repr=False, compare=False)


class Parsed(NamedTuple):
    """A document with a problem of its own is not among the documents."""

    documents: tuple[Document, ...]
    problems: tuple[Problem, ...]


def join_path(steps: Iterable[str | int]) -> str:
    """`spec.sources[0].name`, as it stands in a `Problem.field`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).removeprefix(".")


def not_a_mapping(value: object) -> str:
    """The message for a document whose root is a list or a scalar."""
    return f"a document is a mapping with apiVersion, kind, metadata and spec, not {_TYPE_NAMES.get(type(value), 'this')}"
