"""A running daemon as users run it: another process, seen through HTTP, killed, frozen and stopped by its pid.

Invariant: the process is gone when its block is left, and it never printed a traceback.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support.clock.until import glances
from tests.support.daemon.command import Command
from tests.support.promises import saw_document

READY_SECONDS = 60.0
_LISTENING = re.compile(r'"url": ?"(http://[^"]+)"')

Json = dict[str, Any]


class Daemon:
    """One `reconciler run`, under way."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log
        self.url = ""

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether it is over."""
        return self._process.returncode is not None

    @property
    def cpu_seconds(self) -> float:
        """What it has used of the processor so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def send(self, what: signal.Signals) -> None:
        """Send a signal to this very process."""
        if not self.ended:
            with suppress(ProcessLookupError):
                os.kill(self.pid, what)

    def log(self) -> str:
        """All it has logged."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def lines(self, event: str = "") -> list[Json]:
        """The log lines, or those of one event."""
        parsed = [json.loads(line) for line in self.log().splitlines() if line.startswith("{") and line.endswith("}")]
        return [line for line in parsed if not event or line["event"] == event]

    async def get(self, path: str) -> tuple[int, str]:
        """The answer to a GET: its code and its text; code 0 when nobody answered."""
        return await asyncio.to_thread(_fetch, urllib.request.Request(f"{self.url}{path}"))

    async def post(self, path: str) -> tuple[int, str]:
        """The answer to a POST."""
        return await asyncio.to_thread(_fetch, urllib.request.Request(f"{self.url}{path}", method="POST"))

    async def status(self, query: str = "") -> Json:
        """The status document (one page of it)."""
        code, text = await self.get(f"/status?limit=10000{query}")
        assert code == 200, (code, text)
        document: Json = json.loads(text)
        return document

    async def resource(self, key: str) -> Json:
        """One resource of the status."""
        document = await self.status()
        return next(resource for resource in document["resources"] if resource["key"] == key)

    async def metric(self, sample: str) -> float:
        """The value of one sample, written as in the text format (name and labels); 0 when it is not there."""
        _, text = await self.get("/metrics")
        found = next((line for line in text.splitlines() if line.startswith(f"{sample} ")), "")
        return float(found.rpartition(" ")[2]) if found else 0.0

    async def until(self, holds: Callable[[Json], bool], seconds: float = READY_SECONDS) -> Json:
        """Waits until the status document is like that; returns it."""
        document: Json = {}
        try:
            async with asyncio.timeout(seconds):
                async for _ in glances():
                    assert not self.ended, self.log()
                    code, text = await self.get("/status?limit=10000")
                    if code == 200 and holds(document := json.loads(text)):
                        break
        except TimeoutError:
            differing = [one for one in document.get("resources", ()) if one["state"] != "Synced"]
            shown = {name: value for name, value in document.items() if name != "resources"} | {"differing": differing[:10]}
            msg = f"not like that within {seconds} s: {shown}\n{self.log()[-4000:]}"
            raise AssertionError(msg) from None
        saw_document(document)
        return document

    async def listening(self, seconds: float = READY_SECONDS) -> None:
        """Waits until it answers over HTTP at all."""
        async with asyncio.timeout(seconds):
            async for _ in glances():
                if found := _LISTENING.search(self.log()):
                    self.url = found[1]
                    return
                assert not self.ended, self.log()

    async def ready(self, seconds: float = READY_SECONDS) -> None:
        """Waits until it says that it is ready."""
        await self.listening(seconds)
        async with asyncio.timeout(seconds):
            async for _ in glances():
                if (await self.get("/readyz"))[0] == 200:
                    return
                assert not self.ended, self.log()

    async def looked(self) -> Json:
        """Asks for full passes until one is over that began after this was called; the status then."""
        document = await self.status()
        for _ in range(2):  # the first one to end may have been under way already
            before = document["lastPass"].get("number", 0)
            code, text = await self.post("/-/reconcile")
            assert code == 200, text
            document = await self.until(lambda document, before=before: bool(document["lastPass"].get("number", 0) > before))  # type: ignore[misc]
        return document

    async def stop(self, seconds: float = READY_SECONDS) -> int:
        """Asks it to end; its exit code."""
        self.send(signal.SIGTERM)
        self.send(signal.SIGCONT)
        return await self.ends(seconds)

    async def ends(self, seconds: float = READY_SECONDS) -> int:
        """Waits for its end; its exit code."""
        async with asyncio.timeout(seconds):
            return await self._process.wait()

    async def kill(self) -> None:
        """Lets it die on the spot (which also ends a frozen process)."""
        self.send(signal.SIGKILL)
        await self._process.wait()


@asynccontextmanager
async def daemon(cli: Command, log: Path, *arguments: str | Path, ready: bool = True, **environ: str) -> AsyncIterator[Daemon]:
    """Starts `reconciler run`; whatever is left of it at the end of the block is killed."""
    with log.open("wb") as sink:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "reconciler",
            "run",
            "--http",
            "127.0.0.1:0",
            *map(str, arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            env=cli.environ(environ),
            cwd=cli.home,
        )
    running = Daemon(process, log)
    try:
        if ready:
            await running.ready()
        yield running
    finally:
        await running.kill()
        saw_document(running.lines())
        assert "Traceback" not in running.log(), running.log()
        assert "crashed" not in running.log(), running.log()


def settled(document: Json) -> bool:
    """Whether everything that is declared is in place, as the leader sees it."""
    states = {state for state, number in document["summary"].items() if number}
    return bool(document["connected"]) and document["leading"] is True and states <= {"Synced", "Unmanaged", "Suspended"}


def _fetch(request: urllib.request.Request) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except (OSError, TimeoutError):
        return 0, ""
