"""Tests that a machine lacks something for: the last lines of a run count and name them, and say what brings it.

The processes that run tests only send reports; what is skipped is known from those.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import pytest

NO_SPARK, NO_PROMETHEUS = "without Spark: ", "without Prometheus: "
"""What the reason of such a skip begins with; what is missing follows, and the command that brings it."""
_LACK = re.compile(r"without (\w+: .*)", re.DOTALL)


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
