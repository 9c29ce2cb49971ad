"""From plan.yaml to a written tree: read, plan, judge, write, in this order.

Invariant: nothing below the output changes unless every check and every gate before it has passed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from reconciler.errors import Refused, UsageError
from reconciler.partitions import gates, report
from reconciler.partitions.output.index import Index, edited, files_digest, read_index
from reconciler.partitions.output.previous import ASSIGNMENT, MOVES, PLAN_DIRECTORY, REPORT, read_previous, rows_digest
from reconciler.partitions.output.render import Moved, assignment_table, elsewhere, in_order, moves_table, parquet, render
from reconciler.partitions.output.text import INDEX_NAME, index_text
from reconciler.partitions.output.tree import claimed, replace_tree
from reconciler.partitions.plan_file import PlanFile
from reconciler.partitions.planning.keys import Keys
from reconciler.partitions.planning.model import ABSENT, NEW, Items, Rules, Workers
from reconciler.partitions.planning.planner import CapExceeded, Plan, plan_locally
from reconciler.partitions.reading.earlier import read_earlier
from reconciler.partitions.reading.inputs import NOTHING, Partitions, Previous
from reconciler.partitions.reading.partitions import read_partitions
from reconciler.partitions.reading.tables import LOCAL_FORMATS, open_table
from reconciler.partitions.reading.workers import read_workers, with_fresh
from reconciler.partitions.spec import PartitionPlanSpec, Table, ppm


@dataclass(frozen=True, slots=True)
class How:
    """What the command line adds to a plan."""

    force: frozenset[str] = frozenset()
    dry_run: bool = False
    prune: bool = False
    say: Callable[[str], None] = lambda _line: None
    """Told what is going on."""


@dataclass(slots=True)
class Made:
    """A plan with all that is written of it."""

    plan: Plan
    items: Items
    workers: Workers
    assignment: pa.Table
    moves: pa.Table
    files: Mapping[str, bytes]
    """Below the output; only what is new or changed."""
    gone: tuple[str, ...]
    report: dict[str, Any]
    changed: bool
    seconds: dict[str, float] = field(default_factory=dict)


def make(plan: PlanFile, how: How) -> Made:
    """Reads and plans and, unless it is a dry run, writes; raises InvalidInput or Refused, having written nothing."""
    output = output_of(plan)
    gates.known(how.force)
    if how.dry_run:
        return _planned(plan, output, how)
    with claimed(output):
        made = _planned(plan, output, how)
        if made.changed:
            how.say(f"writing {len(made.files)} files to {plan.spec.output}")
            replace_tree(output, made.files, made.gone)
    return made


def output_of(plan: PlanFile) -> Path:
    """Where the tree goes."""
    if "://" in plan.spec.output:
        msg = f"output {plan.spec.output}: a tree is exchanged in one step, which an object store cannot do; give a directory"
        raise UsageError(msg)
    return plan.directory / plan.spec.output


def _planned(plan: PlanFile, output: Path, how: How) -> Made:
    clock = _Clock(how.say)
    spec = plan.spec
    for name, table in (("partitions", spec.partitions), ("workers", spec.workers)):
        _local_only(name, table)
    found = read_workers(open_table(plan, "workers", spec.workers), spec)
    partitions = read_partitions(open_table(plan, "partitions", spec.partitions), spec, found)
    clock.lap("read", f"read {len(partitions):,} partitions and {len(found.workers)} workers")
    index = read_index(output, spec.pool)
    changed = edited(output, index)
    previous = _previous(plan, output, index, changed)
    clock.lap("previous", f"read the plan before: {len(previous):,} partitions on {len(previous.workers)} workers ({previous.source})")
    workers = with_fresh(found, previous.workers, previous.filling)
    home, source = _homes(partitions, workers, previous)
    ones = np.ones(len(partitions), dtype=np.int64)
    items = Items(Keys(partitions.subject), partitions.weight, ones, home, partitions.pin, partitions.zone)
    try:
        made = plan_locally(items, workers, _rules(spec, partitions), partitions.unit)
    except CapExceeded as error:
        raise Refused((f"maxSubjects: {error}",)) from error
    clock.lap("plan", "planned")
    rows = in_order(partitions, made.place)
    assignment = assignment_table(partitions, workers, made.place, rows)
    tree = render(spec.pool, spec.domain, workers, assignment)
    moved = Moved(elsewhere(made.place, home, rows), source)
    moves = moves_table(partitions, workers, made.place, made.reason, moved)
    stale = _not_ours(output, [path for path in tree.files if path not in index.files])
    verdicts = gates.judge(_measured(items, workers, made, previous, (tree.files, (*changed, *stale))), spec.gates, how.force)
    gates.refuse(verdicts)
    different = tree.hashes != index.files or bool(changed) or bool(stale)
    generation = index.generation + 1 if different else index.generation
    gone = tuple(_prunable(output, index, tree.files, spec.pool)) if how.prune else ()
    write = {path: data for path, data in tree.files.items() if index.files.get(path) != tree.hashes[path] or path in changed}
    document = report.document(
        spec.pool,
        report.pool_part(items, workers, made)
        | {"files": {"written": len(write), "unchanged": len(tree.files) - len(write), "pruned": len(gone)}},
        {
            "files": {"written": len(write), "unchanged": len(tree.files) - len(write), "pruned": len(gone)},
            "changed": different or bool(gone),
            "generation": generation,
            "previous": previous.source,
            "gates": [
                {"gate": verdict.gate, "passed": verdict.passed, "forced": verdict.forced, "message": verdict.message}
                for verdict in verdicts
            ],
            "staged": {"waiting": _units(made.waiting), "filling": [workers.names[k] for k in sorted(made.filling)]},
            "digests": {"files": files_digest(tree.hashes), "assignment": rows_digest(assignment)},
        },
    )
    clock.lap("render", f"{len(moves):,} moves, {len(write)} of {len(tree.files)} files differ")
    document["seconds"] = clock.laps
    files = dict(write)
    if different:
        files |= {
            INDEX_NAME: index_text(spec.pool, generation, tree.hashes),
            f"{PLAN_DIRECTORY}/{ASSIGNMENT}": parquet(assignment),
            f"{PLAN_DIRECTORY}/{MOVES}": parquet(moves),
            f"{PLAN_DIRECTORY}/{REPORT}": orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n",
            f"{PLAN_DIRECTORY}/.gitignore": b"*\n",
        }
    return Made(made, items, workers, assignment, moves, files, gone, document, different or bool(gone))


class _Clock:
    """How long each part took, and a line when it ends."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.laps: dict[str, float] = {}
        self._say = say
        self._last = time.perf_counter()

    def lap(self, part: str, line: str) -> None:
        now = time.perf_counter()
        self.laps[part] = round(now - self._last, 3)
        self._last = now
        self._say(f"{line} ({self.laps[part]:.2f}s)")


