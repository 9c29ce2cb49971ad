"""Whether the tests notice a mistake.

Invariant: killed is only what a failed test has killed. A test that could not be run, or had not even the time to fail, proves
nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from tools.mutants.data import BadData, Mutant
from tools.mutants.workshop import Ran, Workshop

_ALL_PASSED, _SOME_FAILED = 0, 1
_FAILED = re.compile(r"^FAILED (?P<test>.+?)(?: - .*)?$", re.MULTILINE)
_LAST_LINES = 15


class Fate(StrEnum):
    """What became of a mutant."""

    KILLED = "killed"
    SURVIVED = "survived"
    TIMED_OUT = "timed out"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one mutant, and by what."""

    mutant: Mutant
    fate: Fate
    seconds: float
    by: str = ""
    """The test that killed it."""
    said: str = ""

    def __str__(self) -> str:
        by = f" by {self.by}" if self.by else ""
        return f"{self.mutant}: {self.fate}{by} ({self.seconds:.1f} s){f': {self.said}' if self.said else ''}"


async def try_one(mutant: Mutant, workshop: Workshop, limit: float) -> Verdict:
    """Makes the mistake and lets its killers look for it."""
    with workshop.mistaken(mutant):
        ran = await workshop.pytest(["-x", *mutant.killers], limit)
    if ran.code == _ALL_PASSED:
        return Verdict(mutant, Fate.SURVIVED, ran.seconds, said="its killers did not notice")
    return _judged(mutant, ran)


async def try_wholly(survivor: Verdict, workshop: Workshop, limit: float, jobs: int) -> Verdict:
    """Lets all tests look for what its killers did not notice."""
    with workshop.mistaken(survivor.mutant):
        ran = await workshop.pytest(["-x", "--all", *beside(jobs)], limit)
    if ran.code == _ALL_PASSED:
        return Verdict(survivor.mutant, Fate.SURVIVED, ran.seconds, said="no test at all noticed")
    verdict = _judged(survivor.mutant, ran)
    said = "its killers did not notice" if verdict.fate is Fate.KILLED else verdict.said
    return Verdict(verdict.mutant, verdict.fate, verdict.seconds, verdict.by, said)


async def prove_killers(mutants: Iterable[Mutant], workshop: Workshop, limit: float, jobs: int) -> float:
    """Every killer passes while nothing is wrong; raises BadData, else returns how long that took."""
    killers = dict.fromkeys(killer for mutant in mutants for killer in mutant.killers)
    ran = await workshop.pytest([*beside(jobs), *killers], limit)
    if ran.code != _ALL_PASSED:
        how = "were not over in time" if ran.code is None else "do not pass"
        msg = f"the killers {how} although no mistake was made:\n{_end_of(ran.output)}"
        raise BadData(msg)
    return ran.seconds


def beside(jobs: int) -> list[str]:
    """How pytest is told to use so many processes."""
    return ["-n", str(jobs), "--dist", "loadgroup"] if jobs > 1 else []


def _judged(mutant: Mutant, ran: Ran) -> Verdict:
    if ran.code is None:
        return Verdict(mutant, Fate.TIMED_OUT, ran.seconds, said="no test had failed by then")
    failed = _FAILED.search(ran.output)
    if ran.code == _SOME_FAILED and failed:
        return Verdict(mutant, Fate.KILLED, ran.seconds, by=failed["test"])
    return Verdict(mutant, Fate.ERROR, ran.seconds, said=f"pytest ended with {ran.code}:\n{_end_of(ran.output)}")


def _end_of(output: str) -> str:
    return "\n".join(output.splitlines()[-_LAST_LINES:])
