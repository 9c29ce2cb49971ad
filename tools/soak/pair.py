"""The two daemons: started, killed, and looked at from outside.

Invariant: each process is ended by its own pid when the block is left, however that is.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path

from tests.support.account.wire import Json
from tests.support.daemon.command import Command
from tests.support.daemon.process import Daemon
from tools.bench.daemon_process import memory
from tools.soak.families import OWNER

_SAMPLES = re.compile(r"^(reconciler_[a-z_]+)(?:\{([^}]*)\})? (\S+)$", re.MULTILINE)
_SUMS = (
    "reconciler_reconcile_total",
    "reconciler_api_requests_total",
    "reconciler_changes_total",
    "reconciler_retries_total",
    "reconciler_drift_detected_total",
    "reconciler_source_kicks_total",
    "reconciler_queue_depth",
    "reconciler_leader",
)
_WRITES = re.compile(r"CREATE|UPDATE|DELETE|PURGE|PAUSE|RESET")
_ENDS = 15.0
TROUBLE = re.compile(r"Traceback|internal-error|\.crashed\"|process\.failed|plan\.fault")
_SHOWN = 400


@dataclass(frozen=True)
class Sample:
    """One look at one process."""

    at: float
    rss: float
    """Megabytes."""
    cpu: float
    """Seconds so far."""
    files: int
    threads: int
    sums: Counter[str]
    """Metrics, summed over their labels; `writes` are the requests that change something."""


@dataclass
class Life:
    """One process, from its start to its end."""

    name: str
    process: Daemon
    log: Path
    samples: list[Sample] = field(default_factory=list)
    killed: bool = False

    async def look(self) -> Sample | None:
        """Takes a sample; None when it does not answer."""
        code, text = await self.process.get("/metrics")
        if code == 0 or self.process.ended:
            return None
        sums: Counter[str] = Counter()
        for name, labels, value in _SAMPLES.findall(text):
            if name in _SUMS:
                sums[name] += int(float(value))
            if name == "reconciler_api_requests_total" and _WRITES.search(labels):
                sums["writes"] += int(float(value))
        place = Path(f"/proc/{self.process.pid}")
        with suppress(OSError):
            sample = Sample(
                at=time.monotonic(),
                rss=memory(self.process.pid)[0],
                cpu=self.process.cpu_seconds,
                files=len(list((place / "fd").iterdir())),
                threads=len(list((place / "task").iterdir())),
                sums=sums,
            )
            self.samples.append(sample)
            return sample
        return None

    async def status(self) -> Json | None:
        """What it says of every resource; None when it does not answer in time."""
        code, text = await self.process.get("/status?limit=10000")
        return dict(json.loads(text)) if code == HTTPStatus.OK else None

    def total(self, name: str) -> int:
        """The last that it said of a counter."""
        return self.samples[-1].sums[name] if self.samples else 0

    def troubles(self) -> Iterator[str]:
        """Lines of its log that tell of a bug."""
        with self.log.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if TROUBLE.search(line):
                    yield f"{self.log.name}: {line[:_SHOWN].rstrip()}"


@dataclass
class Pair:
    """Both of them, and those that were before."""

    command: Command
    manifests: Path
    place: Path
    flags: tuple[str, ...]
    lives: list[Life] = field(default_factory=list)
    now: dict[str, Life] = field(default_factory=dict)

    async def begin(self, name: str) -> Life:
        """Starts the daemon of that name."""
        log = self.place / f"{name}-{len(self.lives)}.log"
        arguments = ("-f", str(self.manifests), "--http", "127.0.0.1:0", "--log-format", "json", *self.flags)
        with log.open("wb") as sink:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "reconciler", "run", *arguments),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                env=self.command.environ({"RECONCILER_OWNER": OWNER}),
                cwd=self.command.home,
            )
        life = Life(name, Daemon(process, log), log)
        self.lives.append(life)
        await life.process.listening()
        self.now[name] = life
        return life

    async def leader(self) -> Life | None:
        """Who says that it leads."""
        for life in list(self.now.values()):
            if not life.process.ended and await life.process.metric("reconciler_leader"):
                return life
        return None

    async def kill_the_leader(self) -> bool:
        """Lets it die, and starts it again; False when there was none."""
        life = await self.leader()
        if life is None:
            return False
        await life.look()
        life.killed = True
        await life.process.kill()
        await self.begin(life.name)
        return True

    async def look(self) -> None:
        """A sample of each."""
        for life in list(self.now.values()):
            await life.look()

    def total(self, name: str) -> int:
        """A counter, over all lives."""
        return sum(life.total(name) for life in self.lives)

    def ended_by_themselves(self) -> list[str]:
        """Processes that are over and were not killed."""
        return [life.log.name for life in self.lives if life.process.ended and not life.killed]

    async def end(self) -> None:
        """Asks all of them to end, and kills what does not."""
        left = [life for life in self.lives if not life.process.ended]
        for life in left:
            life.killed = True
            life.process.send(signal.SIGTERM)
        with suppress(TimeoutError):
            await asyncio.gather(*(life.process.stop(_ENDS) for life in left))
        for life in left:
            await life.process.kill()


@asynccontextmanager
async def two(command: Command, manifests: Path, place: Path, *flags: str) -> AsyncIterator[Pair]:
    """Both, under way."""
    pair = Pair(command, manifests, place, flags)
    try:
        await pair.begin("a")
        yield pair
    finally:
        await pair.end()
