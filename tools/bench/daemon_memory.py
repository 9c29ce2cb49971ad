"""Memory of a running daemon: settled, and while others edit, delete and make anew what it keeps, for minutes.

Invariant: nothing counts unless in the end everything is as declared, by a look of our own.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from reconciler.engine.planning import make_plan
from reconciler.jetstream.domains import DomainApis
from reconciler.manifests.files.loader import Loader
from reconciler.plan.change import Rules
from tests.support.account.wire import Wire
from tests.support.daemon.process import Daemon
from tools.bench.daemon_process import document, memory, settle
from tools.bench.measure import Measure, rounded
from tools.bench.memory import LIMITS
from tools.bench.workload import ports

GROWTH = 1.10
SLOWER = 1.5
_NOISE = 0.1
"""Passes are timed on a machine that does other things: this is about growth, not about seconds more or less."""
_RATE = 50
_FIFTHS = 5
_SAMPLES = 200
_REWRITES = 20
_REWRITTEN = 10
"""Documents of a file: with small files, more would be a change of so much that it needs consent."""
_CLIENT = "meddler"
_TEXTS = ("maxDeliver: 10\n", "maxDeliver: 11\n")
Json = dict[str, Any]


def settled(process: Daemon, consumers: int) -> Measure:
    """After a few passes that changed nothing."""
    now, most = memory(process.pid)
    limit = LIMITS.get(consumers)
    return Measure(
        measure=f"daemon memory, {consumers} consumers",
        value=rounded(most),
        unit="MB",
        ratio=rounded(most / limit) if limit else 0.0,
        limit=limit,
        ok=limit is None or most <= limit,
        detail={"resident": rounded(now)},
    )


async def churn(process: Daemon, url: str, files: Sequence[Path], consumers: int, seconds: float) -> list[Measure]:
    """Some `_RATE` edits a second, and a file of manifests rewritten now and then."""
    samples = _Samples()
    ends = time.monotonic() + seconds
    async with await Wire.connect(url, name=_CLIENT) as wire:
        meddler = _Meddler(wire, await _consumers(wire))
        async with asyncio.TaskGroup() as group:
            group.create_task(samples.take(process, ends, seconds / _SAMPLES))
            group.create_task(meddler.meddle(ends))
            group.create_task(_rewrite(files, ends, seconds / _REWRITES))
    edited = time.monotonic()
    await settle(process)
    settles = time.monotonic() - edited
    detail: dict[str, object] = {"seconds": seconds, "edits": meddler.done, "settled_after": rounded(settles)}
    return [_growth(consumers, samples, memory(process.pid)[1], detail), _passes(consumers, samples)]


async def as_declared(apis: DomainApis, manifests: Path, consumers: int) -> Measure:
    """What a process of its own would still change."""
    desired = Loader().load([str(manifests)]).desired
    plan = (await make_plan(desired, Rules(), ports(apis).reader)).plan
    return Measure(
        measure=f"daemon churn, {consumers} consumers, left to be repaired",
        value=len(plan.changes),
        unit="changes",
        ratio=float(len(plan.changes)),
        limit=0,
        ok=not plan.changes and plan.unchanged == len(desired.resources),
    )


@dataclass
class _Samples:
    """What was seen of the daemon, in order."""

    resident: list[float] = field(default_factory=list)
    passes: dict[int, float] = field(default_factory=dict)
    """Seconds of looking and planning, by the pass's number."""

    async def take(self, process: Daemon, ends: float, pause: float) -> None:
        """One sample after the other."""
        while time.monotonic() < ends:
            self.resident.append(memory(process.pid)[0])
            last = (await document(process))["lastPass"]
            self.passes[last["number"]] = sum(last["seconds"].get(phase, 0.0) for phase in ("snapshot", "diff"))
            await asyncio.sleep(pause)


class _Meddler:
    """Edits, deletes and makes anew, each time another consumer and another way."""

    def __init__(self, wire: Wire, consumers: list[tuple[str, str]]) -> None:
        self.done = 0
        self._wire = wire
        self._consumers = consumers
        self._random = random.Random(1)  # noqa: S311 - the same each time

    async def meddle(self, ends: float) -> None:
        """Steadily, whatever the daemon does meanwhile."""
        started = time.monotonic()
        while (now := time.monotonic()) < ends:
            if self.done >= (now - started) * _RATE:
                await asyncio.sleep(1 / _RATE)
                continue
            stream, name = self._random.choice(self._consumers)
            await self._once(stream, name, self.done)
            self.done += 1

    async def _once(self, stream: str, name: str, number: int) -> None:
        """What is not there, because the daemon has not made it anew yet, is left alone."""
        info = await self._wire.call(f"CONSUMER.INFO.{stream}.{name}")
        if "error" in info:
            return
        config = info["config"] | {"description": f"edit {number}"}
        if number % 3 == 0:
            await self._put(stream, name, "update", config)
            return
        await self._wire.call(f"CONSUMER.DELETE.{stream}.{name}")
        if number % 3 == 1:
            await self._put(stream, name, "create", config)

    async def _put(self, stream: str, name: str, action: str, config: Json) -> None:
        """The daemon may have been faster: then the answer is an error, which is fine."""
        payload = {"stream_name": stream, "action": action, "config": config}
        await self._wire.call(f"CONSUMER.CREATE.{stream}.{name}", payload)


async def _consumers(wire: Wire) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    streams = (await wire.expect("STREAM.NAMES"))["streams"]
    for stream in (name for name in streams if name.startswith("BENCH-")):
        total = 1
        names: list[str] = []
        while len(names) < total:
            page = await wire.expect(f"CONSUMER.NAMES.{stream}", {"offset": len(names)})
            names += page["consumers"]
            total = page["total"]
        found += [(stream, name) for name in names]
    return found


async def _rewrite(files: Sequence[Path], ends: float, pause: float) -> None:
    """Each time another file, which says something else than before."""
    for number in range(_REWRITES - 1):
        await asyncio.sleep(min(pause, max(0.0, ends - time.monotonic())))
        file = files[number % len(files)]
        before, after = _TEXTS if number // len(files) % 2 == 0 else _TEXTS[::-1]
        file.write_text(file.read_text(encoding="utf-8").replace(before, after, _REWRITTEN), encoding="utf-8")


def _growth(consumers: int, samples: _Samples, most: float, detail: dict[str, object]) -> Measure:
    parts = [len(samples.resident) * part // _FIFTHS for part in range(_FIFTHS + 1)]
    means = [statistics.fmean(samples.resident[start:end]) for start, end in pairwise(parts)]
    growth, limit = means[-1] / means[1], LIMITS.get(consumers)
    return Measure(
        measure=f"daemon churn, {consumers} consumers, memory's growth",
        value=rounded(means[-1]),
        unit="MB",
        ratio=rounded(growth),
        limit=GROWTH,
        ok=growth <= GROWTH and (limit is None or most <= limit),
        detail={"peak": rounded(most), "peak_limit": limit, "by_fifths": [rounded(mean) for mean in means], **detail},
    )


def _passes(consumers: int, samples: _Samples) -> Measure:
    taken = list(samples.passes.values())
    half = len(taken) // 2
    first, last = statistics.median(taken[:half] or taken), statistics.median(taken[half:])
    return Measure(
        measure=f"daemon churn, {consumers} consumers, full passes",
        value=rounded(last),
        unit="s",
        ratio=rounded(last / first),
        limit=SLOWER,
        ok=last <= first * SLOWER + _NOISE,
        detail={"passes": len(taken), "first_half": rounded(first)},
    )
