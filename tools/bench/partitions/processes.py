"""A process with all that it has started, as one: what it keeps in memory, and how much of the processors it has used."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_MEGABYTE = 1_000_000
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")
_EVERY = 0.1
_PARENT, _USER, _SYSTEM, _PAGES = 1, 11, 12, 21
"""Places in /proc/PID/stat, behind the name."""


@dataclass(frozen=True, slots=True)
class Ended:
    """What a process left behind."""

    output: bytes
    peak: float
    """Megabytes of the whole tree; 0 where there is no /proc."""


def watched(command: Sequence[str], environment: dict[str, str] | None = None) -> Ended:
    """Runs a command to its end; raises where it fails."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
    peak = before = 0.0
    over = threading.Event()

    def look() -> None:
        """What one look alone has seen does not count: a process that is just being started shows its parent's memory."""
        nonlocal peak, before
        while not over.wait(_EVERY):
            now = resident(process.pid)
            peak, before = max(peak, min(before, now)), now

    watching = threading.Thread(target=look)
    watching.start()
    try:
        output, _ = process.communicate()
    finally:
        over.set()
        watching.join()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return Ended(output, peak)


def resident(pid: int) -> float:
    """Megabytes in memory, of a process and everything below it."""
    return sum(int(row[_PAGES]) for row in _tree(pid)) * _PAGE / _MEGABYTE


def processor_seconds(pid: int = 0) -> float:
    """Of a process (this one) and everything below it that still runs."""
    return sum(int(row[_USER]) + int(row[_SYSTEM]) for row in _tree(pid or os.getpid())) / _TICKS


def _tree(root: int) -> list[list[str]]:
    rows: dict[int, list[str]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            rows[int(entry.parent.name)] = entry.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
    below = {root} if root in rows else set()
    grown = True
    while grown:
        more = {pid for pid, row in rows.items() if int(row[_PARENT]) in below} - below
        below |= more
        grown = bool(more)
    return [rows[pid] for pid in below]
