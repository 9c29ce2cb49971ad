"""The next tree is built beside the output and takes its place in one step.

Unchanged files are linked, not copied; everything is synced before the step. After a crash the output is the old tree or the new
one, and what was left beside it is swept away by the next run, whether that one has anything to write or not.

Invariant: no moment exists at which the output is neither the old tree nor the new one.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import os
import shutil
import stat
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from reconciler.errors import Refused, UsageError

_AT_FDCWD = -100
_EXCHANGE = 2
_AT_ONCE = 16
"""Files that are written at once: what several wait for, a disk does in one go."""
_LIBC = ctypes.CDLL(None, use_errno=True)
_SCRATCH = ".{name}.next"
_LOCKED = "another planner is writing to {directory}: wait for it to end"


@contextmanager
def claimed(output: Path) -> Iterator[None]:
    """The sole right to write there, as long as the block lasts; nothing of an earlier run is left beside it then."""
    parent = next(directory for directory in _real(output).parents if directory.is_dir())
    try:
        descriptor = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        msg = f"cannot read {parent}: {error.strerror}"
        raise UsageError(msg) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Refused((_LOCKED.format(directory=parent),)) from error
        _sweep_beside(output)
        yield
    finally:
        os.close(descriptor)


def replace_tree(output: Path, files: Mapping[str, bytes], gone: Collection[str]) -> None:
    """Writes these files and removes those, all at once; whatever else is there stays as it is.

    Raises Refused where a file system can do neither an exchange nor a link that is swapped.
    """
    target = _real(output)
    scratch = _scratch(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        _build(target, scratch, files, gone)
        if output.is_symlink():
            _swap_link(output, target, scratch)
            return
        if target.exists():
            _exchange(scratch, target)
        else:
            scratch.rename(target)
        _sync(target.parent)
    finally:
        _sweep(scratch)


def _real(output: Path) -> Path:
    return Path(os.path.realpath(output))


def _scratch(target: Path) -> Path:
    return target.parent / _SCRATCH.format(name=target.name)


def _sweep(left: Path) -> None:
    if left.is_symlink():
        left.unlink()
    elif left.exists():
        shutil.rmtree(left)


def _sweep_beside(output: Path) -> None:
    """What a run that was killed has left: a tree that was not finished, or one that the link does not lead to (any more)."""
    target = _real(output)
    _sweep(_scratch(target))
    if output.is_symlink():
        _sweep(_scratch(output))
        for other in _linked(output, target.parent):
            if other != target:
                _sweep(other)


def _build(target: Path, scratch: Path, files: Mapping[str, bytes], gone: Collection[str]) -> None:
    scratch.mkdir()
    if target.exists():
        shutil.copystat(target, scratch)
        _link_all(target, scratch, {*files, *gone})
    for directory in {(scratch / name).parent for name in files}:
        directory.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for _ in pool.map(lambda name: _write(scratch / name, files[name]), files):
            pass
    for emptied in {(scratch / name).parent for name in gone} - {scratch}:
        if not any(emptied.iterdir()):
            emptied.rmdir()
    for below, _, _ in os.walk(scratch):
        _sync(Path(below))


def _write(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _link_all(source: Path, destination: Path, leave_out: Collection[str], below: str = "") -> None:
    with os.scandir(source) as entries:
        for entry in entries:
            name = f"{below}{entry.name}"
            if name in leave_out:
                continue
            copy = destination / entry.name
            if entry.is_symlink():
                copy.symlink_to(Path(entry.path).readlink())
            elif entry.is_dir():
                copy.mkdir()
                shutil.copystat(entry.path, copy)
                _link_all(Path(entry.path), copy, leave_out, f"{name}/")
            elif stat.S_ISREG(entry.stat().st_mode):
                _link(Path(entry.path), copy)


def _link(source: Path, copy: Path) -> None:
    try:
        copy.hardlink_to(source)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EXDEV, errno.EMLINK, errno.EOPNOTSUPP):
            raise
        shutil.copy2(source, copy)  # a file system without links, or a file with too many


def _exchange(one: Path, other: Path) -> None:
    """Both names change places in one step."""
    if _LIBC.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _EXCHANGE):
        code = ctypes.get_errno()
        msg = (
            f"{other.parent} cannot exchange two directories in one step ({os.strerror(code)}): "
            f"make {other.name} a symbolic link to a directory, then the link is swapped"
        )
        raise Refused((msg,))


def _swap_link(link: Path, old: Path, scratch: Path) -> None:
    """The link leads to a new directory beside the old one."""
    new = next(directory for directory in _linked(link, old.parent) if directory != old)
    scratch.rename(new)
    _sync(new.parent)
    next_link = _scratch(link)
    next_link.symlink_to(os.path.relpath(new, link.parent))
    next_link.replace(link)
    _sync(link.parent)
    shutil.rmtree(old)


def _linked(link: Path, parent: Path) -> tuple[Path, Path]:
    """The directories that this very link leads to in turn; one of the same name elsewhere has others."""
    mine = hashlib.sha256(os.fsencode(os.path.abspath(link))).hexdigest()[:8]  # noqa: PTH100 - the link, not what it leads to
    return parent / f".{link.name}-{mine}-1", parent / f".{link.name}-{mine}-2"


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
