"""Generated directories: where an `_index.yaml` stands, only the files it lists count, and only if all of them are right.

Invariant: a pool whose files are incomplete loses none of its workers: it is held back as a whole, and no other pool is.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from reconciler.errors import Problem
from reconciler.manifests.files.source import INDEX_NAME, SourceFile
from reconciler.manifests.syntax.document import Document, join_path
from reconciler.manifests.syntax.yaml import locate

INDEX_KIND = "AssignmentIndex"
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class HeldBack:
    """A pool that is left as it is on the server, because its manifests are not all there."""

    pool: str
    reason: str


@dataclass(frozen=True, slots=True)
class Whole:
    """A pool all of whose generated files are there, and which generation they are."""

    pool: str
    generation: int


@dataclass(frozen=True, slots=True)
class Selection:
    """The files that count, indexes included, and what was found on the way."""

    files: tuple[SourceFile, ...]
    held_back: tuple[HeldBack, ...]
    problems: tuple[Problem, ...]
    whole: tuple[Whole, ...] = ()


@dataclass(frozen=True, slots=True)
class _Index:
    """One AssignmentIndex: the files of one pool, by their path as shown to the user."""

    pool: str
    generation: int
    directory: str
    hashes: dict[str, str]


def index_files(files: Iterable[SourceFile]) -> tuple[SourceFile, ...]:
    """The files that say what counts in their directory."""
    named_so = (file for file in files if file.path.endswith(INDEX_NAME))
    return tuple(file for file in named_so if posixpath.basename(file.path) == INDEX_NAME)


def select(files: Sequence[SourceFile], indexes: Iterable[Document], sha256: Callable[[SourceFile], str | None]) -> Selection:
    """Applies the AssignmentIndex documents (of `index_files`) to a tree; `sha256` is asked for listed files only."""
    generated = {posixpath.dirname(file.path) for file in index_files(files)}
    if not generated:
        return Selection(tuple(files), (), ())
    indexes = tuple(indexes)
    problems = list(_silent(files, indexes))
    read = [index for document in indexes if (index := _read_index(document, problems))]
    by_path = {file.path: file for file in files}
    held_back: list[HeldBack] = []
    whole: list[Whole] = []
    counted: set[str] = set()
    listed: set[str] = set()
    for index in read:
        listed.update(index.hashes)
        reason = _incomplete(index, by_path, sha256)
        if reason:
            held_back.append(HeldBack(index.pool, reason))
        else:
            whole.append(Whole(index.pool, index.generation))
            counted.update(index.hashes)
    understood = {index.directory for index in read}
    selected: list[SourceFile] = []
    for file in files:
        directory = _nearest(posixpath.dirname(file.path), generated)
        if directory is None or file.path in counted or posixpath.basename(file.path) == INDEX_NAME:
            selected.append(file)
        elif file.path not in listed and directory in understood:
            index_path = posixpath.join(directory, INDEX_NAME)
            message = f"this file does not count: {index_path} does not list it"
            problems.append(Problem(file.path, 1, 1, "not-in-index", message, severity="warning"))
    return Selection(tuple(selected), tuple(held_back), tuple(problems), tuple(whole))


def _silent(files: Iterable[SourceFile], indexes: Iterable[Document]) -> Iterator[Problem]:
    spoken = {document.location.file for document in indexes}
    for file in index_files(files):
        if file.path not in spoken:
            yield Problem(file.path, 1, 1, "bad-index", f"no {INDEX_KIND} can be read here, so nothing in this directory counts")


def _nearest(directory: str, generated: set[str]) -> str | None:
    """The generated directory that this one is, or lies in; the innermost if there are several."""
    while directory not in generated:
        parent = posixpath.dirname(directory)
        if parent == directory:
            return None
        directory = parent
    return directory


def _incomplete(index: _Index, by_path: dict[str, SourceFile], sha256: Callable[[SourceFile], str | None]) -> str:
    """Why the pool of this index is held back; empty when every file is there as listed."""
    missing = [path for path in index.hashes if path not in by_path]
    if missing:
        return _reason(missing, "missing")
    wrong = [path for path, expected in index.hashes.items() if sha256(by_path[path]) != expected]
    return _reason(wrong, "not what the index says (sha256)") if wrong else ""


def _reason(paths: list[str], fault: str) -> str:
    others = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"{paths[0]}{others}: {fault}"


def _read_index(document: Document, problems: list[Problem]) -> _Index | None:
    """The index that a document declares; None after reporting what is wrong with it."""

    def wrong(message: str, *path: str | int) -> None:
        line, column = locate(document, path)
        file = document.location.file
        problems.append(Problem(file, line, column, "bad-index", message, join_path(path)))

    spec = document.value.get("spec")
    pool = spec.get("pool") if isinstance(spec, dict) else None
    files = spec.get("files") if isinstance(spec, dict) else None
    if not isinstance(pool, str) or not pool:
        wrong("the name of the pool is missing", "spec", "pool")
        return None
    if not isinstance(files, list):
        wrong("a list of {path, sha256} is needed, be it empty", "spec", "files")
        return None
    generation = spec.get("generation") if isinstance(spec, dict) else None
    directory = posixpath.dirname(document.location.file)
    hashes: dict[str, str] = {}
    for number, entry in enumerate(files):
        fault = _entry_fault(entry)
        path = "" if fault else posixpath.normpath(posixpath.join(directory, entry["path"]))
        if fault or path in hashes:
            wrong(fault or f'"{entry["path"]}" is listed twice', "spec", "files", number)
            return None
        hashes[path] = entry["sha256"]
    return _Index(pool, generation if isinstance(generation, int) else 0, directory, hashes)


def _entry_fault(entry: object) -> str:
    path = entry.get("path") if isinstance(entry, dict) else None
    sha256 = entry.get("sha256") if isinstance(entry, dict) else None
    if not isinstance(path, str) or not path:
        return "the path is missing"
    if path.startswith("/") or ".." in path.split("/"):
        return f'"{path}" leads out of the directory of the index'
    if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        return f'"{path}" needs its sha256: 64 hex digits, lower case'
    return ""
