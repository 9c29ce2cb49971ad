"""The desk every test of the command starts from."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.partitions.files import Desk
from tests.support.partitions.files import desk as made


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Desk:
    """100 equal partitions on four workers, planned by nobody yet."""
    return made(tmp_path, capsys)
