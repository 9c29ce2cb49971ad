"""Loading manifests: cold, and again when nothing has changed.

These limits are absolute, so the speed of the machine at this moment is measured beside them: a fixed piece of work, on as
many cores as the loader uses, is compared with what it takes on an idle core of the reference machine (`REFERENCE`). A
slower moment stretches the limits by that factor, at most to the double; a faster one never tightens them.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import time
from collections.abc import Iterable
from pathlib import Path

from reconciler.manifests.files.loader import Loader
from tools.bench.measure import Measure, rounded
from tools.bench.workload import documents, write_by_document, write_by_stream

COLD_LIMIT = 15.0
WARM_LIMIT = 1.0
LIMITED_AT = 100_000
"""The number of documents that the limits are about."""
REFERENCE = 0.2
"""Seconds that `_work` takes there."""
_MOST_STRETCH = 2.0
_PROCESSES = 2
_STREAMS = 100


def loading(directory: Path, number: int) -> Iterable[Measure]:
    """A file per stream, and a file per document."""
    ways = (("a file per stream", write_by_stream), ("a file per document", write_by_document))
    for name, write in ways:
        path = write(directory / name.replace(" ", "-"), documents(number - _streams(number), _streams(number)))
        yield from _load(f"{number} documents, {name}", path, number)


def _streams(number: int) -> int:
    return min(_STREAMS, number // 2)


def _load(name: str, path: Path, number: int) -> Iterable[Measure]:
    limited = number >= LIMITED_AT
    before = calibration() if limited else REFERENCE
    loader = Loader()
    cold = _timed(loader, path, number)
    warm = sorted(_timed(loader, path, number) for _ in range(3))[1]
    now = statistics.mean((before, calibration())) if limited else REFERENCE
    stretch = min(_MOST_STRETCH, max(1.0, now / REFERENCE))
    for what, (seconds, cpu_seconds), limit in (("cold", cold, COLD_LIMIT), ("unchanged", warm, WARM_LIMIT)):
        yield Measure(
            measure=f"loading {name}, {what}",
            value=rounded(seconds),
            unit="s",
            limit=limit if limited else None,
            ok=seconds <= limit * stretch or not limited,
            detail={"cpu_seconds": rounded(cpu_seconds), "machine_stretch": rounded(stretch)},
        )


def _timed(loader: Loader, path: Path, number: int) -> tuple[float, float]:
    """Elapsed seconds, and those of all processors together."""
    started, before = time.perf_counter(), os.times()
    loaded = len(loader.load([str(path)]).desired.resources)
    elapsed, after = time.perf_counter() - started, os.times()
    if loaded != number:
        msg = f"{loaded} of {number} documents were loaded"
        raise RuntimeError(msg)
    return elapsed, sum(after[:4]) - sum(before[:4])


def calibration() -> float:
    """Seconds for a fixed piece of work in each of two processes at once; their mean."""
    with multiprocessing.get_context("spawn").Pool(_PROCESSES) as pool:
        pool.map(_work, range(_PROCESSES), chunksize=1)
        return statistics.mean(pool.map(_work, range(_PROCESSES), chunksize=1))


def _work(_: int) -> float:
    """The kind of work that loading is: small dicts, short strings."""
    started = time.perf_counter()
    for outer in range(8_000):
        row = {f"name{inner}": (outer, str(inner)) for inner in range(100)}
        sorted(row.items(), key=lambda item: item[1][1])
    return time.perf_counter() - started
