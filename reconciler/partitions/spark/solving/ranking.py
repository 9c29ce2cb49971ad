"""Light items meet slots rank by rank (`planning.dealing`), without sorting either of them as a whole.

Items are put in order within cells: those of one class of weight and one stratum of the hash. Slots are put in order within
stretches of their positions. How many slots stand before a stretch follows from the quotas alone, and how many items stand before
a cell from their counts; so every cell gets the pieces of the stretches that have its ranks, and only items are shuffled.

Invariant: ranks are dense, so that each item meets exactly one slot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from reconciler.partitions.planning.dealing import CLASS_BITS, PHASE_BITS
from reconciler.partitions.planning.keys import xxhash64
from reconciler.partitions.planning.model import Ints
from reconciler.partitions.spark.columns.frames import LONG, small
from reconciler.partitions.spark.solving.groups import Group

_STRATA = 64
_CELL_BITS = 16
"""Classes and strata are fewer than this many bits can tell."""
_IN_STRETCH = 16384
"""Slots, at most, where they are even."""
_IN_PART = 32
"""Stretches that are put in order by one task."""
_RANK_MASK = (1 << PHASE_BITS) - 1
Deck = tuple[int, int]
"""What is dealt apart: each group, and in it items of each number of subjects."""
Dealt = Mapping[Deck, Mapping[int, int]]
"""How many items each worker gets."""
Cells = Mapping[Deck, Mapping[int, int]]
"""How many items each cell has."""


def with_cell(rows: DataFrame) -> DataFrame:
    """Heavy to light, and each class by stratum: `planning.dealing.weight_class` and `pmod(hash, 64)`, as one number."""
    following = f"shiftleft(shiftright(w, greatest(bits - {CLASS_BITS}, 0)), greatest({CLASS_BITS} - bits, 0))"
    weight_class = f"bits * {1 << CLASS_BITS} + ({following} & {(1 << CLASS_BITS) - 1})"
    cell = f"({(1 << _CELL_BITS) // _STRATA - 1} - ({weight_class})) * {_STRATA} + pmod(hash, {_STRATA})"
    return rows.withColumn("bits", F.expr("length(bin(w)) - 1")).withColumn("cell", F.expr(cell)).drop("bits")


def meet(light: DataFrame, spark: SparkSession, dealt: Dealt, cells: Cells, groups: Mapping[int, Group]) -> DataFrame:
    """Every light item with its worker, `to`."""
    decks = sorted(dealt)
    names = {"g": (LONG, [g for g, _ in decks]), "f": (LONG, [f for _, f in decks]), "deck": (LONG, list(range(len(decks))))}
    of_deck = light.join(small(spark, names), ["g", "f"]) if len(cells) > 1 else light.withColumn("deck", F.lit(0))
    whole = with_cell(of_deck).withColumn("cell", F.shiftleft("deck", _CELL_BITS) + F.col("cell")).drop("deck")
    number = F.row_number().over(Window.partitionBy("cell").orderBy("hash", "key"))
    slots = _slots(spark, [_Hand(dealt[deck], cells[deck], groups[deck[0]]) for deck in decks])
    met = whole.withColumn("number", number).join(slots, "cell")
    to = F.element_at("slots", F.col("number")).bitwiseAND(_RANK_MASK)
    return met.withColumn("to", to.cast("int")).drop("cell", "number", "slots")


class _Hand:
    """The slots of a deck, and the cells that they are for."""

    def __init__(self, given: Mapping[int, int], cells: Mapping[int, int], group: Group) -> None:
        ranks = sorted(given)
        names = group.workers.names
        self.to = np.array(ranks, dtype=np.int64) + group.offset
        self.count = np.array([given[rank] for rank in ranks], dtype=np.int64)
        self.phase = np.array([xxhash64(names[rank]) % (1 << PHASE_BITS) for rank in ranks], dtype=np.int64)
        self.cells = np.array(sorted(cells), dtype=np.int64)
        self.cell_ends = np.cumsum([cells[cell] for cell in self.cells.tolist()])
        halvings = (int(self.count.sum()) // _IN_STRETCH).bit_length()
        self.bits = PHASE_BITS - halvings
        self.stretch_ends = np.array([self.before((at + 1) << self.bits) for at in range(1 << halvings)])

    def before(self, position: int) -> int:
        """How many slots stand before a position: slot j is at ((j << 31) + phase) div count."""
        return int(((position * self.count - self.phase + _RANK_MASK) >> PHASE_BITS).sum())

    def pieces(self) -> Ints:
        """Where stretches and cells overlap: stretch, cell, the first place in the stretch, and the number of places."""
        ends = np.union1d(self.stretch_ends, self.cell_ends)
        starts = np.concatenate(([0], ends[:-1]))
        starts, ends = starts[ends > starts], ends[ends > starts]
        stretch = np.searchsorted(self.stretch_ends, starts, side="right")
        cell = np.searchsorted(self.cell_ends, starts, side="right")
        first = starts - np.concatenate(([0], self.stretch_ends))[stretch]
        return np.stack((stretch, self.cells[cell], first, ends - starts))


def _slots(spark: SparkSession, hands: Sequence[_Hand]) -> DataFrame:
    """For each cell its slots, in order: the lower bits are the worker."""
    owners = [np.stack((np.full(len(hand.to), deck), hand.to, hand.count, hand.phase)) for deck, hand in enumerate(hands)]
    workers = _table(spark, ("deck", "to", "count", "phase"), np.concatenate(owners, axis=1))
    begin = np.cumsum([0, *(len(hand.stretch_ends) for hand in hands)])
    numbers = [np.arange(len(hand.stretch_ends)) for hand in hands]
    stretches = [
        np.stack((number + begin[deck], np.full(len(number), deck), number << hand.bits, (number + 1) << hand.bits))
        for deck, (number, hand) in enumerate(zip(numbers, hands, strict=True))
    ]
    pieces = [hand.pieces() + np.array([[begin[deck]], [deck << _CELL_BITS], [1], [0]]) for deck, hand in enumerate(hands)]
    parts = -(-int(begin[-1]) // _IN_PART)
    some = spark.range(0, int(begin[-1]), 1, parts).withColumnRenamed("id", "stretch")
    some = some.join(_table(spark, ("stretch", "deck", "from", "until"), np.concatenate(stretches, axis=1)), "stretch")
    slots = (
        some.join(workers, "deck")
        .withColumn("first", F.expr(_at_least("from")))
        .withColumn("last", F.expr(f"{_at_least('until')} - 1"))
        .filter("first <= last")
        .select("stretch", "to", "count", "phase", F.explode(F.expr("sequence(first, last)")).alias("slot"))
    )
    position = f"(shiftleft(slot, {PHASE_BITS}) + phase) div count"
    by_position = F.collect_list(F.expr(f"shiftleft({position}, {PHASE_BITS}) | to"))
    ordered = slots.groupBy("stretch").agg(F.sort_array(by_position).alias("slots"))
    cut = ordered.join(_table(spark, ("stretch", "cell", "first", "length"), np.concatenate(pieces, axis=1)), "stretch")
    piece = F.slice("slots", F.col("first").cast("int"), F.col("length").cast("int"))
    whole = F.sort_array(F.collect_list(F.struct("stretch", "piece")))
    return cut.select("cell", "stretch", piece.alias("piece")).groupBy("cell").agg(F.flatten(whole["piece"]).alias("slots"))


def _at_least(position: str) -> str:
    """The first slot of a worker that stands there or behind."""
    return f"shiftright({position} * count - phase + {_RANK_MASK}, {PHASE_BITS})"


def _table(spark: SparkSession, names: Sequence[str], columns: Ints) -> DataFrame:
    return small(spark, {name: (LONG, column) for name, column in zip(names, columns, strict=True)})
