"""From plan.yaml to a written tree: read, plan, judge, write, commit, in this order.

Invariant: nothing below the output changes unless every check and every gate before it has passed.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from reconciler.errors import Refused
from reconciler.partitions import gates, report
from reconciler.partitions.composing import Draft, all_files, describe, draft, measured
from reconciler.partitions.gathering import Gathered, gather, only_for_spark, output_of
from reconciler.partitions.output.commit import ATTRIBUTES, ATTRIBUTES_TEXT, Checkout, commit, preflight
from reconciler.partitions.output.tree import claimed, replace_tree
from reconciler.partitions.plan_file import PlanFile
from reconciler.partitions.planning.planner import CapExceeded, PartitionPlan
from reconciler.partitions.reading.inputs import TooMany
from reconciler.partitions.spark.session import SparkOptions, need_pyspark


@dataclass(frozen=True, slots=True)
class How:
    """What the command line adds to a plan."""

    force: frozenset[str] = frozenset()
    dry_run: bool = False
    prune: bool = False
    commit: bool = False
    engine: Literal["auto", "local", "spark"] = "auto"
    spark: SparkOptions = field(default_factory=SparkOptions)
    say: Callable[[str], None] = lambda _line: None
    """Told what is going on."""
    tell: Callable[[int, int], None] | None = None
    """Told how many of the tasks of a stage of Spark are done, of how many."""


@dataclass(frozen=True, slots=True)
class Made:
    """A plan with all that became of it."""

    gathered: Gathered
    draft: Draft
    files: Mapping[str, bytes]
    report: dict[str, Any]
    output: Path
    commit: str = ""
    """The newest that was made."""


class _Clock:
    """How long each part took, and a line when it ends."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.laps: dict[str, float] = {}
        self._say = say
        self._last = time.perf_counter()

    def lap(self, part: str, line: str) -> None:
        now = time.perf_counter()
        self.laps[part] = round(now - self._last, 3)
        self._last = now
        self._say(f"{line} ({self.laps[part]:.2f}s)")


@contextmanager
def make(plan: PlanFile, how: How) -> Iterator[Made]:
    """Reads and plans and, unless it is a dry run, writes; raises InvalidInput or Refused, having written nothing.

    What is made can be looked at as long as the block lasts.
    """
    output = output_of(plan)
    gates.known(how.force)
    with nullcontext() if how.dry_run else claimed(output):
        checkout = preflight(output, plan.spec.pool) if how.commit else None
        earlier = ""
        if checkout is not None and checkout.waiting is not None:
            how.say(f"a plan that was written to {plan.spec.output} before waits for its commit")
            earlier = _committed(checkout, checkout.waiting.report, checkout.waiting.hashes, how)
        with _planned(plan, output, how) as made:
            yield replace(made, commit=earlier) if how.dry_run or not made.draft.differs else _written(plan, made, checkout, how)


def _written(plan: PlanFile, made: Made, checkout: Checkout | None, how: How) -> Made:
    """The tree takes its place, and is committed if that was asked for."""
    files = dict(made.files)
    if not (made.output / ATTRIBUTES).exists():
        files[ATTRIBUTES] = ATTRIBUTES_TEXT
    how.say(f"writing {len(files)} files to {plan.spec.output}")
    replace_tree(made.output, files, made.draft.gone)
    return made if checkout is None else replace(made, commit=_committed(checkout, made.report, made.draft.tree.hashes, how))


@contextmanager
def _planned(plan: PlanFile, output: Path, how: How) -> Iterator[Made]:
    clock = _Clock(how.say)
    with ExitStack() as stack:
        try:
            gathered, found = stack.enter_context(_plan(plan, how, clock))
        except CapExceeded as error:
            raise Refused((f"maxSubjects: {error}",)) from error
        drafted = draft(output, plan.spec, gathered, found, prune=how.prune)
        verdicts = gates.judge(measured(gathered, drafted), plan.spec.gates, how.force)
        if not how.dry_run:
            gates.refuse(verdicts)
        document = describe(plan.spec, gathered, drafted, verdicts)
        moved, files = (document["pools"][plan.spec.pool][name] for name in ("moved", "files"))
        differ = f"{files['written']:,} of {len(drafted.tree.files):,} files differ"
        clock.lap("render", f"{moved['count']:,} partitions move, {moved['new']:,} are new; {differ}")
        document["seconds"] = clock.laps
        yield Made(gathered, drafted, all_files(plan.spec, drafted, document), document, output)


def _committed(checkout: Checkout, document: Mapping[str, Any], hashes: Mapping[str, str], how: How) -> str:
    message = report.commit_message(document)
    identity = commit(checkout, message, hashes)
    how.say(f"committed {identity[:12]}: {message.partition(chr(10))[0]}")
    return identity


@contextmanager
def _plan(plan: PlanFile, how: How, clock: _Clock) -> Iterator[tuple[Gathered, PartitionPlan]]:
    """In this process, where its tables can be read and are small enough; else by Spark. It is the same plan."""
    if how.engine != "spark" and (how.engine == "local" or not only_for_spark(plan.spec)):
        try:
            gathered, here = gather(plan, clock.lap)
        except TooMany as error:
            if how.engine == "local" or importlib.util.find_spec("pyspark") is None:
                raise
            how.say(f"{error.rows:,} partitions: planning with Spark")
        else:
            found = here.planned(gathered.workers, gathered.rules)
            clock.lap("plan", "planned")
            yield gathered, found
            return
    need_pyspark()
    from reconciler.partitions.spark.running import planned_by_spark  # noqa: PLC0415 - only where Spark plans

    with planned_by_spark(plan, how.spark, (clock.lap, how.tell)) as made:
        yield made
