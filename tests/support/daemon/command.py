"""Runs the `reconciler` command as users do: another process, its output and its exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.daemon.inside import run_inside
from tests.support.promises import saw_output

SECONDS = 60
_INHERITED = ("PATH", "LANG", "LC_ALL", "VIRTUAL_ENV", "SYSTEMROOT", "TMPDIR")


@dataclass(frozen=True)
class Ended:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its stdout as the one JSON document it has to be."""
        return json.loads(self.out)


@dataclass(frozen=True)
class Command:
    """`reconciler`, with a home of its own and nothing of the caller's environment."""

    home: Path
    url: str = ""

    def __call__(self, *arguments: str | Path, stdin: str = "", code: int = 0, environ: Mapping[str, str] | None = None) -> Ended:
        """Run it; `code` is what it must exit with.

        In this process, where only its text and its code are judged and the test stands still meanwhile; as a process of its own
        where the test goes on (`asyncio.to_thread`; `daemon.running` has signals and kills).
        """
        run = run_inside if threading.current_thread() is threading.main_thread() else _as_a_process
        ended = Ended(*run([str(each) for each in arguments], stdin, self.environ(environ or {}), self.home))
        if self.url:
            saw_output(ended.out, ended.err)
        assert ended.code == code, ended
        assert "Traceback" not in ended.err, ended
        return ended

    def environ(self, more: Mapping[str, str]) -> dict[str, str]:
        """The environment it runs in."""
        inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        root = str(Path(__file__).parents[3])
        fixed = {"HOME": str(self.home), "PYTHONPATH": root, "COLUMNS": "100", "PYTHONWARNINGS": "error"}
        url = {"NATS_URL": self.url} if self.url else {}
        return inherited | fixed | url | dict(more)


def _as_a_process(arguments: Sequence[str], stdin: str, environ: Mapping[str, str], cwd: Path) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "reconciler", *arguments]
    done = subprocess.run(
        command, input=stdin, capture_output=True, text=True, check=False, env=dict(environ), cwd=cwd, timeout=SECONDS
    )
    return done.returncode, done.stdout, done.stderr
