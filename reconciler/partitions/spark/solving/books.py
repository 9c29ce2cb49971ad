"""The sums that a plan begins with: what is where, what is pinned, what has a worker to itself.

Invariant: which items are giants is decided by the code that decides it locally, from the heaviest items and sums of the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from reconciler.partitions.planning.fixed import find_fixed
from reconciler.partitions.planning.keys import Keys
from reconciler.partitions.planning.levels import find_giants
from reconciler.partitions.planning.model import NEW, Items, Rest
from reconciler.partitions.spark.columns.frames import LONG, rows_of, small, total
from reconciler.partitions.spark.solving.groups import Book, Group, open_book

_FIRST_LOOK = 32


def open_books(items: DataFrame, groups: Mapping[int, Group]) -> dict[int, Book]:
    """Sums by worker, of every group."""
    books = {number: open_book(group) for number, group in groups.items()}
    keys = (
        "g",
        "home",
        (F.col("pin") >= 0).alias("pinned"),
        ((F.col("pin") >= 0) & (F.col("pin") == F.col("home"))).alias("here"),
    )
    any_pins = False
    for row in rows_of(items.groupBy(*keys).agg(total("w"), total("f"), F.max("w").alias("most"))):
        _enter(books[row["g"]], row)
        any_pins = any_pins or row["pinned"]
    if any_pins:
        for row in rows_of(items.filter("pin >= 0").groupBy("g", "pin").agg(total("w"), total("f"))):
            book = books[row["g"]]
            rank = book.group.rank(row["pin"])
            book.pinned[rank] += row["w"]
            book.pinned_filters[rank] += row["f"]
    _fix(items, books)
    return books


def _enter(book: Book, row: Mapping[str, Any]) -> None:
    home, weight, filters = book.group.rank(row["home"]), row["w"], row["f"]
    book.total += weight
    book.all_subjects += filters
    if home >= 0:
        book.weight[home] += weight
        book.filters[home] += filters
    if row["pinned"]:
        book.forced += weight if home != NEW and not row["here"] else 0
        return
    book.heaviest = max(book.heaviest, row["most"])
    if home in book.group.ranks_set:
        book.free[home] += weight
        book.free_filters[home] += filters
    else:
        book.nowhere += weight
        book.forced += weight if home != NEW else 0


def _fix(items: DataFrame, books: Mapping[int, Book]) -> None:
    """Giants and shares; only groups that have giants need rows."""
    heaviest: dict[int, list[dict[str, Any]]] = {number: [] for number in books}
    asked = {number: _FIRST_LOOK for number, book in books.items() if book.heaviest and _giants(book, [book.heaviest])}
    while asked:
        found = _heaviest(items, asked)
        heaviest |= found
        again = {}
        for number, most in asked.items():
            rows = found[number]
            if len(rows) == most and _giants(books[number], [row["w"] for row in rows]) == most:
                again[number] = most * 8
        asked = again
    for number, book in books.items():
        _settle(book, heaviest[number])


def _giants(book: Book, weights: list[int]) -> int:
    """How many of these are, so far as they tell."""
    workers = book.group.workers
    active = [rank for rank in book.group.ranks if workers.active[rank]]
    capacity = {rank: workers.capacity[rank] for rank in active}
    pins = {rank: int(book.pinned[rank]) for rank in active}
    return find_giants(weights, book.total, capacity, pins, book.group.rules.target).count


def _heaviest(items: DataFrame, asked: Mapping[int, int]) -> dict[int, list[dict[str, Any]]]:
    """The heaviest free items of some groups, heaviest first."""
    free = items.filter("pin < 0")
    order = (F.col("w").desc(), F.col("hash"), F.col("key"))
    columns = ("g", "key", "hash", "w", "f", "home")
    if len(asked) == 1:
        ((number, most),) = asked.items()
        found = free.filter(F.col("g") == number).orderBy(*order).limit(most)
    else:
        table = small(items.sparkSession, {"g": (LONG, list(asked)), "most": (LONG, list(asked.values()))})
        numbered = free.join(table, "g").withColumn("place", F.row_number().over(Window.partitionBy("g").orderBy(*order)))
        found = numbered.filter(F.col("place") <= max(asked.values())).filter(F.col("place") <= F.col("most"))
    by_group: dict[int, list[dict[str, Any]]] = {number: [] for number in asked}
    for row in rows_of(found.select(*columns)):
        by_group[row["g"]].append(row)
    for rows in by_group.values():
        rows.sort(key=lambda row: (-row["w"], row["hash"], row["key"].encode()))
    return by_group


def listed(book: Book, rows: list[dict[str, Any]]) -> Items:
    """Some free items at their homes, and the rest of the group as sums."""
    group = book.group
    home = np.array([group.rank(row["home"]) for row in rows], dtype=np.int32)
    weight = np.array([row["w"] for row in rows], dtype=np.int64)
    filters = np.array([row["f"] for row in rows], dtype=np.int64)
    nowhere = np.full(len(rows), -1, dtype=np.int32)
    at_home, at_home_filters, free = book.weight.copy(), book.filters.copy(), book.free.copy()
    placed = home >= 0
    np.subtract.at(at_home, home[placed], weight[placed])
    np.subtract.at(at_home_filters, home[placed], filters[placed])
    here = np.isin(home, group.ranks)
    np.subtract.at(free, home[here], weight[here])
    rest = Rest(at_home, at_home_filters, book.pinned, book.pinned_filters, book.total - int(weight.sum()), free)
    return Items(Keys([row["key"] for row in rows]), weight, filters, home, nowhere, nowhere, rest)


def _settle(book: Book, rows: list[dict[str, Any]]) -> None:
    """Where everything is once giants and pins have their places, and what is in the pool."""
    group, items = book.group, listed(book, rows)
    fixed = find_fixed(items, group.workers, group.rules, group.ranks)
    book.fixed = fixed
    book.heaviest_keys = tuple(row["key"] for row in rows[: _giants(book, [row["w"] for row in rows])])
    book.hosted = {rows[row]["key"]: worker for row, worker in fixed.giants.items()}
    book.load, book.subjects = book.pinned + book.free, book.pinned_filters + book.free_filters
    for row, host in fixed.giants.items():
        home, weight, filters = int(items.home[row]), int(items.weight[row]), int(items.filters[row])
        if home in group.ranks_set:
            book.load[home] -= weight
            book.subjects[home] -= filters
            book.free[home] -= weight
            book.free_filters[home] -= filters
            book.forced += weight if host != home else 0
        else:
            book.nowhere -= weight
        book.load[host] += weight
        book.subjects[host] += filters
