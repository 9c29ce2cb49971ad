"""`-f PATH` arguments → the manifest files behind them, with the signature by which a later look tells what moved.

Skipped are names that start with `.` or `_` (but `_index.yaml`) and other suffixes, unless such a file is named itself.

Invariant: the order depends on names alone, and no link, loop, pipe or device can make the walk hang: each is a problem.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from reconciler.errors import InvalidInput, Problem

INDEX_NAME = "_index.yaml"
STDIN = "-"
MAX_FILE = 64 * 1024 * 1024
_MAX_DIRECTORY_DEPTH = 64
_SUFFIXES = (".yaml", ".yml", ".json")
_NO_FILE = "a pipe or a device, not a file: save it as one, or pipe manifests in with `-f -`"
_COMMIT = re.compile(r"[0-9a-f]{7,64}")
# A ConfigMap volume: everything in it is a link through `..data`, which is moved in one step.
_CONFIG_MAP_LINK = "..data"

Signature = tuple[int, int, int]
"""(mtime in ns, size, inode)"""


class SourceFile(NamedTuple):
    """A file of manifests: `path` is shown to the user, `real` is opened. Standard input carries its `data`."""

    path: str
    real: str
    signature: Signature
    data: bytes | None = None

    def read(self) -> bytes:
        """The bytes of the file; raises InvalidInput with the one problem in the way."""
        if self.data is not None:
            return self.data
        try:
            # A regular file may have been replaced by a pipe since the walk: opening must not wait for a writer.
            descriptor = os.open(self.real, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                return self._read(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise InvalidInput((_os_problem(self.path, error),)) from error

    def _read(self, descriptor: int) -> bytes:
        found = os.fstat(descriptor)
        problem = _unfit(self.path, found)
        if problem:
            raise InvalidInput((problem,))
        parts = []
        left = MAX_FILE + 1
        while left > 0 and (part := os.read(descriptor, min(left, max(found.st_size, 4096) + 1))):
            parts.append(part)
            left -= len(part)
        if left <= 0:
            raise InvalidInput((_too_large(self.path),))
        return b"".join(parts)


@dataclass(frozen=True, slots=True)
class SourceTree:
    """All files of all arguments, in a fixed order; `revision` is the target of a linked root, empty for a plain one."""

    files: tuple[SourceFile, ...]
    revision: str = ""
    problems: tuple[Problem, ...] = ()
    roots: tuple[str, ...] = field(default=(), compare=False)
    """Where each path led, its links resolved; every file's `real` lies there."""
    swapped: bool = field(default=False, compare=False)
    """Every path leads through a link that is moved when all behind it is there."""


def collect(paths: Iterable[str], stdin: bytes = b"") -> SourceTree:
    """The files that the paths stand for; `-` stands for the bytes of standard input."""
    walk = _Walk()
    revisions: list[str] = []
    roots: list[str] = []
    for path in paths:
        if path == STDIN:
            walk.standard_input(stdin)
            continue
        real = Path(os.path.realpath(path))
        config_map = real / _CONFIG_MAP_LINK
        if _is_link(config_map):
            real = Path(os.path.realpath(config_map))
            revisions.append(real.name)
        else:
            revisions.append(_revision(Path(path).absolute()))
        roots.append(str(real))
        walk.root(path, real)
    revision = ",".join(dict.fromkeys(filter(None, revisions)))
    swapped = bool(revisions) and all(revisions)
    return SourceTree(tuple(walk.files), revision, tuple(walk.problems), tuple(roots), swapped)


def _revision(path: Path) -> str:
    """What the path is linked to; of a link further up (`/git/current/manifests`) only what looks like a commit."""
    if _is_link(path):
        return Path(os.path.realpath(path)).name
    link = next((parent for parent in path.parents if _is_link(parent)), path)
    target = Path(os.path.realpath(link)).name
    return target if link != path and _COMMIT.fullmatch(target) else ""


