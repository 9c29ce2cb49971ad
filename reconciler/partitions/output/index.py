"""The index of an earlier plan, and whether what it lists is still what it says.

Invariant: files are compared by their hash; what differs is somebody's work and is named, never overwritten unasked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from reconciler.errors import InvalidInput, Problem
from reconciler.manifests.files.source import MAX_FILE
from reconciler.manifests.findings import Finding, from_validation, to_problems
from reconciler.manifests.syntax.texts import cut, parse_text
from reconciler.model.kinds.documents import AssignmentIndexSpec
from reconciler.partitions.output.text import INDEX_NAME

INDEX_KIND = "AssignmentIndex"


@dataclass(frozen=True, slots=True)
class Index:
    """What an earlier plan has written: hashes by path, below the output."""

    generation: int = 0
    files: Mapping[str, str] = field(default_factory=dict)
    digest: str = ""
    """Of the sorted paths and hashes."""


def files_digest(files: Mapping[str, str]) -> str:
    """One hash for all files."""
    return hashlib.sha256("".join(f"{path}\n{files[path]}\n" for path in sorted(files)).encode()).hexdigest()


def read_index(output: Path, pool: str) -> Index:
    """The index, or an empty one where there is none; one of another pool, or a broken one, is an error."""
    path = output / INDEX_NAME
    if not path.exists():
        return Index()
    data = path.read_bytes()
    if len(data) > MAX_FILE:
        raise InvalidInput((Problem(str(path), 1, 1, "file-too-large", "this is no index of ours"),))
    parsed = [parse_text(text) for text in cut(str(path), data)]
    problems = tuple(problem for part in parsed for problem in part.problems)
    documents = [document for part in parsed for document in part.documents]
    if problems or len(documents) != 1 or documents[0].value.get("kind") != INDEX_KIND:
        raise InvalidInput(problems or (Problem(str(path), 1, 1, "bad-index", f"one {INDEX_KIND} is expected here"),))
    try:
        spec = AssignmentIndexSpec.model_validate(documents[0].value.get("spec"))
    except ValidationError as error:
        raise InvalidInput(to_problems(documents[0], from_validation(error, AssignmentIndexSpec, ("spec",)))) from error
    if spec.pool != pool:
        message = f"this directory belongs to the pool {spec.pool}: give {pool} an output of its own"
        raise InvalidInput(to_problems(documents[0], [Finding(("spec", "pool"), "another-pool", message)]))
    files = {file.path: file.sha256 for file in spec.files}
    return Index(spec.generation, files, files_digest(files))


def edited(output: Path, index: Index) -> list[str]:
    """The listed files that are not what the index says, or are gone."""
    found = []
    for name, expected in sorted(index.files.items()):
        path = output / name
        if path.is_symlink() or not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != expected:
            found.append(name)
    return found
