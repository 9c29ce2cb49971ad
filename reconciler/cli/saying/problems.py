"""Problems of the input as lines for people and for GitHub.

Invariant: however much is wrong, what is printed can be read; `validate --format json` alone has everything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reconciler.cli.saying.github import annotation
from reconciler.errors import Problem
from reconciler.render.values import counted

_SHOWN = 1000


def problem_lines(problems: Sequence[Problem], *, github: bool) -> Iterator[str]:
    """One line for each of the first problems, warnings told from errors, and a last one that counts the others."""
    for problem in problems[:_SHOWN]:
        yield annotation(problem) if github else _line(problem)
    if len(problems) > _SHOWN:
        more = counted(len(problems) - _SHOWN, "more problem")
        yield f"and {more}, not shown; `reconciler validate --format json` has them all"


def total(problems: Sequence[Problem]) -> str:
    """`2 problems in the input`, warnings left out."""
    return f"{counted(sum(problem.severity == 'error' for problem in problems), 'problem')} in the input"


def _line(problem: Problem) -> str:
    return f"warning: {problem}" if problem.severity == "warning" else str(problem)
