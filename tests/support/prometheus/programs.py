"""`promtool` and `prometheus`, of Debian's package `prometheus`.

Invariant: where they are missing a test is skipped, pytest counts it and says what brings them; with CI=true it fails.
"""

from __future__ import annotations

import os
import shutil

import pytest

from tests.support.skipped import NO_PROMETHEUS


def program(name: str) -> str:
    """Where it is."""
    found = shutil.which(name)
    if found is not None:
        return found
    lack = f"{NO_PROMETHEUS}{name} is not installed: apt-get install prometheus"
    if os.environ.get("CI"):
        pytest.fail(lack)
    pytest.skip(lack)
