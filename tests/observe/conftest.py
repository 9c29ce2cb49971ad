"""Logging as it was before each test.

Invariant: a test may configure logging of the whole process; the next one does not notice.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture
def logging_restored() -> Iterator[None]:
    """Puts structlog and the root logger back."""
    root = logging.getLogger()
    handlers, level, config = root.handlers[:], root.level, structlog.get_config()
    access = logging.getLogger("aiohttp.access")
    access_level = access.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    access.setLevel(access_level)
    structlog.configure(**config)
