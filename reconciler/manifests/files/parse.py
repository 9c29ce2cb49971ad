"""Manifest files → results, remembering what it read: what has not changed is neither read nor parsed again.

A pass calls `refresh`, then any of `find_kinds` and `sha256`, then `parse`. One pass at a time; it may run in a thread.

Invariant: a result is used again only for the same path with the same bytes (SHA-256) and an equal context.
"""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Generic, NamedTuple, NoReturn, TypeVar, cast

from reconciler.errors import InvalidInput, Problem
from reconciler.manifests.files.processes import Compiler, TextOutcome, compile_here, compile_in_processes
from reconciler.manifests.files.source import SourceFile
from reconciler.manifests.syntax.document import ENOUGH_PROBLEMS, Document, Text
from reconciler.manifests.syntax.texts import cut, parse_text

C = TypeVar("C")
R = TypeVar("R")

_EMPTY = "nothing is in it: restore it, or remove the file (one that declares nothing on purpose has a comment)"
_POOL_FROM_BYTES = 2 * 1024 * 1024
"""Below this, starting processes takes longer than the work."""
_KEEP_BYTES = 64 * 1024 * 1024
"""Read in `refresh` and kept for `parse`, so that a cold start opens each file once."""
# A name that is spelled with escapes contains one of these, and is then found by parsing.
_ESCAPED_NAME = re.compile(rb"\\[xuU\r\n]")


@dataclass(slots=True)
class _Entry(Generic[R]):
    """What is known about one file; `data` is dropped as soon as the pass is over."""

    file: SourceFile
    sha256: str
    data: bytes | None = None
    wanted: tuple[Document, ...] | None = None
    outcome: TextOutcome[R] | None = None


class ParsedFiles(NamedTuple, Generic[R]):
    """Results and problems of all files, in the order of the files; `parsed` counts the files that were not remembered."""

    results: tuple[R, ...]
    problems: tuple[Problem, ...]
    parsed: int


def _none(_result: object) -> int:
    return 0


