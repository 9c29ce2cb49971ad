"""The table of partitions, read and checked batch by batch.

Invariant: every row is checked, also when there are more than are planned here; what is kept then is eight bytes a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reconciler.errors import InvalidInput
from reconciler.partitions.families import Family, filters
from reconciler.partitions.planning.keys import Keys
from reconciler.partitions.planning.model import Ranks
from reconciler.partitions.reading.faults import EXAMPLES, Faults
from reconciler.partitions.reading.inputs import Partitions, TooMany, WorkerTableRows
from reconciler.partitions.reading.numbers import MOST, micro
from reconciler.partitions.reading.subjects import BAD_SUBJECT, TORN_FAMILY, UNDECLARED, filled, template_columns, wild, wrong
from reconciler.partitions.reading.tables import TableFiles, there_are
from reconciler.partitions.reading.texts import text_of
from reconciler.partitions.reading.workers import check_named, usual_column
from reconciler.partitions.spec import MILLION, PartitionPlanSpec

_USUAL = {"subject": ("subject",), "weight": ("weight",), "unit": ("unit",), "zone": ("zone",), "pin": ("pin",)}


@dataclass(slots=True)
class _Collected:
    """What has been read so far."""

    rows: int = 0
    weight: int = 0
    columns: dict[str, list[pa.Array]] = field(default_factory=dict)
    hashes: list[npt.NDArray[np.int64]] = field(default_factory=list)


def read_partitions(table: TableFiles, spec: PartitionPlanSpec, workers: WorkerTableRows) -> Partitions:
    """All partitions; raises InvalidInput with everything that is wrong, TooMany when they are checked but too many."""
    used = used_columns(table, spec)
    faults = Faults(table.shown)
    found = _Collected()
    for batch in table.batches(_asked(used, spec), faults):
        read = _checked(batch, used, spec, faults)
        found.rows += len(batch)
        if found.weight < MOST:
            found.weight += _total(read["weight"])
        _keep(found, read, spec.local_rows, workers, faults)
    if found.weight >= MOST:
        faults.add("weights-too-large", f"whose weights add up to {MOST // MILLION:,} or more: use a larger unit", found.rows, [])
    _duplicates(table, spec, found, faults)
    if "unit" in found.columns:
        _units_agree(found, faults)
    if "family" in found.columns:
        _families_are_whole(found, faults)
    faults.refuse()
    if found.rows > spec.local_rows:
        raise TooMany(found.rows, spec.local_rows)
    return _joined(found)


def _asked(used: Mapping[str, str], spec: PartitionPlanSpec) -> list[str]:
    template = spec.partitions.template
    return list(dict.fromkeys([*used.values(), *(template_columns(template) if template else ())]))


def used_columns(table: TableFiles, spec: PartitionPlanSpec) -> dict[str, str]:
    """Which column says what."""
    columns, template = spec.partitions.columns, spec.partitions.template
    weight = columns.weight if isinstance(columns.weight, str) else None
    given = {"subject": columns.subject, "weight": weight, "unit": columns.unit, "zone": columns.zone, "pin": columns.pin}
    check_named(table, given.items())
    found = {name: usual_column(table, column, _USUAL[name]) for name, column in given.items()}
    problems = []
    there = there_are(table.columns)
    if template is not None:
        found["subject"] = None
        try:
            absent = [name for name in template_columns(template) if name not in table.columns]
        except ValueError as error:
            problems.append(table.problem("bad-value", str(error), "template"))
        else:
            message = f"no columns {', '.join(absent)}; {there}"
            problems += [table.problem("unknown-column", message, "template")] if absent else []
    elif found["subject"] is None:
        message = f"no column says the subject: name it in columns.subject, or give a template; {there}"
        problems.append(table.problem("missing-column", message, "columns"))
    if found["weight"] is None and not isinstance(columns.weight, int):
        message = f"no column says the weight: name it in columns.weight, or write weight: 1 for equal ones; {there}"
        problems.append(table.problem("missing-column", message, "columns"))
    if problems:
        raise InvalidInput(tuple(problems))
    if spec.zones == "ignore" or isinstance(columns.weight, int):
        dropped = {"zone"} if spec.zones == "ignore" else set()
        dropped |= {"weight"} if isinstance(columns.weight, int) else set()
        found |= dict.fromkeys(dropped)
    return {name: column for name, column in found.items() if column is not None}


def _checked(batch: pa.RecordBatch, used: Mapping[str, str], spec: PartitionPlanSpec, faults: Faults) -> dict[str, pa.Array]:
    """The columns of a batch in our types; every fault of a row is counted."""
    texts = {name: text_of(batch.column(column), column, faults.table) for name, column in used.items() if name != "weight"}
    template = spec.partitions.template
    if template is not None:
        values = {name: text_of(batch.column(name), name, faults.table) for name in template_columns(template)}
        texts["subject"], split = filled(template, values)
        _count(
            faults,
            "split-token",
            "with a value in the template that is no single token (a dot, or nothing)",
            split,
            texts["subject"],
        )
    subject = texts["subject"]
    _count(faults, "null-subject", "without a subject", pc.is_null(subject), pa.nulls(len(subject), pa.string()))
    _count(faults, "bad-subject", BAD_SUBJECT, wrong(subject), subject)
    if spec.families:
        texts["family"] = filters(subject, [Family(pattern) for pattern in spec.families])
        texts["unit"] = pc.coalesce(texts["unit"], texts["family"]) if "unit" in texts else texts["family"]
    declared = pc.fill_null(pc.equal(subject, texts["family"]), fill_value=False) if spec.families else pa.scalar(value=False)
    _count(faults, "undeclared-wildcard", UNDECLARED, pc.and_not(wild(subject), declared), subject)
    constant = spec.partitions.columns.weight
    weight = (
        pa.array(np.full(len(batch), constant * MILLION)) if isinstance(constant, int) else micro(batch.column(used["weight"]))
    )
    light = pc.fill_null(pc.less_equal(weight, 0), fill_value=True)
    _count(faults, "bad-weight", "with a weight that is no number of at least 0.000001", light, subject)
    return {**texts, "weight": weight}


def _count(faults: Faults, code: str, message: str, mask: pa.Array, shown: pa.Array) -> None:
    mask = pc.fill_null(mask, fill_value=False)
    count = pc.sum(mask).as_py() or 0
    if count:
        smallest = sorted({value for value in shown.filter(mask).to_pylist() if value is not None})[:EXAMPLES]
        faults.add(code, message, count, smallest)


def _keep(found: _Collected, read: Mapping[str, pa.Array], most: int, workers: WorkerTableRows, faults: Faults) -> None:
    subject = read["subject"]
    pins = _codes(read.get("pin"), workers.ranks, len(subject))
    zones = _codes(read.get("zone"), workers.zones, len(subject))
    if "pin" in read:
        named = pc.is_valid(read["pin"])
        _count(faults, "unknown-pin", "pinned to a worker that is not in the table of workers", _and(named, pins < 0), subject)
        active = np.array([*workers.workers.active, True], dtype=np.bool_)
        _count(faults, "draining-pin", "pinned to a worker that is draining", _and(named, (pins >= 0) & ~active[pins]), subject)
    if "zone" in read:
        named = pc.is_valid(read["zone"])
        _count(faults, "unknown-zone", "with a zone that no worker has", _and(named, zones < 0), subject)
        _count(faults, "null-zone", "without a zone, while others have one", pc.is_null(read["zone"]), subject)
        home = np.array([*workers.workers.zone, -1], dtype=np.int32)
        _count(
            faults,
            "pin-outside-zone",
            "pinned to a worker of another zone",
            pa.array((pins >= 0) & (home[pins] != zones)),
            subject,
        )
    if found.rows > most:
        if found.columns:
            for chunk in found.columns.pop("subject"):
                found.hashes.append(_hashes(chunk))
            found.columns.clear()
        found.hashes.append(_hashes(subject))
        return
    kept = {"subject": subject, "weight": read["weight"], "pin": pa.array(pins), "zone": pa.array(zones)}
    kept |= {name: read[name] for name in ("unit", "family") if name in read}
    for name, column in kept.items():
        found.columns.setdefault(name, []).append(column)


def _hashes(subject: pa.Array) -> npt.NDArray[np.int64]:
    present = subject.drop_null()
    return Keys(present).hashes(np.arange(len(present), dtype=np.int64))


def _codes(column: pa.Array | None, numbers: Mapping[str, int], rows: int) -> Ranks:
    if column is None:
        return np.full(rows, -1, dtype=np.int32)
    names = sorted(numbers, key=numbers.__getitem__)
    index = pc.fill_null(pc.index_in(column, value_set=pa.array(names, pa.string())), -1)
    codes: Ranks = index.to_numpy(zero_copy_only=False).astype(np.int32)
    return codes


def _duplicates(table: TableFiles, spec: PartitionPlanSpec, found: _Collected, faults: Faults) -> None:
    """Subjects that stand there twice: found by their hash where there are too many to keep, then looked at again."""
    if found.hashes:
        hashes = np.sort(np.concatenate(found.hashes))
        twice = np.unique(hashes[1:][hashes[1:] == hashes[:-1]])
        column = _again(table, spec, twice) if len(twice) else pa.array([], pa.string())
    else:
        column = _whole(found, "subject", pa.string())
    column = column.drop_null()
    if pc.count_distinct(column).as_py() == len(column):
        return
    counts = pc.value_counts(column)
    several = counts.filter(pc.greater(counts.field("counts"), 1))
    names = sorted(several.field("values").to_pylist())[:EXAMPLES]
    faults.add("duplicate-subject", "with a subject that stands there more than once", len(several), names)


def _units_agree(found: _Collected, faults: Faults) -> None:
    """The partitions of a unit go to one worker: they cannot be asked to be in two places."""
    for name in ("pin", "zone"):
        whole = pa.table({"unit": _whole(found, "unit", pa.string()), name: _whole(found, name, pa.int32())})
        pairs = (
            whole.filter(pc.and_(pc.is_valid(whole["unit"]), pc.greater_equal(whole[name], 0)))
            .group_by(["unit", name])
            .aggregate([])
        )
        counts = pc.value_counts(pairs["unit"])
        torn = counts.filter(pc.greater(counts.field("counts"), 1)).field("values").to_pylist()
        faults.add(f"torn-unit-{name}", f"with a unit that has more than one {name}", len(torn), sorted(torn)[:EXAMPLES])


def _families_are_whole(found: _Collected, faults: Faults) -> None:
    """A family has one unit, which may be larger: whatever is read through one filter has one worker."""
    table = pa.table({name: _whole(found, name, pa.string()) for name in ("family", "unit")})
    units = table.group_by("family").aggregate([("unit", "count_distinct")])
    torn = units.filter(pc.and_(pc.is_valid(units["family"]), pc.greater(units["unit_count_distinct"], 1)))["family"].to_pylist()
    faults.add("torn-family", TORN_FAMILY, len(torn), sorted(torn)[:EXAMPLES])


def _again(table: TableFiles, spec: PartitionPlanSpec, hashes: npt.NDArray[np.int64]) -> pa.Array:
    """The subjects of these hashes, from a second look."""
    used = used_columns(table, spec)
    found: list[pa.Array] = []
    for batch in table.batches(_asked(used, spec), Faults(table.shown)):
        subject = _checked(batch, used, spec, Faults(table.shown))["subject"].drop_null()
        found.append(subject.filter(pa.array(np.isin(_hashes(subject), hashes))))
    return pa.chunked_array(found, pa.string()).combine_chunks()


def _joined(found: _Collected) -> Partitions:
    unit, family = (_whole(found, name, pa.string()) if name in found.columns else None for name in ("unit", "family"))
    return Partitions(
        _whole(found, "subject", pa.string()),
        _whole(found, "weight", pa.int64()).to_numpy(zero_copy_only=False),
        _whole(found, "pin", pa.int32()).to_numpy(zero_copy_only=False),
        _whole(found, "zone", pa.int32()).to_numpy(zero_copy_only=False),
        unit,
        family,
    )


def _whole(found: _Collected, name: str, kind: pa.DataType) -> pa.Array:
    chunks: Sequence[pa.Array] = found.columns.get(name, [])
    return pa.chunked_array(chunks, kind).combine_chunks() if chunks else pa.array([], kind)


def _and(mask: pa.Array, other: npt.NDArray[np.bool_]) -> pa.Array:
    return pc.and_(mask, pa.array(other))


def _total(weight: pa.Array) -> int:
    """In whole numbers of any size."""
    values = weight.drop_null().to_numpy(zero_copy_only=False)
    high, low = values >> 32, values & 0xFFFFFFFF
    return (int(high.sum()) << 32) + int(low.sum())
