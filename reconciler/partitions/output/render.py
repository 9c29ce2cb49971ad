"""Where everything goes → the files of the workers, and the tables beside them.

Invariant: every worker of the table has a file, also one without subjects: a consumer that is not declared would not be drained.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reconciler.partitions.output.text import worker_file, worker_text
from reconciler.partitions.planning.model import NEW, Ints, Ranks, Reason, Workers
from reconciler.partitions.reading.inputs import Partitions


@dataclass(frozen=True, slots=True)
class Tree:
    """The files of all workers."""

    files: Mapping[str, bytes]
    hashes: Mapping[str, str]
    filters: Mapping[str, int]
    """How many each lists."""


def in_order(partitions: Partitions, place: Ranks) -> Ints:
    """The rows by worker and subject: the order of every file and table."""
    keys = pc.sort_indices(
        pa.table({"place": pa.array(place), "subject": partitions.subject.cast(pa.binary())}),
        sort_keys=[("place", "ascending"), ("subject", "ascending")],
    )
    rows: Ints = keys.to_numpy(zero_copy_only=False).astype(np.int64)
    return rows


def render(pool: str, domain: str, workers: Workers, assignment: pa.Table, layout: str = "flat") -> Tree:
    """The manifests of an assignment that is in order."""
    listed = _filters(assignment)
    filters, counts = listed.column("filter").to_pylist(), _counts(listed, workers)
    files: dict[str, bytes] = {}
    lengths: dict[str, int] = {}
    begin = 0
    for name, count in zip(workers.names, counts, strict=True):
        path = worker_file(name, layout)
        files[path] = worker_text(pool, domain, name, filters[begin : begin + count])
        lengths[path] = count
        begin += count
    return Tree(files, {path: hashlib.sha256(data).hexdigest() for path, data in files.items()}, lengths)


def _filters(assignment: pa.Table) -> pa.Table:
    """What each worker reads: worker and filter, in order."""
    family = assignment.column("family")
    if family.null_count == len(family):
        return assignment.select(["worker", "subject"]).rename_columns(["worker", "filter"])
    each = pa.table({"worker": assignment.column("worker"), "filter": pc.coalesce(family, assignment.column("subject"))})
    once = each.group_by(["worker", "filter"]).aggregate([])
    keys = pa.table({name: once.column(name).cast(pa.binary()) for name in ("worker", "filter")})
    return once.take(pc.sort_indices(keys, sort_keys=[("worker", "ascending"), ("filter", "ascending")]))


def _counts(listed: pa.Table, workers: Workers) -> list[int]:
    index = pc.index_in(listed.column("worker"), value_set=pa.array(workers.names, pa.string()))
    ranks = index.combine_chunks() if isinstance(index, pa.ChunkedArray) else index
    if len(ranks) == 0:
        return [0] * len(workers)
    counts: list[int] = np.bincount(ranks.to_numpy(zero_copy_only=False), minlength=len(workers)).tolist()
    return counts


def assignment_table(partitions: Partitions, workers: Workers, place: Ranks, rows: Ints) -> pa.Table:
    """Who has what: subject, worker, weight in millionths, unit, and the filter of its family."""
    names = pa.array(workers.names, pa.string())
    nothing = pa.nulls(len(partitions), pa.string())
    unit = partitions.unit if partitions.unit is not None else nothing
    family = partitions.family if partitions.family is not None else nothing
    order = pa.array(rows)
    return pa.table(
        {
            "subject": partitions.subject.take(order),
            "worker": names.take(pa.array(place[rows])),
            "weight": pa.array(partitions.weight[rows]),
            "unit": unit.take(order),
            "family": family.take(order),
        }
    )


@dataclass(frozen=True, slots=True)
class Moved:
    """What moves, as columns of the same order."""

    rows: Ints
    source: pa.Array
    """The name of the worker before; null for what is new."""


def moves_table(partitions: Partitions, workers: Workers, place: Ranks, why: npt.NDArray[np.int8], moved: Moved) -> pa.Table:
    """What is elsewhere than before, and why: subject, from, to, weight, reason."""
    rows = moved.rows
    names = pa.array(workers.names, pa.string())
    reasons = pa.array([reason.name.lower() for reason in Reason], pa.string())
    return pa.table(
        {
            "subject": partitions.subject.take(pa.array(rows)),
            "from": moved.source.take(pa.array(rows)),
            "to": names.take(pa.array(place[rows])),
            "weight": pa.array(partitions.weight[rows]),
            "reason": reasons.take(pa.array(why[rows])),
        }
    )


def elsewhere(place: Ranks, home: Ranks, rows: Ints) -> Ints:
    """The rows, in order, that have another worker than before; what is new counts as well."""
    found: Ints = rows[(place != home)[rows] | (home == NEW)[rows]]
    return found


def parquet(table: pa.Table) -> bytes:
    """A table as a file."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    data: bytes = sink.getvalue().to_pybytes()
    return data
