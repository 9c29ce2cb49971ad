"""`promtool` and `prometheus`, of Debian's package `prometheus`.

Invariant: where they are missing a test is skipped, pytest counts it and says what brings them; with CI=true it fails.
"""

from __future__ import annotations

import shutil

from tests.support.skipped import lacking


def program(name: str) -> str:
    """Where it is."""
    found = shutil.which(name)
    if found is None:
        lacking("Prometheus", f"{name} is not installed: apt-get install prometheus")
    return found
