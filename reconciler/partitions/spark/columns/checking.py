"""The table of partitions, checked as the local reader checks it, and joined with where everything was.

One shuffle by subject finds what stands there twice and joins the earlier plan; all faults are counted in one pass, and only for
those that occur five examples are looked for.

Invariant: subjects and names of workers are compared byte by byte, whatever collation their columns have.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from reconciler.errors import InvalidInput, Problem
from reconciler.partitions.families import Family
from reconciler.partitions.planning.model import NEW
from reconciler.partitions.reading.faults import EXAMPLES, Faults
from reconciler.partitions.reading.inputs import WorkerTableRows
from reconciler.partitions.reading.numbers import MOST
from reconciler.partitions.reading.subjects import (
    BAD_SUBJECT,
    FIELD,
    GOOD,
    LONGEST,
    TORN_FAMILY,
    UNDECLARED,
    template_columns,
)
from reconciler.partitions.reading.tables import shown_name
from reconciler.partitions.spark.columns.conditions import micro, text_of
from reconciler.partitions.spark.columns.frames import INT, TEXT, kept, named, no, rows_of, small
from reconciler.partitions.spark.columns.tables import BROKEN
from reconciler.partitions.spark.solving.families import counted_once, filter_of, is_wild, told_by
from reconciler.partitions.spark.solving.items import LEAF
from reconciler.partitions.spec import MILLION, PartitionPlanSpec

_SOMETIMES = {"unit": (None, "string"), "pin": (-1, "int"), "zone": (-1, "int")}
"""Columns that not every table has, and what stands for them then."""
_BROKEN_ROW = 0
"""The number of that fault; twice the same subject comes after all that a row shows by itself."""
_TWICE = ("duplicate-subject", "with a subject that stands there more than once")
_GONE, _WRONG = -1, -2
"""Marks of what is in the earlier plan, but not in the table, or not as it should be."""
_HALF = 32
"""Sums of 64-bit numbers are sums of their halves: nothing overflows."""
_TEXT_FILES = ("csv", "json", "text")
"""In these, Spark reads bytes that are no text as U+FFFD."""


@dataclass(frozen=True, slots=True)
class Earlier:
    """The plan before this one."""

    homes: DataFrame
    """subject, or a filter with wildcards, and home, as a rank."""
    families: Sequence[Family] = ()
    """Those of all such filters."""


@dataclass(frozen=True, slots=True)
class Checked:
    """Partitions as the planner takes them (`items.LEAF`, and `f` where there are families), and what is known of all of them."""

    rows: DataFrame
    count: int
    weight: int
    units: bool


def check_partitions(
    table: DataFrame, used: Mapping[str, str], spec: PartitionPlanSpec, workers: WorkerTableRows, earlier: Earlier | None
) -> Checked:
    """The partitions; raises InvalidInput with everything that is wrong."""
    faults = Faults(shown_name("partitions", spec.partitions))
    ranked = _ranked(_read(table, used, spec, faults.table), used, workers)
    conditions = _conditions(used, spec, len(table.columns) - 1)
    kinds = [*((code, message) for code, message, _ in conditions), _TWICE]
    there = {*used, *(("unit", "family") if spec.families else ())}
    carried = [name for name in ("unit", "family", "pin", "zone") if name in there] + [BROKEN] * (BROKEN in table.columns)
    marked = ranked.select("subject", "w", *carried, _marks(conditions).alias("marks"))
    times = _times(F.when(~_has(_BROKEN_ROW), F.col("subject")))
    twice = F.when((times > 1) & ~_has(_BROKEN_ROW), F.lit(1 << len(conditions))).otherwise(F.lit(0))
    marked = marked.withColumn("marks", F.col("marks").bitwiseOR(twice))
    flagged = kept(_with_homes(marked, earlier))
    sums = rows_of(
        flagged.groupBy("marks").agg(
            F.count(F.lit(1)).alias("count"),
            F.sum(F.shiftright("w", _HALF)).alias("high"),
            F.sum(F.col("w").bitwiseAND((1 << _HALF) - 1)).alias("low"),
            F.max(F.col("unit").isNotNull() if "unit" in carried else no()).alias("units"),
        )
    )
    _refuse_earlier(flagged, {row["marks"] for row in sums})
    sums = [row for row in sums if row["marks"] >= 0]
    for at, (code, message) in enumerate(kinds):
        number = sum(row["count"] for row in sums if row["marks"] >> at & 1)
        if number:
            _count(flagged.filter((F.col("marks") >= 0) & _has(at)), code, message, (number, faults))
    whole = [row for row in sums if not row["marks"] >> _BROKEN_ROW & 1]
    count = sum(row["count"] for row in whole)
    weight = sum(((row["high"] or 0) << _HALF) + (row["low"] or 0) for row in whole)
    units = any(row["units"] for row in sums)
    if weight >= MOST:
        faults.add("weights-too-large", f"whose weights add up to {MOST // MILLION:,} or more: use a larger unit", count, [])
    if units:
        _units_agree(flagged, [name for name in ("pin", "zone") if name in carried], faults)
    if spec.families:
        _families_are_whole(flagged, faults)
    faults.refuse()
    constant = {name: F.lit(value).cast(kind).alias(name) for name, (value, kind) in _SOMETIMES.items() if name not in carried}
    rows = flagged.filter("marks >= 0") if earlier is not None else flagged
    rows = counted_once(rows) if spec.families else rows
    rows = rows.select("*", F.lit(0).alias("problem"), *constant.values())
    return Checked(rows.select(*LEAF, *(["f"] if spec.families else [])), count, weight, units)


def _times(subject: Column) -> Column:
    """How often a subject stands in its table; the sort that this needs is the one that a join by subject needs as well."""
    return F.count(subject).over(Window.partitionBy("subject"))


def _with_homes(marked: DataFrame, earlier: Earlier | None) -> DataFrame:
    """With where everything was; what is in the earlier plan alone is GONE, or WRONG if it stands there more than once."""
    if earlier is None:
        return marked.withColumn("home", F.lit(NEW))
    wrong = F.col("subject").isNull() | (_times(F.col("subject")) > 1)
    before = earlier.homes.withColumn("wrong", wrong).withColumnRenamed("subject", "earlier")
    joined = marked.join(before, F.col("subject") == F.col("earlier"), "full_outer")
    marks = F.when(F.col("wrong"), F.lit(_WRONG)).otherwise(F.coalesce("marks", F.lit(_GONE)))
    found = joined.withColumn("subject", F.coalesce("subject", "earlier")).withColumn("marks", marks)
    found = told_by(found, earlier.homes, earlier.families, "home")
    return found.withColumn("home", F.coalesce("home", F.lit(NEW)).cast("int")).drop("earlier", "wrong")


def _refuse_earlier(flagged: DataFrame, marks: Collection[int]) -> None:
    if _WRONG not in marks:
        return
    twice = flagged.filter(F.col("marks") == _WRONG).select("subject").distinct().orderBy("subject").limit(EXAMPLES)
    shown = ", ".join(str(row["subject"]) for row in rows_of(twice))
    message = f"subjects that have more than one worker, or none: {shown}"
    raise InvalidInput((Problem("previous", 1, 1, "duplicate-subject", message),))


def _marks(conditions: Sequence[tuple[str, str, Column]]) -> Column:
    """The faults of a row, as bits of one number."""
    bits = (F.when(flag, F.lit(1 << at)).otherwise(F.lit(0)) for at, (_, _, flag) in enumerate(conditions))
    return reduce(Column.bitwiseOR, bits)


def _has(at: int) -> Column:
    return F.col("marks").bitwiseAND(1 << at) != 0


def _count(wrong: DataFrame, code: str, message: str, counted: tuple[int, Faults]) -> None:
    """A fault that occurs, with the first examples."""
    number, faults = counted
    shown = BROKEN if code == "bad-row" else "subject"
    different = wrong.filter(F.col(shown).isNotNull()).select(shown).distinct()
    examples = [row[shown] for row in rows_of(different.orderBy(shown).limit(EXAMPLES))]
    faults.add(code, message, different.count() if code == "duplicate-subject" else number, examples)


def _read(table: DataFrame, used: Mapping[str, str], spec: PartitionPlanSpec, shown: str) -> DataFrame:
    """Our columns in our types: subject, unit, family, pin_name, zone_name, w, split, and the text of broken rows."""
    template, constant = spec.partitions.template, spec.partitions.columns.weight
    columns = {name: text_of(table, used[name], shown) if name in used else F.lit(None).cast("string") for name in _TEXTS}
    split = no()
    if template is not None:
        values = {name: text_of(table, name, shown) for name in template_columns(template)}
        parts = FIELD.split(template)
        columns["subject"] = F.concat(*(values[part] if at % 2 else F.lit(part) for at, part in enumerate(parts)))
        for value in values.values():
            split = split | F.coalesce(value.contains(".") | (value == ""), no())
    if isinstance(constant, int):
        weight = F.lit(constant * MILLION).cast("long")
    else:
        weight = micro(named(used["weight"]), table.schema[used["weight"]].dataType)
    broken = F.col(BROKEN) if BROKEN in table.columns else F.lit(None).cast("string")
    family = filter_of(columns["subject"], [Family(pattern) for pattern in spec.families])
    return table.select(
        columns["subject"].alias("subject"),
        F.coalesce(columns["unit"], family).alias("unit"),
        family.alias("family"),
        columns["pin"].alias("pin_name"),
        columns["zone"].alias("zone_name"),
        weight.alias("w"),
        split.alias("split"),
        broken.alias(BROKEN),
    )


_TEXTS = ("subject", "unit", "pin", "zone")


def _ranked(read: DataFrame, used: Mapping[str, str], workers: WorkerTableRows) -> DataFrame:
    """Pins and zones as numbers: -1 is none, or one that nobody has."""
    nothing = F.lit(-1).cast("int")
    found = read
    if "pin" in used:
        around = workers.workers
        table = small(
            read.sparkSession,
            {
                "pin_name": (TEXT, list(around.names)),
                "pin": (INT, list(range(len(around)))),
                "pin_zone": (INT, list(around.zone)),
                "pin_drains": (INT, [int(not active) for active in around.active]),
            },
        )
        found = found.join(table, "pin_name", "left").withColumn("pin", F.coalesce("pin", nothing))
    else:
        found = found.withColumn("pin", nothing)
    if "zone" in used:
        zones = workers.zones
        table = small(read.sparkSession, {"zone_name": (TEXT, list(zones)), "zone": (INT, list(zones.values()))})
        return found.join(table, "zone_name", "left").withColumn("zone", F.coalesce("zone", nothing))
    return found.withColumn("zone", nothing)


def _conditions(used: Mapping[str, str], spec: PartitionPlanSpec, columns: int) -> list[tuple[str, str, Column]]:
    """Every fault of a row: code, message, and when it is one. What else stands in a broken row is not looked at."""
    subject, zone, pin = F.col("subject"), F.col("zone"), F.col("pin")
    good = _plain(subject) | (subject.rlike(GOOD) & (F.char_length(subject) <= LONGEST))
    undeclared = is_wild(subject) & ~F.coalesce(subject == F.col("family"), no())
    found = [
        ("null-subject", "without a subject", subject.isNull()),
        ("bad-subject", BAD_SUBJECT, ~good),
        ("undeclared-wildcard", UNDECLARED, undeclared),
        ("bad-weight", "with a weight that is no number of at least 0.000001", F.coalesce(F.col("w") <= 0, ~no())),
    ]
    if spec.partitions.format in _TEXT_FILES:
        replaced = subject.contains("\ufffd") | F.coalesce(F.col("unit").contains("\ufffd"), no())
        found.append(("no-utf-8", "with bytes that are no UTF-8", replaced))
    if spec.partitions.template is not None:
        found.append(("split-token", "with a value in the template that is no single token (a dot, or nothing)", F.col("split")))
    if "pin" in used:
        unknown = F.col("pin_name").isNotNull() & (pin < 0)
        found.append(("unknown-pin", "pinned to a worker that is not in the table of workers", unknown))
        found.append(("draining-pin", "pinned to a worker that is draining", F.col("pin_drains") == 1))
    if "zone" in used:
        named_one = F.col("zone_name").isNotNull()
        found.append(("unknown-zone", "with a zone that no worker has", named_one & (zone < 0)))
        found.append(("null-zone", "without a zone, while others have one", ~named_one))
        if "pin" in used:
            found.append(("pin-outside-zone", "pinned to a worker of another zone", F.col("pin_zone") != zone))
    broken = ("bad-row", f"with more or fewer values than the first line ({columns})", ~_whole())
    return [broken, *((code, said, _whole() & flag) for code, said, flag in found)]


def _whole() -> Column:
    """Whether a row has as many values as the first line."""
    return F.col(BROKEN).isNull()


def _plain(subject: Column) -> Column:
    """Most subjects are seen to be good at one glance; the whole pattern takes Java ten times as long."""
    seen = ~subject.rlike("[^!-~]") & (subject != "") & (F.octet_length(subject) <= LONGEST)
    return seen & ~subject.contains("..") & ~subject.startswith(".") & ~subject.endswith(".")


def _whole_ones(flagged: DataFrame) -> DataFrame:
    """What stands in the table, but for broken rows."""
    return flagged.filter((F.col("marks") >= 0) & ~_has(_BROKEN_ROW))


def _families_are_whole(flagged: DataFrame, faults: Faults) -> None:
    """A family has one unit, which may be larger."""
    units = _whole_ones(flagged).filter(F.col("family").isNotNull()).groupBy("family").agg(F.countDistinct("unit").alias("units"))
    torn = units.filter("units > 1").select("family")
    examples = [row["family"] for row in rows_of(torn.orderBy("family").limit(EXAMPLES))]
    if examples:
        faults.add("torn-family", TORN_FAMILY, torn.count(), examples)


def _units_agree(flagged: DataFrame, names: Sequence[str], faults: Faults) -> None:
    """The partitions of a unit go to one worker: they cannot be asked to be in two places."""
    for name in names:
        said = _whole_ones(flagged).filter(F.col("unit").isNotNull() & (F.col(name) >= 0))
        torn = said.groupBy("unit").agg(F.countDistinct(name).alias("places")).filter("places > 1").select("unit")
        examples = [row["unit"] for row in rows_of(torn.orderBy("unit").limit(EXAMPLES))]
        if examples:
            faults.add(f"torn-unit-{name}", f"with a unit that has more than one {name}", torn.count(), examples)
