"""Tests that a machine lacks something for: the last lines of a run count and name them, and say what brings it.

The processes that run tests only send reports; what is skipped is known from those.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator
from typing import NoReturn

import pytest

NO_SPARK = "without Spark: "
"""What the reason of such a skip begins with; what is missing follows, and the command that brings it."""
_LACK = re.compile(r"without (\w+: .*)", re.DOTALL)


def lacking(what: str, why: str) -> NoReturn:
    """Skips the test; where everything has to be tested (CI=true), that is a failure. `why` says what brings it."""
    lack = f"without {what}: {why}"
    if os.environ.get("CI"):
        pytest.fail(lack)
    pytest.skip(lack)


def needs(what: str, *programs: str, package: str) -> None:
    """Skips the test where one of the programs is missing."""
    missing = [name for name in programs if shutil.which(name) is None]
    if missing:
        lacking(what, f"{' and '.join(missing)} not installed: apt-get install {package}")


def lines(reports: Iterable[pytest.TestReport]) -> Iterator[str]:
    """What to say of the tests that were skipped."""
    skipped: dict[str, list[str]] = {}
    for report in reports:
        reason = str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else ""
        if found := _LACK.search(reason):
            skipped.setdefault(found[1], []).append(report.nodeid.partition("@")[0])
    for lack, names in sorted(skipped.items()):
        yield f"{len(names)} tests skipped for want of {lack}"
        yield from (f"  {name}" for name in sorted(names))
