"""The command line from outside, on a server of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command import Command
from tests.support.servers import Server

CATALOGUE = """\
apiVersion: reconciler/v1
kind: Stream
metadata: {name: PAYMENTS}
spec: {subjects: [platform.payments.>], storage: file, maxAge: 30d, maxBytes: 64MB}
---
apiVersion: reconciler/v1
kind: Consumer
metadata: {name: billing}
spec: {stream: PAYMENTS, filterSubjects: [platform.payments.credited], ackWait: 30s, maxDeliver: 10}
---
apiVersion: reconciler/v1
kind: KeyValue
metadata: {name: settings}
spec: {history: 5}
"""


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
