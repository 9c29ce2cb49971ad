r"""Families: subjects that are read through one filter with wildcards, and so always have one worker.

`dc.{tool}.>` declares a family for every value of the second token, `dc.etch01.*.completion` a single one. A partition belongs to
a family when its subject matches; its filter is the pattern with the values of its own subject.

Invariant: a subject belongs to at most one family, and no two filters of a plan match the same subject.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc

from reconciler.model.subjects import is_literal, overlap, problem_with

_VALUE = re.compile(r"\{[A-Za-z_][A-Za-z0-9_]*\}")
_MOST = 9
"""Runs of tokens that a filter keeps: so many groups can be named in a replacement."""
_DOT = r"\."
_LITERAL = r"(?:[^.*>][^.]*|[*>][^.]+)"
_ANY = {"*": r"[^.]+", ">": r"[^.]+(?:\.[^.]+)*"}


@dataclass(frozen=True)
class Family:
    """All families of one declaration."""

    pattern: str

    @cached_property
    def wide(self) -> str:
        """Every subject that may belong to one of them."""
        return ".".join("*" if _VALUE.fullmatch(token) else token for token in self.pattern.split("."))

    @cached_property
    def runs(self) -> list[tuple[bool, list[str]]]:
        """The tokens: those that a filter keeps, then wildcards, and so on in turn."""
        tokens = self.pattern.split(".")
        return [(kept, [*run]) for kept, run in groupby(tokens, lambda token: token not in _ANY)]

    @cached_property
    def expression(self) -> str:
        """Matches their subjects, in the notation that RE2 and Java share; what a filter keeps are groups."""
        runs = ((kept, _DOT.join(map(_expression, tokens))) for kept, tokens in self.runs)
        return rf"\A{_DOT.join(f'({run})' if kept else run for kept, run in runs)}\z"

    def replacement(self, group: str) -> str:
        r"""The filter, its groups named after this sign: `\` for RE2, `$` for Java."""
        numbers = iter(range(1, _MOST + 1))
        return ".".join(f"{group}{next(numbers)}" if kept else ".".join(tokens) for kept, tokens in self.runs)

    def filters(self, subject: pa.Array) -> pa.Array:
        """The filter of each subject; null where it is in none of these families."""
        found = pc.replace_substring_regex(subject, self.expression, self.replacement("\\"))
        return pc.if_else(pc.match_substring_regex(subject, self.expression), found, pa.scalar(None, pa.string()))


def _expression(token: str) -> str:
    if _VALUE.fullmatch(token):
        return _LITERAL
    return _ANY.get(token) or re.sub(r"([!-/:-@\[-^`{-~])", r"\\\1", token)


def filters(subject: pa.Array, families: Iterable[Family]) -> pa.Array:
    """The filter of each subject's family; null for one that is a filter by itself."""
    found = pa.nulls(len(subject), pa.string())
    for family in families:
        found = pc.coalesce(found, family.filters(subject))
    return found


def covering(wild: Iterable[str]) -> list[Family]:
    """Families that have these filters among theirs: one for each order of kept tokens and wildcards."""
    found = {".".join(token if token in _ANY else "{_}" for token in filter_.split(".")) for filter_ in wild}
    return [Family(pattern) for pattern in sorted(found)]


def problems(patterns: Sequence[str]) -> Iterator[tuple[int, str]]:
    """What is wrong with declarations, by their place."""
    sound: list[Family] = []
    for place, pattern in enumerate(patterns):
        family = Family(pattern)
        wrong = _problem(family) or next((f"meets {other.pattern}" for other in sound if overlap(family.wide, other.wide)), "")
        if wrong:
            yield place, wrong
        else:
            sound.append(family)


def _problem(family: Family) -> str:
    values = _VALUE.findall(family.pattern)
    if "{" in family.wide or "}" in family.wide:
        return "has braces that are no whole token: dc.{tool}.> is a family for each tool"
    if len(values) != len(set(values)):
        return "gives two tokens one name"
    if is_literal(family.pattern):
        return "has no wildcard: * stands for one token, > for all that follow"
    if sum(kept for kept, _ in family.runs) > _MOST:
        return f"has more than {_MOST} parts between wildcards"
    return problem_with(family.wide) or ""
