"""A private copy of the checkout, in which mistakes can be made and pytest can be run.

Invariant: nothing outlives it, neither a file nor a process, however it ends; the checkout itself is only read.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tools.mutants.data import BadData, Mutant

_DYING = 5.0
"""Seconds that killed processes get to be gone."""
_GLANCE = 0.02


@dataclass(frozen=True, slots=True)
class Ran:
    """How a run of pytest ended."""

    code: int | None
    """None: it was ended, since it took too long."""
    output: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Workshop:
    """`tree` holds what the checkout holds; `temporary` is the temporary folder of whatever runs here."""

    tree: Path
    temporary: Path

    @classmethod
    @contextmanager
    def of(cls, checkout: Path) -> Iterator[Self]:
        """A copy of what git knows of a checkout or would add, as it is now."""
        home = Path(tempfile.mkdtemp(prefix="reconciler-mutants-"))
        try:
            for name in files_of(checkout):
                target = home / "tree" / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(checkout / name, target, follow_symlinks=False)
            (home / "tmp").mkdir()
            yield cls(home / "tree", home / "tmp")
        finally:
            shutil.rmtree(home, ignore_errors=True)

    @contextmanager
    def mistaken(self, mutant: Mutant) -> Iterator[None]:
        """For the time of a block the copy has this mistake in it."""
        path = self.tree / mutant.file
        source = path.read_text(encoding="utf-8")
        self._write(path, mutant.made_in(source))
        try:
            yield
        finally:
            self._write(path, source)

    @staticmethod
    def _write(path: Path, text: str) -> None:
        """Python knows what it compiled by second and size, which a mutant may share with what it replaces."""
        path.write_text(text, encoding="utf-8")
        Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)

    async def pytest(self, arguments: Sequence[str], limit: float) -> Ran:
        """Runs it, and leaves nothing of it."""
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
        began = time.monotonic()
        with tempfile.TemporaryFile(dir=self.temporary) as output:
            process = await asyncio.create_subprocess_exec(
                *command,
                cwd=self.tree,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,  # no pipe: whoever inherits it would keep us waiting
                stderr=output,
                start_new_session=True,
            )
            code: int | None = None
            try:
                with contextlib.suppress(TimeoutError):
                    code = await asyncio.wait_for(process.wait(), limit)
            finally:
                _end(process.pid)
                await process.wait()
            output.seek(0)
            said = output.read().decode(errors="replace")
        self._tidy()
        return Ran(code, said, time.monotonic() - began)

    def _environment(self) -> dict[str, str]:
        """Ours, but importing from the copy, and with a temporary folder that goes with it."""
        kept = {name: text for name, text in os.environ.items() if not name.startswith(("PYTEST_", "GIT_"))}
        return {**kept, "PYTHONPATH": str(self.tree), "TMPDIR": str(self.temporary)}

    def _tidy(self) -> None:
        for left in self.temporary.iterdir():
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)


def files_of(checkout: Path) -> list[str]:
    """What belongs to it: what git tracks or would add, as far as it is there."""
    command = ["git", "-C", str(checkout), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode != 0:
        msg = f"{checkout} is no checkout: {done.stderr.decode(errors='replace').strip()}"
        raise BadData(msg)
    names = dict.fromkeys(os.fsdecode(name) for name in done.stdout.split(b"\0") if name)
    return [name for name in names if (checkout / name).is_file()]


def _end(leader: int) -> None:
    """Kills a session that was started here, and what left it; returns when all of them are gone."""
    family = _family(leader)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
    for process in family:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    over = time.monotonic() + _DYING
    while any(_parent(process) for process in family if process != leader) and time.monotonic() < over:
        time.sleep(_GLANCE)


def _family(leader: int) -> list[int]:
    """A process with all that descends from it, as far as the system tells."""
    parents = {int(entry.name): _parent(int(entry.name)) for entry in Path("/proc").glob("[0-9]*")}
    family = [leader] if leader in parents else []
    for known in family:
        family += [process for process, parent in parents.items() if parent == known]
    return family


def _parent(process: int) -> int:
    """0 for one that is not there, or dead already."""
    try:
        state, parent = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[:2]
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return 0 if state == "Z" else int(parent)
