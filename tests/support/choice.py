"""What of all tests `make test` runs, so that it answers in minutes; `make test-all` (pytest's `--all`) runs everything.

- A test is run on the newest server; where servers differ in what it is about (`differs`), on each version under test.
- `diagonal`: of its parametrised cases, so many that each value of each parameter occurs.
- `thorough(also=…)`: none of it; `also` names the test that proves the same promise every time.
- What is random takes `examples(n)`: all of them, or a fifth; `some(cases, n, dice)`: all, or n that the seed chooses.
"""

from __future__ import annotations

import hashlib
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import pytest

from tests.support.server.binaries import NEWEST, versions_named, versions_under_test

T = TypeVar("T")
_everything = False


def run_everything(asked: bool) -> None:
    """Whether `--all` was asked for."""
    global _everything  # noqa: PLW0603 - test modules decide by it while they are imported
    _everything = asked


def examples(number: int) -> int:
    """How many of so many random cases."""
    return number if _everything else number // 5


def some(cases: Sequence[T], number: int, dice: random.Random) -> list[T]:
    """All of them, or so many that the dice choose."""
    return list(cases) if _everything else dice.sample(cases, min(number, len(cases)))


def versions_for(definition: pytest.Item) -> list[str]:
    """The servers that a test is run on."""
    asked = _everything or versions_named() or definition.get_closest_marker("differs") is not None
    since = definition.get_closest_marker("since")
    found = versions_under_test() if asked else (NEWEST,)
    return [version for version in found if since is None or _numbers(version) >= _numbers(since.args[0])]


def every_day(items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    """Those of `make test`."""
    families: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("thorough") is None:
            families[item.nodeid.partition("[")[0]].append(item)
    for family in families.values():
        yield from _diagonal(family) if family[0].get_closest_marker("diagonal") else family


def _diagonal(family: list[pytest.Item]) -> list[pytest.Item]:
    """Cases in which each value of each parameter occurs: few, always the same, and not the same corner for every test."""
    missing = {value for item in family for value in _values(item)}
    chosen: list[pytest.Item] = []
    while missing:
        best = max(family, key=lambda item: (len(missing & _values(item)), hashlib.sha256(item.nodeid.encode()).digest()))
        missing -= _values(best)
        chosen.append(best)
    return [item for item in family if item in chosen]


def _values(item: pytest.Item) -> set[tuple[str, str]]:
    callspec = getattr(item, "callspec", None)
    return {(name, repr(value)) for name, value in callspec.params.items()} if callspec else {("", "")}


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]
