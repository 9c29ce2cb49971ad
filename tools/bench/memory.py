"""Peak memory of a process that does passes over many consumers: manifests, live state, and what it remembers of before.

Measured in a process of its own, because a peak never falls. Run as a module, this is that process.
"""

from __future__ import annotations

import asyncio
import re
import resource
import subprocess
import sys
from pathlib import Path

import orjson

from reconciler.engine.memory import Recollection
from reconciler.engine.planning import make_plan
from reconciler.manifests.files.loader import Loader
from reconciler.plan.change import Rules
from tools.bench.measure import Measure, rounded
from tools.bench.workload import connected, ports

LIMITS = {10_000: 150.0, 100_000: 700.0}
_PASSES = 3
_MEGABYTE = 1_000_000
_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB", re.MULTILINE)


def memory(url: str, manifests: Path, consumers: int) -> Measure:
    """The peak of a fresh process."""
    command = [sys.executable, "-m", "tools.bench.memory", url, str(manifests)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    peaks: dict[str, float] = orjson.loads(done.stdout)
    limit = LIMITS.get(consumers)
    peak = peaks["peak"]
    return Measure(
        measure=f"memory, {consumers} consumers",
        value=rounded(peak),
        unit="MB",
        limit=limit,
        ok=limit is None or peak <= limit,
        detail={"after_loading": rounded(peaks["after_loading"])},
    )


async def _passes(url: str, manifests: str) -> dict[str, float]:
    """Each pass is made while the one before is still known, as in the daemon."""
    desired = Loader().load([manifests]).desired
    after_loading = peak()
    known = Recollection(Rules().owner)
    async with connected(url) as apis:
        reader = ports(apis).reader
        for _ in range(_PASSES):
            planned = await make_plan(desired, Rules(), reader, known.memory)
            if planned.plan.changes:
                msg = f"this should be a no-op: {planned.plan.summary}"
                raise RuntimeError(msg)
            known.learn(planned.live)
    return {"after_loading": after_loading, "peak": peak()}


def peak() -> float:
    """Megabytes of this process; `ru_maxrss` is the second choice, since it survives `exec` and so counts the parent's."""
    status = Path("/proc/self/status")
    if status.exists():
        found = _PEAK.search(status.read_text(encoding="ascii"))
        if found:
            return int(found[1]) * 1024 / _MEGABYTE
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / _MEGABYTE


if __name__ == "__main__":
    sys.stdout.buffer.write(orjson.dumps(asyncio.run(_passes(*sys.argv[1:]))))
