"""Why a plan is as it is: each move, what holds the balance, and what one more worker would do.

Where a plan would change nothing, the last one is explained, from the tables beside the manifests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import median_low
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reconciler.errors import ReconcilerError
from reconciler.partitions.output.previous import MOVES, PLAN_DIRECTORY
from reconciler.partitions.output.render import MOVES_ROWS, slices
from reconciler.partitions.planning.columns import sums
from reconciler.partitions.planning.model import NEW, Ranks, Workers
from reconciler.partitions.planning.planner import CapExceeded
from reconciler.partitions.report import in_units
from reconciler.partitions.run import Made

WHY = {
    "new": "is new: the plan before did not have it",
    "absent": "had to move: its worker is not in the table any more",
    "draining": "had to move: its worker is draining",
    "pin": "had to move: it is pinned to this worker",
    "zone": "had to move: its zone is elsewhere",
    "unit": "had to move: the partitions of a unit have one worker",
    "giant": "is heavier than a whole share and got a worker to itself",
    "overload": "was given away: its worker was over the trigger (more workers, smaller shares), or has a giant or pins",
    "fill": "was given away: a new worker had to be filled",
    "cap": "had to move: its worker had more subjects than it may",
}
HOLDS = {
    "maxSubjects": "every worker below its share has as many subjects as it may: more workers or a higher maxSubjects would help",
    "pins": "what is pinned cannot move",
    "maxMoved": "balance.maxMoved ended: the next runs move the rest",
    "largePartitions": "partitions are so large that no other worker could take one without being over the trigger itself",
}


@dataclass(frozen=True, slots=True)
class Loads:
    """Load by share before and after, of every worker that has a share."""

    before: list[float]
    after: list[float]


def moves_of(made: Made) -> Iterator[pa.Table]:
    """The moves that are explained, slice by slice."""
    path = made.output / PLAN_DIRECTORY / MOVES
    if made.draft.differs or not path.is_file():
        yield from slices(made.draft.moves)
        return
    try:
        yield from slices(path.read_bytes())
    except (pa.ArrowInvalid, OSError) as error:
        msg = f"{path} cannot be read ({error}): plan again, or remove it"
        raise ReconcilerError(msg) from error


def reasons(made: Made) -> dict[str, int]:
    """How many moved for which reason."""
    counts: Counter[str] = Counter()
    for moves in moves_of(made):
        counts.update(moves.column("reason").to_pylist())
    return {reason: counts[reason] for reason in WHY if counts[reason]}


def of_subject(made: Made, subject: str) -> dict[str, Any]:
    """Where one partition is, where it was and why."""
    here = next(_rows_of(slices(made.draft.assignment), subject), None)
    if here is None:
        msg = f"there is no partition {subject}"
        raise ReconcilerError(msg)
    found = {"subject": subject, "worker": here["worker"], "from": None, "reason": "stays"}
    for move in _rows_of(moves_of(made), subject):
        found |= {"from": move["from"], "worker": move["to"], "reason": move["reason"]}
    return found | {"why": WHY.get(str(found["reason"]), "stays where it was: its worker is not over the trigger")}


def _rows_of(tables: Iterator[pa.Table], subject: str) -> Iterator[dict[str, Any]]:
    for table in tables:
        yield from table.filter(pc.equal(table.column("subject"), subject)).to_pylist()


def loads(made: Made) -> Loads:
    """By the share that each worker has now."""
    workers, plan = made.gathered.workers, made.draft.plan
    names = pa.array(workers.names, pa.string())
    moves = pa.concat_tables([MOVES_ROWS.empty_table(), *moves_of(made)])
    before, after = np.zeros((2, len(workers)), dtype=np.int64)
    for rows in slices(made.draft.assignment):
        weight, here = rows.column("weight").to_numpy(), _ranks(rows.column("worker"), names)
        move = pc.index_in(rows.column("subject"), value_set=moves.column("subject"))
        there = _ranks(moves.column("from").take(move), names)
        after += sums(weight, here, len(workers))
        before += sums(weight, np.where(move.is_null().to_numpy(), here, there), len(workers))
    shares = {rank: share.weight * workers.capacity[rank] / share.capacity for rank, share in plan.share.items() if share.weight}
    return Loads(*([float(column[rank]) / shares[rank] for rank in sorted(shares)] for column in (before, after)))


def _ranks(column: pa.ChunkedArray, names: pa.Array) -> Ranks:
    """Of workers by their names; of those that are not there any more, and of none, NEW."""
    found: Ranks = pc.fill_null(pc.index_in(column, value_set=names), NEW).to_numpy()
    return found


def one_more(made: Made) -> dict[str, Any]:
    """What another worker of the usual size would change, after this plan."""
    gathered, plan = made.gathered, made.draft.plan
    workers = gathered.workers
    grown = _with_one_more(workers)
    try:
        items, found, counts = gathered.rows.again(plan, grown, replace(gathered.rules, budget=None))
    except CapExceeded as error:
        return {"possible": False, "message": str(error)}
    whole = int(items.weight.sum())
    moved = found.place != items.home
    load = sums(items.weight, found.place, len(grown)).tolist()
    ratios = [
        load[rank] * share.capacity / (share.weight * grown.capacity[rank]) for rank, share in found.share.items() if share.weight
    ]
    before = sums(gathered.items.weight, plan.place, len(workers))
    return {
        "possible": True,
        "maxLoad": round(max(ratios, default=0.0), 6),
        "largestBefore": in_units(int(before.max())) if len(before) else 0,
        "largestAfter": in_units(max(load, default=0)),
        "movedFraction": round(int(items.weight[moved].sum()) / whole, 6) if whole else 0,
        "movedCount": int(counts[moved].sum()),
        "heldBy": list(found.held_by),
    }


def _with_one_more(workers: Workers) -> Workers:
    """As the usual active worker; its rank is the last one, so that nobody else's changes."""
    active = [rank for rank in range(len(workers)) if workers.active[rank]]
    usual = max(active, key=lambda rank: (workers.capacity[rank] == median_low([workers.capacity[k] for k in active]), -rank))
    fresh = (*(False,) * len(workers), True)
    return Workers(
        (*workers.names, "one-more"),
        (*workers.capacity, workers.capacity[usual]),
        (*workers.slots, workers.slots[usual]),
        (*workers.active, True),
        (*workers.zone, workers.zone[usual]),
        fresh,
    )
