"""What each way out is tried with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.account.guarded import Guarded
from tests.support.account.wire import Wire
from tests.support.daemon.command import Command


@pytest.fixture
def guarded(cli: Command, wire: Wire, tmp_path: Path) -> Guarded:
    return Guarded(cli, wire, tmp_path)
