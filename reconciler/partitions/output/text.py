"""The text of a worker's manifest and of the index.

Invariant: the same subjects give the same bytes: no time, no generation, no run in a worker's file.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence

from reconciler.manifests.files.source import INDEX_NAME
from reconciler.model.identity import API_VERSION

__all__ = ["INDEX_NAME", "index_text", "quoted_text", "worker_file", "worker_text"]

_PLAIN = re.compile(r"[ !#-\[\]-~]*")
_ALL_PLAIN = re.compile(r"[\n !#-\[\]-~]*")
_FOUR, _EIGHT = 0xFFFF, 0xFF


def worker_file(worker: str, layout: str = "flat") -> str:
    """Where a worker's file is: the prefix keeps names that begin with `_` or `.` from being skipped."""
    name = f"w-{worker}.yaml"
    return name if layout == "flat" else f"{hashlib.sha256(worker.encode()).hexdigest()[:2]}/{name}"


def worker_text(pool: str, domain: str, worker: str, subjects: Iterable[str]) -> bytes:
    """A WorkerAssignment; the subjects are given sorted."""
    lines = _lines(list(subjects))
    of_domain = f"  domain: {quoted_text(domain)}\n" if domain else ""
    return (
        f"apiVersion: {API_VERSION}\nkind: WorkerAssignment\nmetadata:\n  name: {quoted_text(f'{pool}.{worker}')}\nspec:\n"
        f"  pool: {quoted_text(pool)}\n{of_domain}  worker: {quoted_text(worker)}\n"
        f"  filterSubjects:{'' if lines else ' []'}\n{lines}"
    ).encode()


def _lines(subjects: Sequence[str]) -> str:
    """One line for each; a million of them are looked at in one go."""
    together = "\n".join(subjects)
    if subjects and _ALL_PLAIN.fullmatch(together) and together.count("\n") == len(subjects) - 1:
        return '    - "' + together.replace("\n", '"\n    - "') + '"\n'
    return "".join(f"    - {quoted_text(subject)}\n" for subject in subjects)


def index_text(pool: str, generation: int, files: Mapping[str, str]) -> bytes:
    """An AssignmentIndex: every file with its SHA-256."""
    lines = [f"    - path: {quoted_text(path)}\n      sha256: {files[path]}\n" for path in sorted(files)]
    return (
        f"apiVersion: {API_VERSION}\nkind: AssignmentIndex\nmetadata:\n  name: {quoted_text(pool)}\nspec:\n"
        f"  pool: {quoted_text(pool)}\n  generation: {generation}\n  files:{'' if lines else ' []'}\n{''.join(lines)}"
    ).encode()


def quoted_text(text: str) -> str:
    """In double quotes, always: nothing that YAML could read as anything but this text."""
    return f'"{text}"' if _PLAIN.fullmatch(text) else '"' + "".join(map(_escaped, text)) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character.isprintable():
        return character
    code = ord(character)
    if code <= _EIGHT:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= _FOUR else f"\\U{code:08x}"
