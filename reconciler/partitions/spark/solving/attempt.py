"""One attempt at the plans of many groups: keep, shed, deal (`planning.solve`), all of them in the same jobs.

| step | on the executors | on the driver |
|---|---|---|
| books | sums by worker, the heaviest items | giants, shares |
| leave | what has to leave is in the pool | what has to be given away |
| shed, cap | windows over the items of workers that give | who is completed, what is left |
| deal | ranks of light items and of slots, joined | heavy items, quotas |

Invariant: what reaches the driver is sums by worker, heavy items, and candidates of workers that give.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from reconciler.partitions.planning.dealing import NoRoom, RoundTable, deal_heavy, share_out
from reconciler.partitions.planning.giving import find_giving, least_of_one
from reconciler.partitions.planning.keys import Keys
from reconciler.partitions.planning.model import ABSENT, NEW, Items, MoveReason
from reconciler.partitions.planning.shedding import Give
from reconciler.partitions.planning.solve import grain_of, heavy_above
from reconciler.partitions.spark.columns.frames import BOOL, FEW, INT, LONG, TEXT, kept, no, rows_of, small, total, with_value
from reconciler.partitions.spark.solving.books import open_books
from reconciler.partitions.spark.solving.choosing import choose, over_the_cap, prefix
from reconciler.partitions.spark.solving.groups import Book, Group, ranks_of
from reconciler.partitions.spark.solving.ranking import meet, with_cell

KEPT = ("g", "key", "hash", "w", "f", "home", "pin", "zone")
_STATE = (*KEPT, "at", "movable", "reason")


@dataclass(frozen=True, slots=True)
class Attempted:
    """Every item with `place` and `reason`, and what is known of each group."""

    placed: DataFrame
    books: Mapping[int, Book]


def attempt(items: DataFrame, groups: Mapping[int, Group]) -> Attempted:
    """Plans these groups."""
    spark = items.sparkSession
    books = open_books(items, groups)
    state = _begun(items, spark, books)
    state = _drained(state, spark, books)
    grains = _grains(state, books)
    for number, book in books.items():
        pool = book.nowhere_now
        rules = replace(book.group.rules, budget=book.left)
        book.before = book.load.copy()
        book.giving = find_giving(book.group.workers, rules, book.settled, book.load, (pool, grains.get(number, 1)))
        book.pool = pool
    state = _shed(state, spark, books)
    state = _trimmed(state, spark, books)
    return Attempted(_dealt(state, spark, books), books)


def _begun(items: DataFrame, spark: SparkSession, books: Mapping[int, Book]) -> DataFrame:
    """Everything at its home, but what has to be elsewhere."""
    home, pinned = F.col("home"), F.col("pin") >= 0
    marked, here, leaves = _homes(items, spark, {number: book.group for number, book in books.items()})
    marked = _hosts(marked, spark, books)
    at = (
        F.when(F.col("host").isNotNull(), F.col("host"))
        .when(pinned, F.col("pin"))
        .when(here & ~leaves, home)
        .otherwise(F.lit(-1))
    )
    reason = (
        F.when(F.col("host").isNotNull(), F.lit(int(MoveReason.GIANT)))
        .when(pinned, F.lit(int(MoveReason.PIN)))
        .when(leaves, F.lit(int(MoveReason.DRAINING)))
        .when(~here & (home >= 0), F.lit(int(MoveReason.ZONE)))
        .otherwise(F.lit(0))
    )
    movable = F.col("host").isNull() & ~pinned & here & ~leaves
    begun = marked.withColumn("at", at.cast("int")).withColumn("movable", movable).withColumn("reason", reason)
    return begun.select(*_STATE)


def _homes(items: DataFrame, spark: SparkSession, groups: Mapping[int, Group]) -> tuple[DataFrame, Column, Column]:
    """Whether an item is at home in its group, and whether everything leaves that home."""
    ranks = ranks_of(groups)
    leaving = {home for home, number, rank in ranks if _is_left(groups[number], rank)}
    if len(groups) == 1 and len(ranks) == len(next(iter(groups.values())).workers) and len(leaving) <= FEW:
        home = F.col("home")
        return items, home >= 0, home.isin(sorted(leaving)) if leaving else no()
    table = small(
        spark,
        {
            "home": (INT, [home for home, _, _ in ranks]),
            "of": (LONG, [number for _, number, _ in ranks]),
            "leaves": (BOOL, [home in leaving for home, _, _ in ranks]),
        },
    )
    here = F.col("of").eqNullSafe(F.col("g"))
    return items.join(table, "home", "left"), here, here & F.col("leaves")


def _is_left(group: Group, rank: int) -> bool:
    return not group.workers.active[rank] and group.rules.budget is None


def _hosts(items: DataFrame, spark: SparkSession, books: Mapping[int, Book]) -> DataFrame:
    """With the host of each giant."""
    hosted = [(number, key, host + book.group.offset) for number, book in books.items() for key, host in book.hosted.items()]
    if not hosted:
        return items.withColumn("host", F.lit(None).cast("int"))
    names = (("g", LONG), ("key", TEXT), ("host", INT))
    columns = {name: (kind, [row[at] for row in hosted]) for at, (name, kind) in enumerate(names)}
    return items.join(small(spark, columns), ["g", "key"], "left")


def _drained(state: DataFrame, spark: SparkSession, books: Mapping[int, Book]) -> DataFrame:
    """Everything leaves draining workers, or what the budget allows, worker by worker."""
    gives: dict[int, tuple[Give, int]] = {}
    waiting: dict[int, int] = {}
    for number, book in books.items():
        group = book.group
        workers, budget = group.workers, group.rules.budget
        book.left = None if budget is None else max(0, budget - book.forced)
        book.nowhere_now = book.nowhere
        for rank in group.ranks:
            weight = int(book.free[rank])
            if workers.active[rank] or not weight:
                continue
            book.forced += weight
            if book.left is None:
                book.leave(rank, weight, int(book.free_filters[rank]))
                continue
            may = min(weight, book.left)
            gives[rank + group.offset] = (Give(0, may, workers.capacity[rank]), 0)
            book.left -= may
            waiting[number] = waiting.get(number, 0) + weight
    if not gives:
        return state
    some, others = prefix(state, spark, gives)
    chosen = choose(kept(some), gives, {})
    owner = _owners(books)
    for at, given in chosen.given.items():
        number, rank = owner[at]
        books[number].leave(rank, given.weight, given.filters)
        waiting[number] -= given.weight
    for number, much in waiting.items():
        books[number].waiting += much
    return _released(chosen.rows, F.lit(int(MoveReason.DRAINING))).unionByName(others.select(*_STATE))


def _grains(state: DataFrame, books: Mapping[int, Book]) -> dict[int, int]:
    """By what fresh workers are filled, of the groups that fill any."""
    filling = [number for number, book in books.items() if book.fills]
    if not filling:
        return {}
    mine = state.filter(F.col("movable") & F.col("g").isin(filling))
    lightest = {row["g"]: row["least"] for row in rows_of(mine.groupBy("g").agg(F.min("w").alias("least")))}
    return {number: grain_of(least, books[number].settled) for number, least in lightest.items()}


def _shed(state: DataFrame, spark: SparkSession, books: Mapping[int, Book]) -> DataFrame:
    """What is too much where it is, or has to fill somebody new, is in the pool."""
    gives: dict[int, tuple[Give, int]] = {}
    completed: dict[int, int] = {}
    over: set[int] = set()
    for number, book in books.items():
        giving, group = book.giving, book.group
        if giving is None:
            continue
        for rank, give in giving.gives.items():
            worker = rank + group.offset
            gives[worker] = (give, giving.over.get(rank, 0))
            if rank in giving.over:
                over.add(worker)
            if group.rules.budget is None:
                completed[worker] = number
    if not gives:
        return state
    some, others = prefix(state, spark, gives)
    chosen = choose(kept(some), gives, completed)
    owner = _owners(books)
    for at, given in chosen.given.items():
        number, rank = owner[at]
        book = books[number]
        book.leave(rank, given.weight, given.filters)
        if at in over:
            much = gives[at][1]
            small_and_large = (given.lighter, given.lightest_large)
            book.bound += least_of_one(much, (given.lightest, given.heaviest), small_and_large)
    why = F.when(F.col("excess") > 0, F.lit(int(MoveReason.OVERLOAD))).otherwise(F.lit(int(MoveReason.FILL)))
    return _released(chosen.rows, why).unionByName(others.select(*_STATE))


def _trimmed(state: DataFrame, spark: SparkSession, books: Mapping[int, Book]) -> DataFrame:
    """Nobody keeps more subjects than it may."""
    excess = {}
    for book in books.values():
        for rank in book.group.ranks:
            much = int(book.subjects[rank]) - book.group.workers.slots[rank]
            if much > 0:
                excess[rank + book.group.offset] = much
    if not excess:
        return state
    some, others = over_the_cap(state, spark, excess)
    some = kept(some)
    owner = _owners(books)
    for row in rows_of(some.filter("gone").groupBy("at").agg(total("w"), total("f"))):
        number, rank = owner[row["at"]]
        books[number].leave(rank, row["w"], row["f"])
    return _released(some, F.lit(int(MoveReason.CAP))).unionByName(others.select(*_STATE))


def _dealt(state: DataFrame, spark: SparkSession, books: Mapping[int, Book]) -> DataFrame:
    """The pool is dealt out."""
    limits = {number: heavy_above(book.settled.share.weight, len(book.settled.receivers)) for number, book in books.items()}
    pool = with_value(state.filter(F.col("at") == -1), "limit", limits)
    pool = pool.withColumn("heavy", F.col("w") > F.col("limit")).drop("limit", "movable", "at")
    everything = sum(book.all_subjects for book in books.values())
    if 2 * sum(int(book.subjects.sum()) for book in books.values()) > everything:
        pool = kept(pool)  # of a little it is cheaper to remember it than to look for it again
    sizes: dict[int, dict[int, tuple[int, int]]] = {}
    cells: dict[tuple[int, int], dict[int, int]] = {}
    heavy_there = False
    of_cell = F.when(F.col("heavy"), F.lit(None)).otherwise(F.col("cell")).alias("cell")
    for row in rows_of(with_cell(pool).groupBy("g", "f", of_cell).agg(F.count(F.lit(1)).alias("count"), total("w"))):
        of_group = sizes.setdefault(row["g"], {})
        if row["cell"] is None:
            heavy_there = True
            continue
        count, weight = of_group.get(row["f"], (0, 0))
        of_group[row["f"]] = (count + row["count"], weight + row["w"])
        cells.setdefault((row["g"], row["f"]), {})[row["cell"]] = row["count"]
    heavy: dict[int, list[dict[str, Any]]] = {}
    if heavy_there:
        for row in rows_of(pool.filter("heavy").select("g", "key", "w", "f")):
            heavy.setdefault(row["g"], []).append(row)
    placed: list[tuple[int, str, int]] = []
    dealt: dict[tuple[int, int], Mapping[int, int]] = {}
    for number, light_sizes in sizes.items():
        book = books[number]
        try:
            found = _deal(book, heavy.get(number, []), [(filters, *of) for filters, of in light_sizes.items()])
        except NoRoom as error:
            book.error = error
            continue
        placed += [(number, key, rank + book.group.offset) for key, rank in found.heavy.items()]
        dealt |= {(number, filters): given for filters, given in found.light.items()}
    columns = (*KEPT, "reason")
    parts = [state.filter(F.col("at") >= 0).select(*columns, F.col("at").alias("place"))]
    if heavy_there:
        names = (("g", LONG), ("key", TEXT), ("place", INT))
        hosts = small(spark, {name: (kind, [row[at] for row in placed]) for at, (name, kind) in enumerate(names)})
        large = pool.filter("heavy").select(*columns)
        parts.append(large.join(hosts, ["g", "key"], "left").fillna(-1, ["place"]))
    if dealt:
        groups = {number: book.group for number, book in books.items()}
        light = meet(pool.filter("NOT heavy").select(*columns), spark, dealt, cells, groups)
        parts.append(light.withColumnRenamed("to", "place"))
    whole = reduce(DataFrame.unionByName, [part.select(*columns, "place") for part in parts])
    return whole.withColumn("reason", reason_now().cast("int"))


def reason_now() -> Column:
    """Why a row is at its place, from why it was released."""
    home = F.col("home")
    return (
        F.when(home == NEW, F.lit(int(MoveReason.NEW)))
        .when(home == ABSENT, F.lit(int(MoveReason.ABSENT)))
        .when(F.col("place") == home, F.lit(int(MoveReason.STAYS)))
        .otherwise(F.col("reason"))
    )


@dataclass(frozen=True, slots=True)
class _Hands:
    """Who gets what."""

    heavy: Mapping[str, int]
    light: Mapping[int, Mapping[int, int]]


def _deal(book: Book, heavy: list[dict[str, Any]], sizes: list[tuple[int, int, int]]) -> _Hands:
    """Hosts get something only where nobody else has room."""
    fixed = book.settled
    try:
        return _deal_among(book, fixed.receivers, heavy, sizes)
    except NoRoom:
        if not fixed.hosts:
            raise
        return _deal_among(book, (*fixed.receivers, *sorted(fixed.hosts)), heavy, sizes)


def _deal_among(book: Book, to: tuple[int, ...], heavy: list[dict[str, Any]], sizes: list[tuple[int, int, int]]) -> _Hands:
    group, fixed = book.group, book.settled
    workers, fill = group.workers, group.rules.fill
    load, subjects = book.load.tolist(), book.subjects.tolist()
    lacking = {rank: fixed.share_of(rank, workers) - load[rank] for rank in to if fill and workers.fresh[rank]}
    table = RoundTable(
        workers,
        {rank: load[rank] for rank in to},
        {rank: max(0, workers.slots[rank] - subjects[rank]) for rank in to},
        {rank: lack for rank, lack in lacking.items() if lack > 0},
    )
    column = np.full(len(heavy), -1, dtype=np.int32)
    items = Items(
        Keys([row["key"] for row in heavy]),
        np.array([row["w"] for row in heavy], dtype=np.int64),
        np.array([row["f"] for row in heavy], dtype=np.int64),
        column,
        column,
        column,
    )
    hands = deal_heavy(items, np.arange(len(heavy), dtype=np.int64), table)
    light = {filters: share_out(table, filters, count, weight) for filters, count, weight in sorted(sizes, reverse=True)}
    return _Hands({heavy[row]["key"]: rank for row, rank in hands.items()}, light)


def _owners(books: Mapping[int, Book]) -> dict[int, tuple[int, int]]:
    groups = {number: book.group for number, book in books.items()}
    return {worker: (number, rank) for worker, number, rank in ranks_of(groups)}


def _released(rows: DataFrame, why: Column) -> DataFrame:
    """What is marked `gone` is in the pool."""
    gone = F.col("gone")
    return (
        rows.withColumn("reason", F.when(gone, why).otherwise(F.col("reason")))
        .withColumn("movable", F.col("movable") & ~gone)
        .withColumn("at", F.when(gone, F.lit(-1)).otherwise(F.col("at")).cast("int"))
        .select(*_STATE)
    )
