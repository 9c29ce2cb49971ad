"""What a dry run shows: the moves of each worker, and the unified diff of the manifests.

Invariant: nothing is written; the diff is what git would show.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa

from reconciler.partitions.output.previous import PLAN_DIRECTORY


def move_lines(moves: Iterable[pa.Table]) -> Iterator[str]:
    """For each worker that gains or loses something: how many."""
    gains: Counter[str] = Counter()
    losses: Counter[str] = Counter()
    for some in moves:
        gains.update(some.column("to").to_pylist())
        losses.update(source for source in some.column("from").to_pylist() if source is not None)
    for worker in sorted({*gains, *losses}):
        yield f"{worker}: +{gains[worker]} -{losses[worker]}"


def diff_lines(output: Path, shown: str, files: Mapping[str, bytes], gone: Collection[str]) -> Iterator[str]:
    """The difference of every manifest, in the order of the names."""
    for name in sorted({*files, *gone}):
        if name.startswith(f"{PLAN_DIRECTORY}/"):
            continue
        path = output / name
        before = path.read_bytes() if path.is_file() else b""
        after = files.get(name, b"")
        old, new = (f"a/{shown}/{name}" if before else "/dev/null"), (f"b/{shown}/{name}" if name in files else "/dev/null")
        yield from difflib.unified_diff(_lines(before), _lines(after), old, new, lineterm="")


def _lines(data: bytes) -> list[str]:
    return data.decode(errors="backslashreplace").splitlines()
