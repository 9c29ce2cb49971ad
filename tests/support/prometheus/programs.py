"""`promtool` and `prometheus`, of Debian's package `prometheus`.

Invariant: where they are missing a test is skipped, pytest counts it and says what brings them; with CI=true it fails.
"""

from __future__ import annotations

import os
import shutil

import pytest


def program(name: str) -> str:
    """Where it is."""
    found = shutil.which(name)
    if found is not None:
        return found
    lack = f"without Prometheus: {name} is not installed: apt-get install prometheus"
    if os.environ.get("CI"):
        pytest.fail(lack)
    pytest.skip(lack)
