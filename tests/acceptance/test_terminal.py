"""What a server says never moves the cursor of whoever reads it: names, messages and answers are shown, not obeyed."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from reconciler.cli.saying.terminal import inert
from reconciler.jetstream.leading.holder import Holder
from tests.support.account.lease import hold
from tests.support.account.wire import Wire
from tests.support.daemon.command import Command
from tests.support.server.process import Server
from tests.support.values.catalogues import stream, write

EVIL = "a\x1b[2J\x9b31m\u202egnp"
"""Clears the screen, turns red, and reads backwards."""


def seen_at_a_terminal(cli: Command, *arguments: str | Path) -> bytes:
    """All that a terminal is given, without colours of ours."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "reconciler", *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env=cli.environ({"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "80"}),
        cwd=cli.home,
    ) as process:
        os.close(theirs)
        seen = b""
        try:
            while chunk := os.read(ours, 65536):
                seen += chunk
        except OSError:  # how the end of a terminal is told
            pass
        os.close(ours)
        process.wait(60)
    return seen


@pytest.mark.parametrize("command", ["plan", "apply", "export", "graph", "lease"])
async def test_a_stream_whose_name_is_a_control_sequence(server: Server, offline: Command, tmp_path: Path, command: str) -> None:
    cli = Command(offline.home, server.url)
    manifests = write(tmp_path / "all.yaml", [stream("S", "s.>")])
    async with await Wire.connect(server.url) as wire:
        marked = {"reconciler.owner": "default", "reconciler.spec": EVIL, EVIL: EVIL}
        told = {"name": EVIL, "description": EVIL, "metadata": marked}
        await wire.expect(f"STREAM.CREATE.{EVIL}", {**told, "subjects": [f"{EVIL}.x"], "storage": "memory"})
    arguments: dict[str, tuple[str | Path, ...]] = {
        "plan": ("plan", "-f", manifests, "--prune", "--max-change-percent", "100"),
        "apply": ("apply", "-f", manifests, "--prune", "--max-change-percent", "100", "--yes"),
        "export": ("export",),
        "graph": ("graph", "--all"),
        "lease": ("lease", "show"),
    }
    connection, _ = await hold(server, owner="default" if command == "lease" else "other", holder=Holder(host=EVIL))
    seen = seen_at_a_terminal(cli, *arguments[command])
    await connection.close()
    assert "2J" in seen.decode(), "the name is shown"
    for obeyed in ("\x1b", "\x9b", "\u202e"):
        assert obeyed.encode() not in seen, seen


def test_what_is_harmless_stays_as_it_is() -> None:
    assert inert("zwei Wörter\tund 漢字 → ok\n") == "zwei Wörter\tund 漢字 → ok\n"
