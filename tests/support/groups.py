"""Tests that share what is dear (a session of Spark, a cluster) are run by one process (`pytest.mark.xdist_group`).

xdist 3.8 writes the group where pytest 9.2 no longer looks for the name of a test, so that every test would be a group by itself.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from _pytest.nodeid import NodeId


def name_groups(items: Iterable[pytest.Item]) -> None:
    """Writes the group behind the name, where the process that hands out the tests reads it."""
    for item in items:
        mark = item.get_closest_marker("xdist_group")
        if mark is not None and "@" not in item.nodeid:
            path, _, name = item.nodeid.partition("::")
            item._id = NodeId(path=path, names=(f"{name}@{mark.args[0]}",))
