"""Where everything goes → the files of the workers, and the tables beside them.

Invariant: every worker of the table has a file, also one without subjects: a consumer that is not declared would not be drained.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reconciler.partitions.output.text import worker_file, worker_text
from reconciler.partitions.planning.model import NEW, MoveReason, Workers

ROWS = pa.schema(
    {
        "subject": pa.string(),
        "place": pa.int32(),
        "weight": pa.int64(),
        "unit": pa.string(),
        "family": pa.string(),
        "home": pa.int32(),
        "from": pa.string(),
        "reason": pa.int8(),
    }
)
"""A partition of a finished plan: workers by rank, and the name of the one before."""
ASSIGNMENT_ROWS = pa.schema(
    {"subject": pa.string(), "worker": pa.string(), "weight": pa.int64(), "unit": pa.string(), "family": pa.string()}
)
"""Who has what: the weight in millionths, and the filter of a family."""
MOVES_ROWS = pa.schema(
    {"subject": pa.string(), "from": pa.string(), "to": pa.string(), "weight": pa.int64(), "reason": pa.string()}
)
"""What is elsewhere than before, or new, and why."""


@dataclass(frozen=True, slots=True)
class Tree:
    """The files of all workers."""

    files: Mapping[str, bytes]
    hashes: Mapping[str, str]
    filters: Mapping[str, int]
    """How many each lists."""


@dataclass(slots=True)
class WorkerManifests:
    """The files of the workers of a pool, made slice by slice."""

    pool: str
    domain: str
    workers: Workers
    layout: str = "flat"
    filters: dict[str, int] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)

    def add(self, assignment: pa.Table) -> None:
        """The files of those who are in it: it is in the order of worker and subject, and has all that they have."""
        listed = _filters(assignment)
        filters, counts = listed.column("filter").to_pylist(), _counts(listed, self.workers)
        begin = 0
        for name, count in zip(self.workers.names, counts, strict=True):
            if count:
                self._put(name, filters[begin : begin + count])
                begin += count

    def tree(self) -> Tree:
        """All of them."""
        paths = {worker_file(name, self.layout): name for name in self.workers.names}
        for path, name in paths.items():
            if path not in self.files:
                self._put(name, [])
        files = {path: self.files[path] for path in paths}
        return Tree(files, {path: hashlib.sha256(data).hexdigest() for path, data in files.items()}, self.filters)

    def _put(self, name: str, filters: list[str]) -> None:
        path = worker_file(name, self.layout)
        self.files[path] = worker_text(self.pool, self.domain, name, filters)
        self.filters[path] = len(filters)


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


def assignment_table(rows: pa.Table, workers: Workers) -> pa.Table:
    """The same rows, with names."""
    worker = _names(workers).take(rows.column("place"))
    columns = [rows.column("subject"), worker, *(rows.column(name) for name in ("weight", "unit", "family"))]
    return pa.table(columns, schema=ASSIGNMENT_ROWS)


def moves_table(rows: pa.Table, workers: Workers) -> pa.Table:
    """What of them has another worker than before; what is new counts as well."""
    home, place = rows.column("home"), rows.column("place")
    moved = rows.filter(pc.or_(pc.not_equal(home, place), pc.equal(home, NEW)))
    reasons = pa.array([reason.name.lower() for reason in MoveReason], pa.string())
    to, why = _names(workers).take(moved.column("place")), reasons.take(moved.column("reason"))
    return pa.table([moved.column("subject"), moved.column("from"), to, moved.column("weight"), why], schema=MOVES_ROWS)


def _names(workers: Workers) -> pa.Array:
    return pa.array(workers.names, pa.string())


class Parquet:
    """A table as a file in memory, written slice by slice: compressed, it takes a fraction of its rows."""

    def __init__(self, schema: pa.Schema) -> None:
        self._sink = pa.BufferOutputStream()
        self._writer = pq.ParquetWriter(self._sink, schema, compression="zstd")

    def add(self, rows: pa.Table) -> None:
        """More of them."""
        self._writer.write_table(rows)

    def data(self) -> bytes:
        """The file; nothing is added after that."""
        self._writer.close()
        data: bytes = self._sink.getvalue().to_pybytes()
        return data


def slices(data: bytes) -> Iterator[pa.Table]:
    """The rows of such a file again."""
    with pq.ParquetFile(pa.BufferReader(data)) as file:
        for batch in file.iter_batches():
            yield pa.Table.from_batches([batch])
