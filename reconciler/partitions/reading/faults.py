"""What is wrong with the rows of a table: counted, with five examples of each kind.

Invariant: however many rows are wrong, the memory for saying so is bounded, and which examples are shown depends on the rows
alone: the smallest five.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import nsmallest

from reconciler.errors import InvalidInput, Problem
from reconciler.manifests.suggest import quoted

EXAMPLES = 5


@dataclass(slots=True)
class _Kind:
    message: str
    count: int = 0
    examples: list[str] = field(default_factory=list)


class Faults:
    """Collects faults of one table."""

    def __init__(self, table: str) -> None:
        self.table = table
        self._kinds: dict[str, _Kind] = {}

    def __bool__(self) -> bool:
        return bool(self._kinds)

    def add(self, code: str, message: str, count: int, examples: Iterable[str | None]) -> None:
        """So many rows with this fault; of the examples five are kept."""
        if not count:
            return
        kind = self._kinds.setdefault(code, _Kind(message))
        kind.count += count
        kind.examples = nsmallest(EXAMPLES, {*kind.examples, *(example for example in examples if example is not None)})

    def problems(self) -> tuple[Problem, ...]:
        """One for each kind of fault."""
        return tuple(
            Problem(self.table, 1, 1, code, f"{_rows(kind.count)} {kind.message}{_for_example(kind.examples)}")
            for code, kind in sorted(self._kinds.items())
        )

    def refuse(self) -> None:
        """Raises InvalidInput when there is a fault."""
        if self:
            raise InvalidInput(self.problems())


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"


def _for_example(examples: list[str]) -> str:
    return f": {', '.join(map(quoted, examples))}" if examples else ""
