"""Runs every measure; one line of JSON each on stdout, progress on stderr, exit code 1 when a limit does not hold.

    python -m tools.bench             everything, some forty minutes
    python -m tools.bench daemon      only these groups: loading, passes, commands, creating, writes, trouble, listing, audit,
                                      latency, daemon, sourcing, partitions, spark
    QUICK=1 python -m tools.bench     small sizes, where ratios still say something
    QUICK=tiny python -m tools.bench  only proves that every measure runs; nothing is judged by its speed

The machine should be idle: a ratio bears noise, but not a server that finds no core to run on.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from reconciler.manifests.files.loader import Loader
from tests.support.server.process import Server
from tools import ending
from tools.bench import daemon
from tools.bench.audit import audit
from tools.bench.big_consumers import big_consumers
from tools.bench.commands import commands
from tools.bench.creating import creating
from tools.bench.daemon_trouble import SILENT, WAITING, a_commit_a_second, beside_procedures, beside_silence
from tools.bench.loading import loading
from tools.bench.measure import FULL, QUICK, TINY, Measure, Sizes, tell
from tools.bench.memory import memory
from tools.bench.noop_pass import AUDITED_UP_TO, NoopPass
from tools.bench.partitions.kafka import kafka
from tools.bench.partitions.quality import quality
from tools.bench.partitions.spark import on_spark
from tools.bench.partitions.speed import speed
from tools.bench.sourcing import sourcing
from tools.bench.updating import updating
from tools.bench.workload import connected, documents, fill, write_by_stream

_SIZES = {"": FULL, "0": FULL, "1": QUICK, "tiny": TINY}
_TWO_MINUTES = 120.0
_FEW = 20
"""Consumers of the daemon whose latency is limited."""


def main(wanted: Iterable[str] = ()) -> int:
    """Prints each line as soon as it is known."""
    sizes = _SIZES[os.environ.get("QUICK", "")]
    failed = False
    with tempfile.TemporaryDirectory(prefix="reconciler-bench-") as scratch:
        for measure in _all(sizes, Path(scratch), frozenset(wanted)):
            ok = measure.ok or (sizes is TINY and measure.ratio is not None)
            failed |= not ok
            sys.stdout.buffer.write(measure.line() + b"\n")
            sys.stdout.buffer.flush()
    return int(failed)


def _all(sizes: Sizes, scratch: Path, wanted: frozenset[str] = frozenset()) -> Iterator[Measure]:
    """Group by group, each with servers and a directory of its own."""
    groups: dict[str, Callable[[Sizes, Path], Iterable[Measure]]] = {
        "loading": _loading,
        "passes": _passes,
        "commands": commands,
        "creating": _creating,
        "writes": _writes,
        "trouble": _trouble,
        "listing": _listing,
        "audit": _audit,
        "latency": _latency,
        "daemon": _daemon,
        "sourcing": _sourcing,
        "partitions": _partitions,
        "spark": _spark,
    }
    if unknown := wanted - groups.keys():
        sys.exit(f"bench: no such group: {', '.join(sorted(unknown))} (there are {', '.join(groups)})")
    for name, group in groups.items():
        if not wanted or name in wanted:
            yield from group(sizes, scratch / name)


def _loading(sizes: Sizes, scratch: Path) -> Iterator[Measure]:
    tell(f"loading {sizes.documents} documents")
    yield from loading(scratch, sizes.documents)


def _passes(sizes: Sizes, scratch: Path) -> Iterator[Measure]:
    for consumers in sizes.consumers:
        manifests = write_by_stream(scratch / f"manifests-{consumers}", documents(consumers, sizes.streams))
        with Server(scratch / f"server-{consumers}") as server:
            yield from asyncio.run(_noop_passes(server, manifests, sizes, consumers))
            tell(f"memory of a process with {consumers} consumers")
            yield memory(server.url, manifests, consumers)


def _creating(sizes: Sizes, scratch: Path) -> Iterator[Measure]:
    tell(f"creating {sizes.creates} consumers, {2 * sizes.rounds + 2} times")
    with Server(scratch / "server") as server:
        yield asyncio.run(_create(server, scratch, sizes))


def _writes(sizes: Sizes, scratch: Path) -> Iterator[Measure]:
    tell(f"updating {sizes.creates} consumers, {2 * sizes.rounds + 2} times")
    with Server(scratch / "server") as server:
        yield asyncio.run(_update(server, scratch, sizes))
    for edited in (True, False):
        here = scratch / f"commit-{edited}"
        tell(f"{sizes.edits} edits to be repaired while a commit {'edits' if edited else 'creates'} {sizes.creates} consumers")
        with Server(here / "server") as server:
            yield asyncio.run(daemon.beside_a_commit(server.url, here, sizes, edited=edited))


def _trouble(sizes: Sizes, scratch: Path) -> Iterator[Measure]:
    tell(f"{sizes.edits} edits to be repaired while {SILENT} streams do not answer")
    with Server(scratch / "silence" / "server") as server:
        yield asyncio.run(beside_silence(server, scratch / "silence", sizes.edits))
    tell(f"{sizes.edits} edits to be repaired while {WAITING} procedures wait for their turn")
    with Server(scratch / "waiting" / "server") as server:
        yield asyncio.run(beside_procedures(server.url, scratch / "waiting", sizes.edits))
    seconds = min(_TWO_MINUTES, 6 * sizes.churn)
    tell(f"a commit a second for {seconds:g} s")
    with Server(scratch / "commits" / "server") as server:
        yield asyncio.run(a_commit_a_second(server.url, scratch / "commits", seconds))


def _listing(sizes: Sizes, scratch: Path) -> Iterator[Measure]:
    tell(f"listing {sizes.filtered} consumers with {sizes.filters} filters")
    with Server(scratch / "server") as server:
        yield asyncio.run(_big_consumers(server, sizes))


def _audit(sizes: Sizes, scratch: Path) -> Iterator[Measure]:
    tell("listening to the API audit while somebody polls")
    with Server(scratch / "server") as server:
        yield from asyncio.run(audit(server.url, seconds=sizes.rounds))


def _latency(sizes: Sizes, scratch: Path) -> Iterator[Measure]:
    tell(f"{sizes.edits} edits to be repaired by a daemon")
    manifests = write_by_stream(scratch / "manifests", documents(_FEW, 2))
    with Server(scratch / "server") as server:
        yield asyncio.run(daemon.small(server.url, manifests, scratch, sizes.edits))


def _daemon(sizes: Sizes, scratch: Path) -> Iterator[Measure]:
    for consumers in sizes.consumers:
        here = scratch / str(consumers)
        manifests = write_by_stream(here / "manifests", documents(consumers, sizes.streams))
        with Server(here / "server") as server, asyncio.Runner() as runner:
            measures = daemon.big(server.url, manifests, here, sizes, consumers)
            while (measure := runner.run(anext(measures, None))) is not None:
                yield measure


def _sourcing(sizes: Sizes, scratch: Path) -> Iterator[Measure]:
    with Server(scratch / "server") as server, asyncio.Runner() as runner:
        measures = sourcing(server.url, scratch / "manifests", sizes.rounds)
        while (measure := runner.run(anext(measures, None))) is not None:
            yield measure


def _partitions(sizes: Sizes, scratch: Path) -> Iterator[Measure]:
    (partitions, count), *_ = sizes.plans
    yield from quality(sizes.plans, partitions)
    yield from speed(scratch / "manifests", partitions, count, sizes.rounds)
    yield from kafka(scratch / "kafka", partitions, (count, count + count // 20), sizes.rounds)


def _spark(sizes: Sizes, scratch: Path) -> Iterator[Measure]:
    yield from on_spark(scratch, sizes.spark, min(3, sizes.rounds))


async def _noop_passes(server: Server, manifests: Path, sizes: Sizes, consumers: int) -> list[Measure]:
    desired = Loader().load([str(manifests)]).desired
    async with connected(server.url) as apis:
        tell(f"making {consumers} consumers to pass over")
        await fill(apis, desired)
        tell(f"passing over {consumers} consumers")
        passes = NoopPass(apis, desired, sizes.rounds)
        found = await passes.measures()
        if consumers <= AUDITED_UP_TO:
            found.append(await passes.audited(server))
        return found


async def _update(server: Server, scratch: Path, sizes: Sizes) -> Measure:
    async with connected(server.url) as apis:
        return await updating(apis, scratch, sizes.creates, sizes.rounds)


async def _create(server: Server, scratch: Path, sizes: Sizes) -> Measure:
    async with connected(server.url) as apis:
        return await creating(apis, scratch, sizes.creates, sizes.rounds)


async def _big_consumers(server: Server, sizes: Sizes) -> Measure:
    async with connected(server.url) as apis:
        return await big_consumers(apis, sizes.filtered, sizes.filters)


if __name__ == "__main__":
    ending.in_order()
    sys.exit(main(sys.argv[1:]))
