"""Runs every measure; one line of JSON each on stdout, progress on stderr, exit code 1 when a limit does not hold.

    python -m tools.bench             everything, some ten minutes
    QUICK=1 python -m tools.bench     small sizes, where ratios still say something
    QUICK=tiny python -m tools.bench  only proves that every measure runs; nothing is judged by its speed

The machine should be idle: a ratio bears noise, but not a server that finds no core to run on.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from reconciler.manifests.loader import Loader
from tests.support.servers import Server
from tools.bench.big_consumers import big_consumers
from tools.bench.creating import creating
from tools.bench.loading import loading
from tools.bench.measure import FULL, QUICK, TINY, Measure, Sizes, tell
from tools.bench.memory import memory
from tools.bench.noop_pass import NoopPass
from tools.bench.workload import connected, documents, fill, write_by_stream

_SIZES = {"": FULL, "0": FULL, "1": QUICK, "tiny": TINY}
_AUDITED_UP_TO = 10_000
"""The audit repeats every answer; with more, it is the audit that is measured."""


def main() -> int:
    """Prints each line as soon as it is known."""
    sizes = _SIZES[os.environ.get("QUICK", "")]
    failed = False
    with tempfile.TemporaryDirectory(prefix="reconciler-bench-") as scratch:
        for measure in _all(sizes, Path(scratch)):
            ok = measure.ok or (sizes is TINY and measure.ratio is not None)
            failed |= not ok
            sys.stdout.buffer.write(measure.line() + b"\n")
            sys.stdout.buffer.flush()
    return int(failed)


def _all(sizes: Sizes, scratch: Path) -> Iterator[Measure]:
    tell(f"loading {sizes.documents} documents")
    yield from loading(scratch / "loading", sizes.documents)
    for consumers in sizes.consumers:
        yield from _passes(scratch / f"passes-{consumers}", sizes, consumers)
    tell(f"creating {sizes.creates} consumers, {2 * sizes.rounds + 2} times")
    with Server(scratch / "creating") as server:
        yield asyncio.run(_creating(server, scratch, sizes))
    tell(f"listing {sizes.filtered} consumers with {sizes.filters} filters")
    with Server(scratch / "big") as server:
        yield asyncio.run(_big_consumers(server, sizes))


def _passes(scratch: Path, sizes: Sizes, consumers: int) -> Iterator[Measure]:
    manifests = write_by_stream(scratch / "manifests", documents(consumers, sizes.streams))
    with Server(scratch / "server") as server:
        yield from asyncio.run(_noop_passes(server, manifests, sizes, consumers))
        tell(f"memory of a process with {consumers} consumers")
        yield memory(server.url, manifests, consumers)


async def _noop_passes(server: Server, manifests: Path, sizes: Sizes, consumers: int) -> list[Measure]:
    desired = Loader().load([str(manifests)]).desired
    async with connected(server.url) as apis:
        tell(f"making {consumers} consumers to pass over")
        await fill(apis, desired)
        tell(f"passing over {consumers} consumers")
        passes = NoopPass(apis, desired, sizes.rounds)
        found = await passes.measures()
        if consumers <= _AUDITED_UP_TO:
            found.append(await passes.audited(server))
        return found


async def _creating(server: Server, scratch: Path, sizes: Sizes) -> Measure:
    async with connected(server.url) as apis:
        return await creating(apis, scratch, sizes.creates, sizes.rounds)


async def _big_consumers(server: Server, sizes: Sizes) -> Measure:
    async with connected(server.url) as apis:
        return await big_consumers(apis, sizes.filtered, sizes.filters)


if __name__ == "__main__":
    sys.exit(main())
