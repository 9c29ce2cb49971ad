"""The `reconciler` command as a process that can be interrupted, frozen and killed while it runs.

Invariant: the process is gone when its block is left.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from tests.support.daemon.command import Command, Ended
from tests.support.promises import saw_output

SECONDS = 60.0


class Running:
    """One call of the command, under way."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._output = asyncio.create_task(process.communicate())

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether it is over."""
        return self._process.returncode is not None

    def send(self, what: signal.Signals) -> None:
        """Send a signal to this very process."""
        if not self.ended:
            with suppress(ProcessLookupError):  # over, and nobody has told us yet
                os.kill(self.pid, what)

    async def wait(self, seconds: float = SECONDS) -> Ended:
        """Wait for its end; raises TimeoutError."""
        async with asyncio.timeout(seconds):
            out, err = await asyncio.shield(self._output)
        code = self._process.returncode
        assert code is not None
        ended = Ended(code, out.decode(), err.decode())
        saw_output(ended.out, ended.err)
        assert "Traceback" not in ended.err, ended
        assert "bug in reconciler" not in ended.err, ended
        return ended

    async def ends_within(self, seconds: float) -> bool:
        """Whether it is over by then."""
        done, _ = await asyncio.wait([self._output], timeout=seconds)
        return bool(done)

    async def kill(self) -> None:
        """Let it die on the spot (SIGKILL, which also ends a frozen process)."""
        self.send(signal.SIGKILL)
        await self._output


@asynccontextmanager
async def started(cli: Command, *arguments: str | Path, **environ: str) -> AsyncIterator[Running]:
    """Start the command; whatever is left of it at the end of the block is killed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "reconciler",
        *map(str, arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=cli.environ(environ),
        cwd=cli.home,
    )
    running = Running(process)
    try:
        yield running
    finally:
        await running.kill()


async def ran(cli: Command, *arguments: str | Path, code: int | None = 0, **environ: str) -> Ended:
    """Run the command to its end while this test goes on serving others (a proxy, say); `code` None: any exit code."""
    async with started(cli, *arguments, **environ) as running:
        ended = await running.wait()
    assert code is None or ended.code == code, ended
    return ended
