"""A running daemon as a benchmark sees it: its passes, its requests and its memory, all asked from outside."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

from tests.support.daemon.command import Command
from tests.support.daemon.process import Daemon, daemon, settled

_MEGABYTE = 1_000_000
_MEMORY = re.compile(r"^(VmRSS|VmHWM):\s+(\d+) kB", re.MULTILINE)
_REQUESTS = re.compile(r'^reconciler_api_requests_total\{code="[^"]*",operation="([^"]+)"\} (\S+)$', re.MULTILINE)
_SETTLES = 300.0
_ANSWERS = 30.0
_LOOK = 0.05
Json = dict[str, Any]


@asynccontextmanager
async def running(url: str, manifests: Path, scratch: Path, *flags: str, interval: str) -> AsyncIterator[Daemon]:
    """`reconciler run`, once everything is as declared."""
    home = scratch / "home"
    home.mkdir(parents=True, exist_ok=True)
    arguments = ("-f", manifests, "--interval", interval, "--log-format", "json")
    async with daemon(Command(home, url), scratch / f"daemon-{interval}.log", *arguments, *flags, ready=False) as process:
        await process.ready(_SETTLES)
        await settle(process)
        yield process


async def document(process: Daemon) -> Json:
    """The status, but for its resources; a busy machine may need more than one try."""
    async with asyncio.timeout(_ANSWERS):
        while (answer := await process.get("/status?limit=1"))[0] != HTTPStatus.OK:  # noqa: ASYNC110 - another process
            await asyncio.sleep(_LOOK)
    found: Json = json.loads(answer[1])
    return found


async def settle(process: Daemon) -> None:
    """Waits until a full pass, manifests read anew, finds everything as declared."""
    found: Json = {}
    try:
        async with asyncio.timeout(_SETTLES):
            while not found or not settled(found) or found["lastPass"]["result"] != "noop":
                found = await _passed(process)
    except TimeoutError:
        msg = f"not everything is as declared within {_SETTLES:g} s: {found}"
        raise RuntimeError(msg) from None


async def pass_now(process: Daemon) -> dict[str, float]:
    """Asks for a full pass; its seconds by phase."""
    done = (await _passed(process))["lastPass"]
    if done["result"] != "noop":
        msg = f"this should be a no-op: {done}"
        raise RuntimeError(msg)
    return dict(done["seconds"])


async def _passed(process: Daemon) -> Json:
    """The status after one more full pass."""
    before = (await document(process))["lastPass"].get("number")
    await process.post("/-/reconcile")
    while (found := await document(process))["lastPass"].get("number") == before:  # noqa: ASYNC110 - another process
        await asyncio.sleep(_LOOK)
    return found


async def requests(process: Daemon) -> Counter[str]:
    """How many requests it has made, by operation."""
    _, text = await process.get("/metrics")
    found: Counter[str] = Counter()
    for operation, number in _REQUESTS.findall(text):
        found[operation] += int(float(number))
    return found


def memory(pid: int) -> tuple[float, float]:
    """Megabytes of a process: now, and at most so far."""
    found = dict(_MEMORY.findall(Path(f"/proc/{pid}/status").read_text(encoding="ascii")))
    return int(found["VmRSS"]) * 1024 / _MEGABYTE, int(found["VmHWM"]) * 1024 / _MEGABYTE
