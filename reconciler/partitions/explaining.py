"""Why a plan is as it is: each move, what holds the balance, and what one more worker would do.

Where a plan would change nothing, the last one is explained, from the tables beside the manifests.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from statistics import median_low
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reconciler.errors import ReconcilerError
from reconciler.partitions.output.previous import MOVES, PLAN_DIRECTORY
from reconciler.partitions.planning.columns import sums
from reconciler.partitions.planning.model import ABSENT, NEW, Items, Ranks, Workers
from reconciler.partitions.planning.planner import CapExceeded, plan_locally
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


def moves_of(made: Made) -> pa.Table:
    """The moves that are explained."""
    path = made.output / PLAN_DIRECTORY / MOVES
    if made.draft.differs or not path.is_file():
        return made.draft.moves
    try:
        return pq.read_table(path)
    except (pa.ArrowInvalid, OSError) as error:
        msg = f"{path} cannot be read ({error}): plan again, or remove it"
        raise ReconcilerError(msg) from error


def reasons(moves: pa.Table) -> dict[str, int]:
    """How many moved for which reason."""
    counts = Counter(moves.column("reason").to_pylist())
    return {reason: counts[reason] for reason in WHY if counts[reason]}


def of_subject(made: Made, moves: pa.Table, subject: str) -> dict[str, Any]:
    """Where one partition is, where it was and why."""
    at = made.draft.assignment.column("subject").to_pylist()
    if subject not in at:
        msg = f"there is no partition {subject}"
        raise ReconcilerError(msg)
    row = at.index(subject)
    found = {"subject": subject, "worker": made.draft.assignment.column("worker")[row].as_py(), "from": None, "reason": "stays"}
    for move in moves.filter(pc.equal(moves.column("subject"), subject)).to_pylist():
        found |= {"from": move["from"], "worker": move["to"], "reason": move["reason"]}
    return found | {"why": WHY.get(str(found["reason"]), "stays where it was: its worker is not over the trigger")}


def loads(made: Made, moves: pa.Table) -> Loads:
    """By the share that each worker has now."""
    items, workers, plan = made.gathered.items, made.gathered.workers, made.draft.plan
    before = _home_before(made, moves) if not made.draft.differs else items.home
    shares = {rank: share.weight * workers.capacity[rank] / share.capacity for rank, share in plan.share.items() if share.weight}
    columns = [sums(items.weight, place, len(workers)) for place in (before, plan.place)]
    return Loads(*([float(column[rank]) / shares[rank] for rank in sorted(shares)] for column in columns))


def _home_before(made: Made, moves: pa.Table) -> Ranks:
    """Where everything was before the last moves."""
    ranks = {name: rank for rank, name in enumerate(made.gathered.workers.names)}
    source = dict(zip(moves.column("subject").to_pylist(), moves.column("from").to_pylist(), strict=True))
    subjects = made.gathered.partitions.subject.to_pylist()
    home = [
        _rank(ranks, source[subject]) if subject in source else int(now)
        for subject, now in zip(subjects, made.draft.plan.place.tolist(), strict=True)
    ]
    return np.array(home, dtype=np.int32)


def _rank(ranks: dict[str, int], name: str | None) -> int:
    return NEW if name is None else ranks.get(name, ABSENT)


def one_more(made: Made) -> dict[str, Any]:
    """What another worker of the usual size would change, after this plan."""
    gathered, plan = made.gathered, made.draft.plan
    workers = gathered.workers
    grown = _with_one_more(workers)
    items: Items = gathered.items.at(plan.place)
    try:
        found = plan_locally(items, grown, replace(gathered.rules, budget=None), gathered.partitions.unit)
    except CapExceeded as error:
        return {"possible": False, "message": str(error)}
    moved = int(items.weight[found.place != items.home].sum())
    load = sums(items.weight, found.place, len(grown)).tolist()
    ratios = [
        load[rank] * share.capacity / (share.weight * grown.capacity[rank]) for rank, share in found.share.items() if share.weight
    ]
    before = sums(items.weight, plan.place, len(workers))
    return {
        "possible": True,
        "maxLoad": round(max(ratios, default=0.0), 6),
        "largestBefore": in_units(int(before.max())) if len(before) else 0,
        "largestAfter": in_units(max(load, default=0)),
        "movedFraction": round(moved / int(items.weight.sum()), 6) if len(items) else 0,
        "movedCount": int(np.count_nonzero(found.place != items.home)),
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
