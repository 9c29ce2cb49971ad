"""Where everything was: from the table beside the manifests when it fits them, else from the manifests themselves.

Invariant: the table is a cache. It counts only when the report beside it names the very files of the index and the very rows
of the table.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from reconciler.errors import InvalidInput, Problem
from reconciler.manifests.texts import cut, parse_text
from reconciler.partitions.output.index import Index
from reconciler.partitions.output.text import worker_file
from reconciler.partitions.reading.inputs import NOTHING, Previous

PLAN_DIRECTORY = "_plan"
ASSIGNMENT, MOVES, REPORT = "assignment.parquet", "moves.parquet", "report.json"


def rows_digest(table: pa.Table) -> str:
    """Of the rows of an assignment, in the order of worker and subject."""
    digest = hashlib.sha256()
    for batch in table.to_batches(max_chunksize=65536):
        columns = [batch.column(name).to_pylist() for name in ("subject", "worker", "weight", "unit")]
        lines = (f"{subject}\t{worker}\t{weight}\t{unit or ''}\n" for subject, worker, weight, unit in zip(*columns, strict=True))
        digest.update("".join(lines).encode())
    return digest.hexdigest()


def read_previous(output: Path, index: Index, changed: list[str]) -> Previous:
    """The plan that stands in the output; `changed` are listed files that are not what they should be."""
    if not index.files:
        return NOTHING
    report = _report(output)
    filling = frozenset(report.get("staged", {}).get("filling", ()))
    workers = frozenset(name for path in index.files if (name := _worker_of(path)))
    table = None if changed else _table(output, index, report)
    if table is not None:
        return Previous(_column(table, "subject"), _column(table, "worker"), workers, filling, "table")
    subjects: list[str] = []
    names: list[str] = []
    for path in sorted(index.files):
        worker = _worker_of(path)
        if worker and (output / path).is_file():
            found = _subjects(output / path, tolerant=path in changed)
            subjects += found
            names += [worker] * len(found)
    return Previous(pa.array(subjects, pa.string()), pa.array(names, pa.string()), workers, filling, "manifests")


def _column(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name).combine_chunks()
    return column if isinstance(column, pa.Array) else column.chunk(0)


def _report(output: Path) -> dict[str, Any]:
    try:
        found = orjson.loads((output / PLAN_DIRECTORY / REPORT).read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return {}
    return found if isinstance(found, dict) else {}


def _table(output: Path, index: Index, report: dict[str, Any]) -> pa.Table | None:
    digests = report.get("digests")
    path = output / PLAN_DIRECTORY / ASSIGNMENT
    if not isinstance(digests, dict) or digests.get("files") != index.digest or not path.is_file():
        return None
    try:
        table = pq.read_table(path, columns=["subject", "worker", "weight", "unit"])
    except (pa.ArrowInvalid, OSError):  # damaged: a cache may be
        return None
    return table if rows_digest(table) == digests.get("assignment") else None


def _worker_of(path: str) -> str:
    name = Path(path).name
    return (
        name.removeprefix("w-").removesuffix(".yaml")
        if worker_file(name.removeprefix("w-").removesuffix(".yaml")) == name
        else ""
    )


def _subjects(path: Path, *, tolerant: bool) -> list[str]:
    """The subjects of a worker's file; one that somebody edited may say anything."""
    parsed = [parse_text(text) for text in cut(str(path), path.read_bytes())]
    documents = [document for part in parsed for document in part.documents]
    spec = documents[0].value.get("spec") if len(documents) == 1 else None
    subjects = spec.get("filterSubjects") if isinstance(spec, dict) else None
    if isinstance(subjects, list) and all(isinstance(subject, str) for subject in subjects):
        return [subject for subject in subjects if isinstance(subject, str)]
    if tolerant:
        return []
    problems = tuple(problem for part in parsed for problem in part.problems)
    raise InvalidInput(problems or (Problem(str(path), 1, 1, "bad-assignment", "one WorkerAssignment is expected here"),))
