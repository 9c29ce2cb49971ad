"""How long the local planner takes, how much memory it needs, and what writing the manifests costs.

Memory is that of a process of its own, because a peak never falls. Run as a module, this is that process.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson
import pyarrow as pa

from reconciler.partitions.gathering import Here
from reconciler.partitions.output.render import WorkerManifests, assignment_table
from reconciler.partitions.output.text import INDEX_NAME, index_text
from reconciler.partitions.output.tree import replace_tree
from reconciler.partitions.planning.model import Workers
from reconciler.partitions.planning.planner import plan_locally
from reconciler.partitions.reading.inputs import Partitions
from tools.bench.loading import REFERENCE, calibration
from tools.bench.measure import Measure, rounded, tell
from tools.bench.memory import peak
from tools.bench.partitions.cases import RULES, Case, day, drift, items, lognormal, workers

SMALL_LIMIT = 0.5
"""Seconds for 4,000 partitions on 25 workers."""
MANIFESTS_LIMIT = 1.5
LIMITED_AT = 1_000_000
"""Partitions from which on that limit holds: with fewer, what a tree costs once shows."""
MEMORY_LIMIT = 4000.0
"""Megabytes, whatever the size."""


def speed(scratch: Path, partitions: int, count: int, rounds: int) -> Iterator[Measure]:
    """Four thousand, then as many as are measured."""
    yield _four_thousand(rounds)
    tell(f"planning {partitions:,} partitions on {count:,} workers in a process of its own")
    yield from _alone(partitions, count)
    tell(f"writing the manifests of {partitions:,} partitions")
    yield _manifests(scratch, partitions, count, rounds)


def _four_thousand(rounds: int) -> Measure:
    stretch = min(2.0, max(1.0, calibration() / REFERENCE))
    case = drift()
    taken = []
    for _ in range(max(3, rounds)):
        started = time.perf_counter()
        first = plan_locally(items(case.before.weights), case.before.workers, RULES)
        plan_locally(items(case.after.weights).at(case.moved_home(first.place)), case.fresh(), RULES)
        taken.append((time.perf_counter() - started) / 2)
    seconds = statistics.median(taken)
    return Measure(
        measure="planning 4,000 partitions on 25 workers",
        value=rounded(seconds),
        unit="s",
        ratio=rounded(seconds / SMALL_LIMIT),
        limit=SMALL_LIMIT,
        ok=seconds <= SMALL_LIMIT * stretch,
        detail={"machine_stretch": rounded(stretch)},
    )


def _alone(partitions: int, count: int) -> Iterator[Measure]:
    command = [sys.executable, "-m", "tools.bench.partitions.speed", str(partitions), str(count)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    found: dict[str, float] = orjson.loads(done.stdout)
    name = f"{partitions:,} partitions on {count:,} workers"
    for what in ("cold", "rebalance"):
        yield Measure(measure=f"planning {name}, {what}", value=rounded(found[what]), unit="s", ratio=0.0)
    yield Measure(
        measure=f"memory of planning {name}",
        value=rounded(found["peak"]),
        unit="MB",
        ratio=rounded(found["peak"] / MEMORY_LIMIT),
        limit=MEMORY_LIMIT,
        ok=found["peak"] <= MEMORY_LIMIT,
        detail={"before": rounded(found["before"])},
    )


def planned(partitions: int, count: int) -> dict[str, float]:
    """Seconds of both plans, and the peak of this process before and after."""
    case: Case = day(partitions, count)
    given = items(case.before.weights)
    before = peak()
    started = time.perf_counter()
    first = plan_locally(given, case.before.workers, RULES)
    cold = time.perf_counter() - started
    later, around = items(case.after.weights).at(case.moved_home(first.place)), case.fresh()
    started = time.perf_counter()
    plan_locally(later, around, RULES)
    return {"cold": cold, "rebalance": time.perf_counter() - started, "peak": peak(), "before": before}


def _manifests(scratch: Path, count: int, number: int, rounds: int) -> Measure:
    around = workers(number)
    given = items(lognormal(count))
    plan = plan_locally(given, around, RULES)
    partitions = Partitions(given.keys.column, given.weight, given.pin, given.zone, None)
    here = Here(partitions, given, pa.nulls(count, pa.string()))
    rows = pa.table({"subject": given.keys.column, "place": plan.place})
    return manifests(scratch, f"{count:,} partitions", Planned(rows, lambda: next(here.in_order(plan)), around), rounds)


@dataclass(frozen=True, slots=True)
class Planned:
    """What manifests are made of."""

    rows: pa.Table
    """subject and place, in any order."""
    ordered: Callable[[], pa.Table]
    """Puts them in order."""
    around: Workers


def manifests(scratch: Path, what: str, planned: Planned, rounds: int) -> Measure:
    """As the planner writes them, by the least that has to be done for the same files."""
    rows, around = planned.rows, planned.around
    number = len(around)
    pairs = []
    for run in range(rounds + 1):
        one, other = scratch / f"ours-{run}", scratch / f"streamed-{run}"
        started = time.perf_counter()
        _write(one, planned.ordered(), around)
        between = time.perf_counter()
        _stream(other, rows, around)
        pairs.append((between - started, time.perf_counter() - between))
        names = [f"w-{worker}.yaml" for worker in around.names[:: max(1, number // 20)]]
        if any((one / name).read_bytes() != (other / name).read_bytes() for name in names):
            msg = "this should be the same text"
            raise RuntimeError(msg)
        shutil.rmtree(one)
        shutil.rmtree(other)
    ratio = statistics.median(ours / theirs for ours, theirs in pairs[1:] or pairs)
    return Measure(
        measure=f"manifests of {what}, by grouping, sorting and streaming the same text",
        value=rounded(statistics.median(ours for ours, _ in pairs[1:] or pairs)),
        unit="s",
        ratio=rounded(ratio),
        limit=MANIFESTS_LIMIT if len(rows) >= LIMITED_AT else None,
        ok=ratio <= MANIFESTS_LIMIT or len(rows) < LIMITED_AT,
        detail={"streamed": rounded(statistics.median(theirs for _, theirs in pairs[1:] or pairs)), "files": number},
    )


def _write(output: Path, rows: pa.Table, around: Workers) -> None:
    """As the planner does it: tables, hashes, an index, and one tree that takes its place in one step."""
    found = WorkerManifests("pool", "", around)
    found.add(assignment_table(rows, around))
    tree = found.tree()
    replace_tree(output, {**tree.files, INDEX_NAME: index_text("pool", 1, tree.hashes)}, ())


def _stream(output: Path, rows: pa.Table, around: Workers) -> None:
    """The least that has to be done for the same files."""
    output.mkdir(parents=True)
    groups: list[list[str]] = [[] for _ in around.names]
    for text, worker in zip(rows.column("subject").to_pylist(), rows.column("place").to_pylist(), strict=True):
        groups[worker].append(text)
    for worker, subjects in zip(around.names, groups, strict=True):
        subjects.sort()
        with (output / f"w-{worker}.yaml").open("w", encoding="utf-8") as file:
            file.write(_HEAD.format(name=worker) + ("\n" if subjects else " []\n"))
            file.writelines(f'    - "{text}"\n' for text in subjects)


_HEAD = """apiVersion: reconciler/v1
kind: WorkerAssignment
metadata:
  name: "pool.{name}"
spec:
  pool: "pool"
  worker: "{name}"
  filterSubjects:"""

if __name__ == "__main__":
    sys.stdout.buffer.write(orjson.dumps(planned(*map(int, sys.argv[1:]))))
