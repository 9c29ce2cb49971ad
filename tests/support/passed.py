"""What `make test` has passed on the same files a moment ago, `make test-all` need not run again: `.ci/run` asks for that.

`RECONCILER_PASSED` names a file: a run without `--all` writes into it, one with `--all` reads it, and says so. Without it every
run is complete by itself.

Invariant: only tests that do the very same in both. Where a module has a part of its cases chosen (`examples`, `some`), all of it
is run again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.support import choice, promises

_FILE = "RECONCILER_PASSED"
_CHOOSING = (choice.examples, choice.some)
_left_out = 0


def write(passed: Iterable[Any]) -> None:
    """After a run without `--all`: its reports of what passed, and which promises were kept in it."""
    path = os.environ.get(_FILE)
    if path:
        names = sorted({name_of(report.nodeid) for report in passed if report.when == "call"})
        Path(path).write_text(json.dumps({"passed": names, "promises": sorted(promises.seen())}), encoding="utf-8")


def read() -> frozenset[str]:
    """Before a run with `--all`: what passed; the promises that were kept there count."""
    path = Path(os.environ.get(_FILE) or os.devnull)
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    found = json.loads(text) if text else {"passed": [], "promises": []}
    promises.saw(found["promises"])
    return frozenset(found["passed"])


def leaves_out(number: int) -> None:
    """So many tests are not run again; each process that runs tests says the same."""
    global _left_out  # noqa: PLW0603 - as `choice`: a run is one
    _left_out = number or _left_out


def left_out() -> int:
    """How many are not."""
    return _left_out


def is_the_same(item: pytest.Item) -> bool:
    """Whether it is no more with `--all` than without."""
    module = getattr(item, "module", None)
    return module is not None and not any(value in _CHOOSING for value in vars(module).values() if callable(value))


def name_of(node: str) -> str:
    """A test's name without the group that is shared by one process (see `groups`)."""
    path, _, name = node.partition("::")
    return f"{path}::{name.partition('@')[0]}"