def _local_only(name: str, table: Table) -> None:
    if table.format not in LOCAL_FORMATS:
        msg = (
            f"{name}: format {table.format} is read by Spark, {' and '.join(LOCAL_FORMATS)} by every planner: "
            "pip install 'jetstream-reconciler[spark]'"
        )
        raise UsageError(msg)


def _rules(spec: PartitionPlanSpec, partitions: Partitions) -> Rules:
    balance = spec.balance
    weight = int(partitions.weight.sum())
    budget = None if balance.max_moved is None else weight * ppm(balance.max_moved) // 1_000_000
    return Rules(ppm(balance.trigger), ppm(balance.target), balance.fill_new == "average", budget, spec.zones)


def _previous(plan: PlanFile, output: Path, index: Index, changed: list[str]) -> Previous:
    given = plan.spec.previous
    if given == "none":
        return NOTHING
    if given == "auto":
        return read_previous(output, index, changed)
    _local_only("previous", given)
    table = open_table(plan, "previous", given)
    names = (given.columns.subject or "subject", given.columns.worker or "worker")
    return read_earlier(table, names)


def _homes(partitions: Partitions, workers: Workers, previous: Previous) -> tuple[Any, pa.Array]:
    """The rank of each partition's worker before, and its name."""
    if not len(previous):
        return np.full(len(partitions), NEW, dtype=np.int32), pa.nulls(len(partitions), pa.string())
    at = pc.index_in(partitions.subject, value_set=previous.subject)
    source = previous.worker.take(at)
    ranks = pc.index_in(source, value_set=pa.array(workers.names, pa.string()))
    home = pc.fill_null(ranks, ABSENT).to_numpy(zero_copy_only=False).astype(np.int32)
    home[np.asarray(source.is_null())] = NEW
    return home, source


def _measured(items: Items, workers: Workers, made: Plan, previous: Previous, tree: tuple[Mapping[str, bytes], tuple[str, ...]]) -> gates.Measured:
    files, changed = tree
    moved = (made.place != items.home) & (items.home != NEW)
    largest = max(files, key=lambda path: (len(files[path]), path), default="")
    receiving = {name for name, active in zip(workers.names, workers.active, strict=True) if active}
    return gates.Measured(
        partitions=len(items),
        partitions_before=len(previous),
        weight=int(items.weight.sum()),
        moved=int(items.weight[moved].sum()),
        forced=made.bounds.forced,
        active=len(receiving),
        workers_before=len(previous.workers),
        workers_removed=len(previous.workers - receiving),
        largest_manifest=(largest, len(files.get(largest, b""))),
        edited=tuple(sorted(changed)),
    )


def _not_ours(output: Path, paths: list[str]) -> list[str]:
    """Files that stand where ours would go, are in no index, and were not written by a planner."""
    return [path for path in paths if (output / path).exists() and not _is_ours(output / path)]


def _is_ours(path: Path) -> bool:
    return path.is_file() and path.read_bytes().startswith(b"apiVersion: reconciler/v1\nkind: WorkerAssignment\n")


def _prunable(output: Path, index: Index, files: Mapping[str, bytes], pool: str) -> list[str]:
    """Files of workers that are gone: listed before, or left over from earlier runs."""
    of_pool = f'  pool: "{pool}"\n'.encode()
    left = [path for path in output.glob("w-*.yaml") if _is_ours(path) and of_pool in path.read_bytes()] if output.is_dir() else []
    candidates = {*index.files, *(path.name for path in left)}
    return sorted(path for path in candidates - set(files) if (output / path).is_file())


def _units(micro: int) -> float | int:
    return micro // 1_000_000 if micro % 1_000_000 == 0 else micro / 1_000_000
