"""Where everything was: from the table beside the manifests when it fits them, else from the manifests themselves.

Invariant: the table is a cache. It counts only when the report beside it names the very files of the index and the very rows
of the table.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import ValidationError

from reconciler.errors import InvalidInput, Problem
from reconciler.manifests.syntax.texts import cut, parse_text
from reconciler.model.kinds.pool import WorkerAssignmentSpec
from reconciler.partitions.output.index import Index
from reconciler.partitions.reading.inputs import NOTHING, Previous, wild_ones

PLAN_DIRECTORY = "_plan"
COLUMNS = ("subject", "worker", "weight", "unit", "family")
_SLICE = 65536
"""Rows."""
ASSIGNMENT, MOVES, REPORT = "assignment.parquet", "moves.parquet", "report.json"


class RowsDigest:
    """Of the rows of an assignment, in the order of worker and subject, slice by slice."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()

    def add(self, table: pa.Table | pa.RecordBatch) -> None:
        """More of them."""
        for batch in [table] if isinstance(table, pa.RecordBatch) else table.to_batches(max_chunksize=_SLICE):
            columns = [batch.column(name).to_pylist() for name in COLUMNS]
            lines = (
                f"{subject}\t{worker}\t{weight}\t{unit or ''}\t{family or ''}\n"
                for subject, worker, weight, unit, family in zip(*columns, strict=True)
            )
            self._digest.update("".join(lines).encode())

    def hexdigest(self) -> str:
        """Of all so far."""
        return self._digest.hexdigest()


def read_previous(output: Path, index: Index, changed: list[str]) -> Previous:
    """The plan that stands in the output; `changed` are listed files that are not what they should be."""
    if not index.files:
        return NOTHING
    report = read_report(output, index)
    filling = frozenset(report.get("staged", {}).get("filling", ()))
    table = None if changed else _table(output, report)
    if table is not None:
        workers = frozenset(Path(path).stem.removeprefix("w-") for path in index.files)
        return Previous(table.subject, table.worker, workers, filling, "table", table.families)
    listed = [_assignment(output / path, tolerant=path in changed) for path in sorted(index.files)]
    subjects = [subject for _, some in listed for subject in some]
    names = [worker for worker, some in listed for _ in some]
    workers = frozenset(worker for worker, _ in listed if worker)
    subject, worker = pa.array(subjects, pa.string()), pa.array(names, pa.string())
    return Previous(subject, worker, workers, filling, "manifests", wild_ones(subject, worker))


def read_report(output: Path, index: Index) -> dict[str, Any]:
    """The report of the plan that the index is of; of any other, nothing."""
    try:
        found = orjson.loads((output / PLAN_DIRECTORY / REPORT).read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return {}
    digests = found.get("digests") if isinstance(found, dict) else None
    return found if isinstance(digests, dict) and digests.get("files") == index.digest else {}


@dataclass(slots=True)
class _Table:
    """What of the table is kept."""

    subject: pa.Array
    worker: pa.Array
    families: dict[str, str]


def _table(output: Path, report: dict[str, Any]) -> _Table | None:
    """Read a slice at a time: ten million rows are two gigabytes, of which a quarter is kept."""
    path = output / PLAN_DIRECTORY / ASSIGNMENT
    if not report or not path.is_file():
        return None
    try:
        found, digest = _read(path)
    except (pa.ArrowInvalid, KeyError, OSError):  # damaged: a cache may be
        return None
    pa.default_memory_pool().release_unused()
    return found if digest == report["digests"].get("assignment") else None


def _read(path: Path) -> tuple[_Table, str]:
    """The table, and the digest of its rows."""
    digest, families = RowsDigest(), dict[str, str]()
    subjects: list[pa.Array] = []
    workers: list[pa.Array] = []
    with pq.ParquetFile(path, pre_buffer=False) as file:
        for batch in file.iter_batches(_SLICE, columns=[*COLUMNS], use_threads=False):
            digest.add(batch)
            subjects.append(batch.column("subject"))
            workers.append(batch.column("worker"))
            families |= _families(batch)
    return _Table(_whole(subjects), _whole(workers), families), digest.hexdigest()


def _families(batch: pa.RecordBatch) -> dict[str, str]:
    family = batch.column("family")
    if family.null_count == len(family):
        return {}
    named = pa.Table.from_batches([batch.select(["family", "worker"])]).filter(pc.is_valid(family))
    pairs = named.group_by(["family", "worker"]).aggregate([])
    return dict(zip(pairs["family"].to_pylist(), pairs["worker"].to_pylist(), strict=True))


def _whole(parts: list[pa.Array]) -> pa.Array:
    return pa.concat_arrays(parts) if parts else pa.array([], pa.string())


def _assignment(path: Path, *, tolerant: bool) -> tuple[str, list[str]]:
    """The worker and the subjects of a file; one that somebody edited may say anything, or be gone."""
    if tolerant and not path.is_file():
        return "", []
    parsed = [parse_text(text) for text in cut(str(path), path.read_bytes())]
    documents = [document for part in parsed for document in part.documents]
    spec = documents[0].value.get("spec") if len(documents) == 1 else None
    try:
        found = WorkerAssignmentSpec.model_validate(spec)
    except ValidationError as error:
        if tolerant:
            return "", []
        problems = tuple(problem for part in parsed for problem in part.problems)
        message = "one WorkerAssignment is expected here"
        raise InvalidInput(problems or (Problem(str(path), 1, 1, "bad-assignment", message),)) from error
    return found.worker, found.filter_subjects
