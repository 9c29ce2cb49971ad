"""The command line from outside, on a server of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.daemon.command import Command
from tests.support.server.process import Server
from tests.support.values.catalogues import CATALOGUE


@pytest.fixture
def offline(tmp_path: Path) -> Command:
    """The command, with no server named."""
    home = tmp_path / "home"
    home.mkdir()
    return Command(home)


@pytest.fixture
def cli(server: Server, offline: Command) -> Command:
    """The command, with NATS_URL set to a fresh server."""
    return Command(offline.home, server.url)


@pytest.fixture
def catalogue(tmp_path: Path) -> Path:
    """A directory of three valid resources."""
    directory = tmp_path / "catalogue"
    directory.mkdir()
    (directory / "all.yaml").write_text(CATALOGUE, encoding="utf-8")
    return directory