class _Walk:
    def __init__(self) -> None:
        self.files: list[SourceFile] = []
        self.problems: list[Problem] = []
        self._directories: dict[tuple[int, int], str] = {}
        self._files: set[str] = set()

    def standard_input(self, data: bytes) -> None:
        shown = "<stdin>"
        if len(data) > MAX_FILE:
            self.problems.append(_too_large(shown))
        else:
            self.files.append(SourceFile(shown, "", (0, len(data), 0), data))

    def root(self, path: str, real: Path) -> None:
        shown = _printable(os.path.normpath(path))
        try:
            found = real.stat()
        except OSError as error:
            self.problems.append(_broken_link(shown) if _is_link(path) else _os_problem(shown, error))
            return
        if stat.S_ISDIR(found.st_mode):
            self._directory(shown, str(real), found, 0)
        else:
            self._file(shown, str(real), found)

    def _directory(self, shown: str, real: str, found: os.stat_result, depth: int) -> None:
        identity = (found.st_dev, found.st_ino)
        if identity in self._directories:
            message = f"this directory was already read as {self._directories[identity]}: remove the link or the argument"
            self.problems.append(Problem(shown, 1, 1, "directory-twice", message))
            return
        if depth > _MAX_DIRECTORY_DEPTH:
            self.problems.append(Problem(shown, 1, 1, "too-deep", f"more than {_MAX_DIRECTORY_DEPTH} directories deep"))
            return
        self._directories[identity] = shown
        try:
            with os.scandir(real) as entries:
                ordered = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            self.problems.append(_os_problem(shown, error))
            return
        prefix = "" if shown == "." else shown.rstrip("/") + "/"
        for entry in ordered:
            if entry.name[0] not in "._" or entry.name == INDEX_NAME:
                self._entry(prefix + _printable(entry.name), entry, depth)

    def _entry(self, shown: str, entry: os.DirEntry[str], depth: int) -> None:
        is_manifest = entry.name.endswith(_SUFFIXES)
        try:
            # Every link is looked behind: a broken one may have led to a directory whose manifests would silently be gone.
            found = entry.stat() if is_manifest or entry.is_symlink() or entry.is_dir() else None
        except OSError as error:
            self.problems.append(_broken_link(shown) if entry.is_symlink() else _os_problem(shown, error))
            return
        if found is None:
            return
        if stat.S_ISDIR(found.st_mode):
            self._directory(shown, entry.path, found, depth + 1)
        elif is_manifest:
            self._file(shown, entry.path, found)

    def _file(self, shown: str, real: str, found: os.stat_result) -> None:
        problem = _unfit(shown, found)
        if shown in self._files:
            problem = Problem(shown, 1, 1, "file-twice", "this file was already read: remove one of the arguments")
        if problem:
            self.problems.append(problem)
        else:
            self._files.add(shown)
            self.files.append(SourceFile(shown, real, (found.st_mtime_ns, found.st_size, found.st_ino)))


def _is_link(path: str | Path) -> bool:
    return os.path.islink(path)  # noqa: PTH114 - Path.is_symlink raises for a name that is too long


def _printable(path: str) -> str:
    """A file name need not be text; what is printed and written to JSON must be."""
    if path.isascii():
        return path
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _unfit(shown: str, found: os.stat_result) -> Problem | None:
    if not stat.S_ISREG(found.st_mode):
        message = "a directory, where a file is needed" if stat.S_ISDIR(found.st_mode) else _NO_FILE
        return Problem(shown, 1, 1, "not-a-file", message)
    return _too_large(shown) if found.st_size > MAX_FILE else None


def _too_large(shown: str) -> Problem:
    return Problem(shown, 1, 1, "file-too-large", f"larger than {MAX_FILE // 1024**2} MiB: split it")


def _broken_link(shown: str) -> Problem:
    return Problem(shown, 1, 1, "broken-link", "the link leads to nothing")


def _os_problem(shown: str, error: OSError) -> Problem:
    code = "not-found" if isinstance(error, FileNotFoundError) else "unreadable"
    return Problem(shown, 1, 1, code, (error.strerror or str(error)).lower())
