"""A plan → everything that is written of it, while nothing is written yet.

Invariant: what does not change is not written; when no manifest changes, nothing is.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow.compute as pc

from reconciler.partitions import gates, report
from reconciler.partitions.gathering import Gathered
from reconciler.partitions.output.index import files_digest
from reconciler.partitions.output.previous import ASSIGNMENT, MOVES, PLAN_DIRECTORY, REPORT, RowsDigest
from reconciler.partitions.output.render import (
    ASSIGNMENT_ROWS,
    MOVES_ROWS,
    Parquet,
    Tree,
    WorkerManifests,
    assignment_table,
    moves_table,
)
from reconciler.partitions.output.text import INDEX_NAME, index_text
from reconciler.partitions.planning.model import NEW
from reconciler.partitions.planning.planner import PartitionPlan
from reconciler.partitions.spec import PartitionPlanSpec

_OURS = b"apiVersion: reconciler/v1\nkind: WorkerAssignment\n"


@dataclass(frozen=True, slots=True)
class Draft:
    """What a plan comes to, in files and tables."""

    plan: PartitionPlan
    tree: Tree
    assignment: bytes
    """A Parquet file, like the moves."""
    moves: bytes
    families: Mapping[str, int]
    """How many there are, and of how many partitions."""
    digest: str
    """Of the rows of the assignment."""
    changed: tuple[str, ...]
    """Files whose bytes are not what the index says, or which somebody else has put where ours go."""
    written: Mapping[str, bytes]
    """Manifests that are new or different."""
    gone: tuple[str, ...]
    """Files that are deleted."""
    generation: int

    @property
    def differs(self) -> bool:
        """Whether there is anything to write."""
        return bool(self.written or self.gone) or self.changed != ()


def draft(output: Path, spec: PartitionPlanSpec, gathered: Gathered, plan: PartitionPlan, *, prune: bool) -> Draft:
    """Renders the plan, slice by slice, and compares it with what is there."""
    workers, index = gathered.workers, gathered.index
    manifests, digest = WorkerManifests(spec.pool, spec.domain, workers, spec.layout), RowsDigest()
    assignment, moves = Parquet(ASSIGNMENT_ROWS), Parquet(MOVES_ROWS)
    families: Counter[str] = Counter()
    for rows in gathered.rows.in_order(plan):
        named = assignment_table(rows, workers)
        family = named.column("family")
        families.update(count=pc.count_distinct(family).as_py(), partitions=len(family) - family.null_count)
        manifests.add(named)
        digest.add(named)
        assignment.add(named)
        moves.add(moves_table(rows, workers))
    tree = manifests.tree()
    changed = (*gathered.edited, *_not_ours(output, [path for path in tree.files if path not in index.files]))
    written = {path: data for path, data in tree.files.items() if index.files.get(path) != tree.hashes[path] or path in changed}
    gone = tuple(_prunable(output, gathered, tree, spec.pool)) if prune else ()
    different = tree.hashes != index.files
    return Draft(
        plan,
        tree,
        assignment.data(),
        moves.data(),
        families,
        digest.hexdigest(),
        changed,
        written,
        gone,
        index.generation + different,
    )


def measured(gathered: Gathered, made: Draft) -> gates.Measured:
    """What the gates look at."""
    items, workers, plan = gathered.items, gathered.workers, made.plan
    moved = (plan.place != items.home) & (items.home != NEW)
    tree = made.tree
    requests = {path: -(-len(data) // gathered.consumers(tree.filters[path])) for path, data in tree.files.items()}
    largest = max(requests, key=lambda path: (requests[path], path), default="")
    receiving = {name for name, active in zip(workers.names, workers.active, strict=True) if active}
    return gates.Measured(
        partitions=int(gathered.counts.sum()),
        partitions_before=gathered.before.partitions,
        weight=int(items.weight.sum()),
        moved=int(items.weight[moved].sum()),
        forced=plan.bounds.forced,
        active=len(receiving),
        workers_before=len(gathered.before.workers),
        workers_removed=len(gathered.before.workers - receiving),
        largest_manifest=(largest, requests.get(largest, 0)),
        edited=made.changed,
    )


def describe(spec: PartitionPlanSpec, gathered: Gathered, made: Draft, verdicts: tuple[gates.GateVerdict, ...]) -> dict[str, Any]:
    """The report, but for the seconds."""
    files = {"written": len(made.written), "unchanged": len(made.tree.files) - len(made.written), "pruned": len(made.gone)}
    consumers = sum(map(gathered.consumers, made.tree.filters.values()))
    part = report.pool_part(gathered.items, gathered.workers, made.plan, gathered.counts)
    part |= {"families": dict(made.families), "consumers": consumers, "files": files}
    more = {
        "plan": f"sha256:{files_digest(made.tree.hashes)}",
        "changed": made.differs,
        "generation": made.generation,
        "previous": gathered.before.source,
        "gates": [
            {"gate": verdict.gate, "passed": verdict.passed, "forced": verdict.forced, "message": verdict.message}
            for verdict in verdicts
        ],
        "staged": {
            "waiting": report.in_units(made.plan.waiting),
            "filling": [gathered.workers.names[rank] for rank in sorted(made.plan.filling)],
        },
        "digests": {"files": files_digest(made.tree.hashes), "assignment": made.digest},
    }
    return report.document(spec.pool, part, more)


def all_files(spec: PartitionPlanSpec, made: Draft, document: Mapping[str, Any]) -> dict[str, bytes]:
    """Every file to write, below the output."""
    if not made.differs:
        return {}
    return {
        **made.written,
        INDEX_NAME: index_text(spec.pool, made.generation, made.tree.hashes),
        f"{PLAN_DIRECTORY}/{ASSIGNMENT}": made.assignment,
        f"{PLAN_DIRECTORY}/{MOVES}": made.moves,
        f"{PLAN_DIRECTORY}/{REPORT}": orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n",
        f"{PLAN_DIRECTORY}/.gitignore": b"*\n",
    }


def _not_ours(output: Path, paths: list[str]) -> list[str]:
    """Files that stand where ours would go, are in no index, and were not written by a planner."""
    return [path for path in paths if (output / path).exists() and not _is_ours(output / path)]


def _is_ours(path: Path) -> bool:
    return path.is_file() and path.read_bytes().startswith(_OURS)


def _prunable(output: Path, gathered: Gathered, tree: Tree, pool: str) -> list[str]:
    """Files of workers that are gone: listed before, or left over from earlier runs."""
    of_pool = f'  pool: "{pool}"\n'.encode()
    there = itertools.chain.from_iterable(output.glob(f"{directory}w-*.yaml") for directory in ("", "[0-9a-f][0-9a-f]/"))
    left = [path for path in there if _is_ours(path) and of_pool in path.read_bytes()]
    candidates = {*gathered.index.files, *(path.relative_to(output).as_posix() for path in left)}
    return sorted(path for path in candidates - set(tree.files) if (output / path).is_file())