class Parser(Generic[C, R]):
    """Parses files and hands each document to `compile_`, a function of a module (it may run in another process).

    `kinds` are those that `find_kinds` looks for: what must be known before there is a context to compile with.
    `faults_of` tells how many problems a result stands for, so that a hopeless file is not read to its end.
    """

    def __init__(
        self,
        compile_: Callable[[Document, C], R],
        kinds: Iterable[str] = (),
        *,
        faults_of: Callable[[R], int] = _none,
        progress: Callable[[int, int], None] = lambda _done, _total: None,
    ) -> None:
        self._compile = compile_
        self._faults_of = faults_of
        self._progress = progress
        self._entries: dict[str, _Entry[R]] = {}
        self._context: C | None = None
        self._kinds = frozenset(kinds)
        self._kept: list[_Entry[R]] = []
        self._kept_bytes = 0
        self._failed: dict[str, tuple[Problem, ...]] = {}

    def refresh(self, files: Sequence[SourceFile], *, full: bool = False) -> None:
        """Reads what is new or moved, or every file when `full`, and forgets the files that are gone."""
        paths = {file.path for file in files}
        for path in self._entries.keys() - paths:
            del self._entries[path]
        for file in files:
            try:
                self._entry(file, trust_signature=not full)
            except InvalidInput:
                continue  # reported by `parse`

    def sha256(self, file: SourceFile) -> str | None:
        """The hash of the file's bytes, in hex; None when it cannot be read."""
        try:
            return self._entry(file).sha256
        except InvalidInput:
            return None

    def find_kinds(self, files: Iterable[SourceFile]) -> tuple[Document, ...]:
        """The documents of `kinds`, parsing only files that name one of them; problems are left to `parse`."""
        found: list[Document] = []
        for file in files:
            try:
                entry = self._entry(file)
                if entry.wanted is None:
                    entry.wanted = tuple(_documents_of(self._kinds, file.path, self._data(entry)))
            except InvalidInput:
                continue
            found += entry.wanted
        return tuple(found)

    def parse(self, files: Sequence[SourceFile], context: C) -> ParsedFiles[R]:
        """The results of all documents of these files."""
        if context != self._context:
            self._context = context
            for entry in self._entries.values():
                entry.outcome = None
        stale: list[_Entry[R]] = []
        for file in files:
            try:
                entry = self._entry(file)
            except InvalidInput:
                continue  # reported below
            if entry.outcome is None:
                stale.append(entry)
        try:
            self._parse_entries(stale, context)
            results: list[R] = []
            problems: list[Problem] = []
            for file in files:
                outcome = self._outcome(file)
                results += outcome.results
                problems += outcome.problems
        finally:
            self._end_pass()
        return ParsedFiles(tuple(results), tuple(problems), len(stale))

    def _outcome(self, file: SourceFile) -> TextOutcome[R]:
        failed = self._failed.get(file.path)
        if failed:
            return TextOutcome((), failed)
        return cast("TextOutcome[R]", self._entries[file.path].outcome)  # every entry that did not fail has been parsed

    def _parse_entries(self, entries: Sequence[_Entry[R]], context: C) -> None:
        compiler = Compiler(self._compile, self._faults_of, context)
        owners: deque[str] = deque()
        flooded: set[str] = set()

        def texts() -> Iterator[Text]:
            for entry in entries:
                try:
                    pieces = cut(entry.file.path, self._data(entry))
                except InvalidInput:
                    continue
                for piece in pieces:
                    if entry.file.path in flooded:
                        break
                    owners.append(entry.file.path)
                    yield piece

        large = sum(entry.file.signature[1] for entry in entries) > _POOL_FROM_BYTES
        compile_all = compile_in_processes if large else compile_here
        owned = ((owners.popleft(), outcome) for outcome in compile_all(compiler, texts()))
        for number, (path, group) in enumerate(groupby(owned, key=itemgetter(0))):
            parts: list[TextOutcome[R]] = []
            faults = 0
            for _, outcome in group:
                # Pieces that were on their way already do not count, or the outcome would depend on where the work is done.
                if path not in flooded:
                    parts.append(outcome)
                    faults += compiler.faults(outcome)
                if faults >= ENOUGH_PROBLEMS:
                    flooded.add(path)
            self._entries[path].outcome = _joined(parts, _flood(path) if path in flooded else ())
            self._progress(number + 1, len(entries))

    def _end_pass(self) -> None:
        self._failed.clear()
        for entry in self._kept:
            entry.data = None
        self._kept.clear()
        self._kept_bytes = 0

    def _entry(self, file: SourceFile, *, trust_signature: bool = True) -> _Entry[R]:
        entry = self._entries.get(file.path)
        if entry is not None and trust_signature and entry.file == file and file.path not in self._failed:
            return entry
        data = self._read(file)
        sha256 = hashlib.sha256(data).hexdigest()
        if entry is not None and entry.sha256 == sha256:
            entry.file = file
            return entry
        entry = _Entry(file, sha256)
        self._entries[file.path] = entry
        if self._kept_bytes + len(data) <= _KEEP_BYTES:
            self._kept_bytes += len(data)
            self._kept.append(entry)
            entry.data = data
        return entry

    def _data(self, entry: _Entry[R]) -> bytes:
        if entry.data is not None:
            return entry.data
        data = self._read(entry.file)
        if hashlib.sha256(data).hexdigest() != entry.sha256:
            message = "the file changed while it was being read; the next pass reads it again"
            self._fail(entry.file, (Problem(entry.file.path, 1, 1, "changed-while-reading", message),))
        return data

    def _read(self, file: SourceFile) -> bytes:
        # Once is enough: if a later step of the pass could read the file, the earlier one would have missed it unnoticed.
        failed = self._failed.get(file.path)
        if failed:
            raise InvalidInput(failed)
        try:
            data = file.read()
        except InvalidInput as error:
            self._fail(file, error.problems)
        if not data or data.isspace():  # cut short by a full disk, or by somebody who is just writing it
            self._fail(file, (Problem(file.path, 1, 1, "empty-file", _EMPTY),))
        return data

    def _fail(self, file: SourceFile, problems: tuple[Problem, ...]) -> NoReturn:
        self._failed[file.path] = problems
        self._entries.pop(file.path, None)
        raise InvalidInput(problems)


def _documents_of(kinds: frozenset[str], file: str, data: bytes) -> Iterator[Document]:
    if not _may_hold(kinds, data):
        return
    for text in cut(file, data):
        if _may_hold(kinds, text.data):
            yield from (document for document in parse_text(text).documents if _kind(document) in kinds)


def _kind(document: Document) -> str:
    kind = document.value.get("kind")
    return kind if isinstance(kind, str) else ""


def _may_hold(kinds: frozenset[str], data: bytes) -> bool:
    """False only if no document can be of these kinds, however it is written."""
    named = any(name in data and re.search(rb"(?<![A-Za-z0-9])%s(?![A-Za-z0-9])" % name, data) for name in map(str.encode, kinds))
    return named or (b"\\" in data and _ESCAPED_NAME.search(data) is not None)


def _joined(parts: Sequence[TextOutcome[R]], more: tuple[Problem, ...]) -> TextOutcome[R]:
    if len(parts) == 1 and not more:
        return parts[0]
    return TextOutcome(
        tuple(result for part in parts for result in part.results),
        (*more, *(problem for part in parts for problem in part.problems)),
    )


def _flood(path: str) -> tuple[Problem, ...]:
    message = f"more than {ENOUGH_PROBLEMS} problems: mend the first of them, the rest of this file was not checked"
    return (Problem(path, 1, 1, "too-many-problems", message),)
