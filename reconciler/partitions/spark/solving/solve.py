"""The plans of many groups (`planning.solve`): one attempt, and what follows where that is not good enough.

Where it moved clearly more than it had to, it is made again in two steps. Where it left somebody with too much, a calm attempt
and more rounds follow. Rounds are planned by the very code that plans locally. It gets the items of workers that have too much
one by one, and of everybody else the sums; when it needs more, it says so, and is called again with them.

Invariant: a group whose first attempt leaves nobody with too much brings no rows to the driver but heavy ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from reconciler.partitions.planning.dealing import NoRoom
from reconciler.partitions.planning.keys import Keys
from reconciler.partitions.planning.model import NEW, Bounds, Ints, Items, NotListed, Rest, Solved
from reconciler.partitions.planning.solve import above, improve, lack, lowered, overload
from reconciler.partitions.spark.columns.frames import INT, LONG, TEXT, among, kept, rows_of, small, total
from reconciler.partitions.spark.solving.attempt import KEPT, Attempted, attempt, reason_now
from reconciler.partitions.spark.solving.groups import Book, Group, Solution

_COLUMNS = (*KEPT, "place", "reason")
_NO_ROWS = Solved(np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int8), {})


@dataclass(slots=True)
class _Result:
    """A group after an attempt."""

    book: Book
    load: Ints
    subjects: Ints
    free: frozenset[int]
    """Workers that have something without a pin."""
    free_weight: Ints
    moved: int
    solved: Solved
    too_much: int
    lack: int
    giants: tuple[str, ...]


@dataclass(slots=True)
class _Known:
    """What was asked for, one by one, of a group."""

    workers: set[int] = field(default_factory=set)
    large: int | None = None
    keys: set[str] = field(default_factory=set)
    rows: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Placed:
    """Every item with its place and reason, and the groups."""

    rows: DataFrame
    groups: Mapping[int, Solution]


def solve(items: DataFrame, groups: Mapping[int, Group]) -> Placed:
    """The plans; `items` has only rows of these groups."""
    first = attempt(items, groups)
    placed = kept(first.placed)
    results = _results(placed, first)
    unsettled = {number for number, result in results.items() if result.book.error is None and result.too_much}
    chosen = dict(results)
    if unsettled:
        calm_groups = {n: replace(groups[n], rules=replace(groups[n].rules, shed=False, fill=False)) for n in unsettled}
        calm = attempt(among(items, "g", unsettled), calm_groups)
        calm_placed = kept(calm.placed)
        better = set()
        for number, result in _results(calm_placed, calm, groups).items():
            if result.book.error is not None:
                chosen[number] = result
            elif result.too_much + result.lack <= results[number].too_much + results[number].lack:
                better.add(number)
                chosen[number] = result
        unsettled -= {number for number in unsettled if chosen[number].book.error is not None}
        if better:
            placed = among(placed, "g", set(groups) - better).unionByName(among(calm_placed, "g", better))
    loose = _loose(results)
    if loose:
        placed, in_two = _in_two(items, placed, groups, {number: results[number] for number in loose})
        chosen |= in_two
    solutions = {number: _solution(result, results[number]) for number, result in chosen.items()}
    for number in loose & {number for number in chosen if chosen[number] is not results[number]}:
        less = lowered(results[number].solved.bounds, chosen[number].lack - results[number].lack)
        solutions[number] = replace(solutions[number], solved=replace(solutions[number].solved, bounds=less))
    if unsettled:
        placed, improved = _rounds(placed, groups, {number: chosen[number] for number in unsettled})
        for number, solution in improved.items():
            bounds, filling = results[number].solved.bounds, results[number].solved.filling
            solutions[number] = replace(solution, solved=replace(solution.solved, bounds=bounds, filling=filling))
    return Placed(placed, solutions)


def _loose(results: Mapping[int, _Result]) -> set[int]:
    """Groups that move clearly more than they would have to, and fill somebody: else a plan in two steps is the same."""
    return {
        number
        for number, result in results.items()
        if result.book.error is None
        and not result.too_much
        and result.book.group.rules.budget is None
        and result.book.fills
        and above(result.moved, result.solved.bounds)
    }


def _in_two(
    items: DataFrame, placed: DataFrame, groups: Mapping[int, Group], first: Mapping[int, _Result]
) -> tuple[DataFrame, dict[int, _Result]]:
    """First what is over the trigger, then what fresh workers still lack; only the groups that this makes better."""
    calm = {number: replace(groups[number], rules=replace(groups[number].rules, fill=False)) for number in first}
    shed = attempt(among(items, "g", set(first)), calm)
    shed_placed = kept(shed.placed)
    found = {number: replace(first[number], book=book) for number, book in shed.books.items() if book.error is not None}
    going = {
        number: replace(groups[number], rules=replace(groups[number].rules, shed=False))
        for number in first
        if number not in found
    }
    if not going:
        return placed, found
    there = among(shed_placed, "g", set(going)).withColumn("home", F.col("place"))
    filled = attempt(kept(there.select(*KEPT)), going)
    before = shed_placed.select("g", "key", F.col("home").alias("first_home"), F.col("reason").alias("first_reason"))
    both = filled.placed.join(before, ["g", "key"])
    why = F.when(F.col("place") != F.col("home"), F.col("reason")).otherwise(F.col("first_reason"))
    both = both.withColumn("reason", why).withColumn("home", F.col("first_home")).withColumn("reason", reason_now().cast("int"))
    both = kept(both.select(*_COLUMNS))
    better = set()
    for number, result in _results(both, filled, groups).items():
        if result.book.error is not None:
            found[number] = result
        elif not result.too_much and result.moved + result.lack < first[number].moved + first[number].lack:
            better.add(number)
            found[number] = result
    if better:
        placed = among(placed, "g", set(groups) - better).unionByName(among(both, "g", better))
    return placed, found


def _results(placed: DataFrame, made: Attempted, rules_of: Mapping[int, Group] | None = None) -> dict[int, _Result]:
    """What the attempt came to, from its rows; measured by the rules of `rules_of`."""
    moved = (F.col("place") != F.col("home")) & (F.col("home") != NEW)
    by_place = placed.groupBy("g", "place").agg(
        total("w"),
        total("f"),
        F.sum(F.when(moved, F.col("w")).otherwise(F.lit(0))).alias("moved"),
        F.max((F.col("pin") < 0).cast("int")).alias("free"),
        F.sum(F.when(F.col("pin") < 0, F.col("w")).otherwise(F.lit(0))).alias("free_weight"),
    )
    rows: dict[int, list[dict[str, Any]]] = {number: [] for number in made.books}
    for row in rows_of(by_place):
        rows[row["g"]].append(row)
    return {number: _result(book, rows[number], (rules_of or {}).get(number, book.group)) for number, book in made.books.items()}


def _result(book: Book, rows: list[dict[str, Any]], measured: Group) -> _Result:
    group, fixed = book.group, book.settled
    workers = group.workers
    load, subjects, free_weight = np.zeros((3, len(workers)), dtype=np.int64)
    free = set()
    for row in rows:
        if row["place"] >= 0:
            rank = group.rank(row["place"])
            load[rank] += row["w"]
            subjects[rank] += row["f"]
            free_weight[rank] += row["free_weight"]
            free |= {rank} if row["free"] else set()
    filled = sum(
        max(0, min(int(load[k]), fixed.share_of(k, workers)) - int(book.before[k])) for k in fixed.receivers if workers.fresh[k]
    )
    bound = max(book.bound, filled - book.pool if group.rules.fill else 0)
    waiting = book.giving.waiting if book.giving else 0
    solved = replace(
        _NO_ROWS,
        share=dict.fromkeys(fixed.receivers, fixed.share),
        hosts=fixed.hosts,
        fixed_load=dict(fixed.load),
        bounds=Bounds(book.forced, book.forced + bound),
        waiting=book.waiting + waiting,
        filling=frozenset(k for k in fixed.receivers if workers.fresh[k]) if waiting else frozenset(),
    )
    too_much = overload(load.tolist(), workers, measured.rules, solved)
    lacking = lack(load.tolist(), workers, measured.rules, solved)
    moved = sum(row["moved"] for row in rows)
    return _Result(book, load, subjects, frozenset(free), free_weight, moved, solved, too_much, lacking, tuple(book.hosted))


def _solution(result: _Result, first: _Result) -> Solution:
    solved = replace(result.solved, bounds=first.solved.bounds, filling=first.solved.filling)
    return Solution(
        solved, result.giants, result.load, result.subjects, result.moved, result.book.error, result.book.all_subjects
    )


def _rounds(
    placed: DataFrame, groups: Mapping[int, Group], results: Mapping[int, _Result]
) -> tuple[DataFrame, dict[int, Solution]]:
    """More rounds for these groups, as long as they make them better."""
    known = {
        number: _Known(set(_over(result, groups[number])), keys=set(result.book.heaviest_keys))
        for number, result in results.items()
    }
    found: dict[int, Solution] = {}
    changed: list[tuple[int, str, int, int]] = []
    while known:
        _fetch(placed, known, groups)
        for number in sorted(known):
            try:
                solution, changes = _improved(known[number], groups[number], results[number])
            except NoRoom as error:
                found[number] = replace(_solution(results[number], results[number]), error=error)
                del known[number]
                continue
            except NotListed as missing:
                known[number].workers |= missing.workers
                if missing.large is not None:
                    large = known[number].large
                    known[number].large = missing.large if large is None else min(large, missing.large)
                continue
            found[number] = solution
            changed += changes
            del known[number]
    return _with_changes(placed, changed), found


def _over(result: _Result, group: Group) -> list[int]:
    """Workers that have too much."""
    workers, solved = group.workers, result.solved
    over = [k for k, share in solved.share.items() if result.load[k] > share.of(workers.capacity[k], group.rules.trigger)]
    return over + [host for host in solved.hosts if result.load[host] > solved.fixed_load[host]]


def _fetch(placed: DataFrame, known: Mapping[int, _Known], groups: Mapping[int, Group]) -> None:
    """The rows that were asked for, of all groups at once."""
    spark = placed.sparkSession
    places = [(number, rank + groups[number].offset) for number, of in known.items() for rank in sorted(of.workers)]
    keys = [(number, key) for number, of in known.items() for key in sorted(of.keys)]
    limits = [(number, -1 if of.large is None else of.large) for number, of in known.items()]
    frame = placed.join(small(spark, {"g": (LONG, [g for g, _ in limits]), "large": (LONG, [large for _, large in limits])}), "g")
    opened = small(
        spark, {"g": (LONG, [g for g, _ in places]), "place": (INT, [p for _, p in places]), "open": (INT, [1] * len(places))}
    )
    named = small(
        spark, {"g": (LONG, [g for g, _ in keys]), "key": (TEXT, [k for _, k in keys]), "named": (INT, [1] * len(keys))}
    )
    frame = frame.join(opened, ["g", "place"], "left").join(named, ["g", "key"], "left")
    large = (F.col("pin") < 0) & (F.col("large") >= 0) & (F.col("w") > F.col("large"))
    wanted = frame.filter(large | F.col("open").isNotNull() | F.col("named").isNotNull())
    for of in known.values():
        of.rows = []
    for row in rows_of(wanted.select(*_COLUMNS)):
        known[row["g"]].rows.append(row)


def _improved(known: _Known, group: Group, result: _Result) -> tuple[Solution, list[tuple[int, str, int, int]]]:
    """The rounds of one group; raises NotListed when they need more rows."""
    rows = known.rows
    columns = {name: [group.rank(row[name]) for row in rows] for name in ("home", "pin", "place")}
    home, pin, place = (np.array(columns[name], dtype=np.int32) for name in ("home", "pin", "place"))
    weight = np.array([row["w"] for row in rows], dtype=np.int64)
    filters = np.array([row["f"] for row in rows], dtype=np.int64)
    reason = np.array([row["reason"] for row in rows], dtype=np.int8)
    keys = [row["key"] for row in rows]
    rest = _rest(known, result, (weight, filters, home, pin, place))
    items = Items(Keys(keys), weight, filters, home, pin, np.full(len(rows), -1, dtype=np.int32), rest)
    at = {key: row for row, key in enumerate(keys)}
    giants = tuple(at[key] for key in result.giants)
    before = replace(result.solved, place=place, reason=reason, giants=giants)
    best = improve(items, group.workers, group.rules, group.ranks, before)
    changed = np.flatnonzero((best.place != place) | (best.reason != reason)).tolist()
    changes = [(group.number, keys[row], int(best.place[row]) + group.offset, int(best.reason[row])) for row in changed]
    load, subjects = result.load.copy(), result.subjects.copy()
    for column, values in ((load, weight), (subjects, filters)):
        np.subtract.at(column, place, values)
        np.add.at(column, best.place, values)
    moved = rest.moved + int(weight[(best.place != home) & (home != NEW)].sum())
    solved = replace(best, place=_NO_ROWS.place, reason=_NO_ROWS.reason, giants=())
    return Solution(solved, tuple(keys[row] for row in best.giants), load, subjects, moved), changes


def _rest(known: _Known, result: _Result, columns: tuple[Any, ...]) -> Rest:
    """Sums of what is not listed."""
    weight, filters, home, pin, place = columns
    book = result.book
    load, subjects, pinned, pinned_filters, free = (
        column.copy() for column in (result.load, result.subjects, book.pinned, book.pinned_filters, result.free_weight)
    )
    np.subtract.at(load, place, weight)
    np.subtract.at(subjects, place, filters)
    fixed = pin >= 0
    np.subtract.at(pinned, pin[fixed], weight[fixed])
    np.subtract.at(pinned_filters, pin[fixed], filters[fixed])
    np.subtract.at(free, place[~fixed], weight[~fixed])
    moved = result.moved - int(weight[(place != home) & (home != NEW)].sum())
    movable = result.free - known.workers
    total_ = book.total - int(weight.sum())
    return Rest(load, subjects, pinned, pinned_filters, total_, free, moved, frozenset(movable), known.large)


def _with_changes(placed: DataFrame, changed: list[tuple[int, str, int, int]]) -> DataFrame:
    if not changed:
        return placed
    names = (("g", LONG), ("key", TEXT), ("to", INT), ("why", INT))
    table = small(placed.sparkSession, {name: (kind, [row[at] for row in changed]) for at, (name, kind) in enumerate(names)})
    joined = placed.join(table, ["g", "key"], "left")
    return (
        joined.withColumn("place", F.coalesce("to", "place")).withColumn("reason", F.coalesce("why", "reason")).select(*_COLUMNS)
    )
