"""What is said about a plan: report.json, and the same in a few lines.

Invariant: all of it but `seconds` follows from tables, plan and earlier plan; the keys of a version never change their meaning.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from reconciler.model.identity import API_VERSION
from reconciler.partitions.planning.columns import sums
from reconciler.partitions.planning.model import Ints, Items, MoveReason, Workers
from reconciler.partitions.planning.planner import PartitionPlan
from reconciler.partitions.spec import MILLION

VERSION = 1
_GIANTS_SHOWN = 100


def pool_part(partitions: Items, workers: Workers, plan: PartitionPlan, counts: Ints | None = None) -> dict[str, Any]:
    """The numbers of one pool; `counts` are the partitions of each row, where a row stands for several."""
    counts = np.ones(len(partitions), dtype=np.int64) if counts is None else counts
    filters = sums(partitions.filters, plan.place, len(workers)).tolist()
    moved_rows = (plan.place != partitions.home) & (plan.reason != MoveReason.NEW)
    moved = int(partitions.weight[moved_rows].sum())
    weight = int(partitions.weight.sum())
    active = sum(workers.active)
    return {
        "partitions": int(counts.sum()),
        "workers": {"active": active, "draining": len(workers) - active, "new": sum(workers.fresh)},
        "weight": in_units(weight),
        "load": _load(partitions, workers, plan) | {"giants": _giants(partitions, workers, plan)},
        "subjects": {"max": max(filters, default=0), "cap": max(workers.slots, default=0)},
        "moved": {
            "count": int(counts[moved_rows].sum()),
            "weight": in_units(moved),
            "fraction": _ratio(Fraction(moved, weight)) if weight else 0,
            "lowerBound": in_units(plan.bounds.moved),
            "ratio": _ratio(Fraction(moved, plan.bounds.moved)) if plan.bounds.moved else (1 if not moved else None),
            "forced": in_units(plan.bounds.forced),
            "new": int(counts[plan.reason == MoveReason.NEW].sum()),
            "reasons": _reasons(counts, plan),
        },
        "heldBy": list(plan.held_by),
    }


def _load(partitions: Items, workers: Workers, plan: PartitionPlan) -> dict[str, float]:
    """Load by capacity: of all active workers over the average, and of those without a giant over their share."""
    load = sums(partitions.weight, plan.place, len(workers)).tolist()
    active = [rank for rank in range(len(workers)) if workers.active[rank]]
    capacity, weight = sum(workers.capacity[rank] for rank in active), int(partitions.weight.sum())
    if not weight or not active:
        return dict.fromkeys(("max", "mean", "p99", "min", "maxOverLevel", "minOverLevel"), 0.0)
    over_average = sorted(load[rank] * capacity / (weight * workers.capacity[rank]) for rank in active)
    over_share = [
        load[rank] * share.capacity / (share.weight * workers.capacity[rank])
        for rank, share in plan.share.items()
        if share.weight
    ]
    found = {
        "max": over_average[-1],
        "mean": math.fsum(over_average) / len(active),
        "p99": over_average[min(len(active) - 1, len(active) * 99 // 100)],
        "min": over_average[0],
        "maxOverLevel": max(over_share, default=0.0),
        "minOverLevel": min(over_share, default=0.0),
    }
    return {name: round(value, 6) for name, value in found.items()}


def document(pool: str, part: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """The whole report."""
    return {"apiVersion": API_VERSION, "kind": "PartitionReport", "version": VERSION, "pools": {pool: part}, **more}


def commit_message(document: Mapping[str, Any]) -> str:
    """The title and the body of the commit that has this plan."""
    (pool, part), *_ = document["pools"].items()
    moved, load = part["moved"], part["load"]
    new = f", {moved['new']} new" if moved["new"] else ""
    return (
        f"Plan {pool}: {moved['count']} partitions moved ({moved['fraction']:.2%} of the weight){new}\n\n"
        f"{part['partitions']} partitions on {part['workers']['active']} workers, "
        f"load {load['minOverLevel']:.3f} to {load['maxOverLevel']:.3f} of the share, "
        f"generation {document['generation']}\n\nPlan-Id: {document['plan']}\n"
    )


def _giants(partitions: Items, workers: Workers, plan: PartitionPlan) -> list[dict[str, Any]]:
    rows = plan.giants.astype(np.int64)
    named = sorted(zip((key.decode() for key in partitions.keys.texts(rows)), rows.tolist(), strict=True))
    return [
        {"subject": subject, "worker": workers.names[int(plan.place[row])], "weight": in_units(int(partitions.weight[row]))}
        for subject, row in named[:_GIANTS_SHOWN]
    ]


def _reasons(counts: Ints, plan: PartitionPlan) -> dict[str, int]:
    found = sums(counts, plan.reason.astype(np.int32), len(MoveReason)).tolist()
    return {reason.name.lower(): found[reason] for reason in MoveReason if reason is not MoveReason.STAYS and found[reason]}


def in_units(micro: int) -> float | int:
    """A weight as the tables write it."""
    return micro // MILLION if micro % MILLION == 0 else micro / MILLION


def _ratio(value: Fraction) -> float:
    return round(float(value), 6)


def lines(report: Mapping[str, Any]) -> list[str]:
    """The report in a few lines."""
    (pool, part), *_ = report["pools"].items()
    load, moved, subjects, families, files = (part[name] for name in ("load", "moved", "subjects", "families", "files"))
    ratio = f", {moved['ratio']:.3f} of the least possible" if moved["count"] and moved["ratio"] else ""
    several = part["consumers"] > part["workers"]["active"] + part["workers"]["draining"]
    found = [
        f"{pool}: {part['partitions']:,} partitions on {part['workers']['active']} workers"
        + (f" ({part['workers']['draining']} draining)" if part["workers"]["draining"] else ""),
        f"  load      {load['minOverLevel']:.3f} to {load['maxOverLevel']:.3f} of the share"
        + (f", {len(load['giants'])} giants apart" if load["giants"] else ""),
        f"  subjects  at most {subjects['max']} of {subjects['cap']} on one worker",
        *([f"  consumers {part['consumers']}: a worker with too many subjects for one has several"] if several else []),
        *([f"  families  {families['count']:,}, with {families['partitions']:,} partitions"] if families["count"] else []),
        f"  moved     {moved['count']:,} partitions, {moved['fraction']:.2%} of the weight{ratio}; {moved['new']:,} new",
        f"  files     {files['written']} written, {files['unchanged']} unchanged, {files['pruned']} pruned",
    ]
    if part["heldBy"]:
        found.append(f"  held by   {', '.join(part['heldBy'])}")
    if report["staged"]["waiting"]:
        found.append(f"  staged    {report['staged']['waiting']} of the weight waits for the next run")
    return found
