"""The table of workers, read and checked.

Invariant: a worker's rank is its place in the order of the names, whatever the order of the table.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from reconciler.errors import InvalidInput
from reconciler.model.identity import MAX_NAME
from reconciler.partitions.planning.model import Workers
from reconciler.partitions.reading.faults import Faults
from reconciler.partitions.reading.inputs import WorkerTableRows
from reconciler.partitions.reading.numbers import micro
from reconciler.partitions.reading.tables import TableFiles, no_column
from reconciler.partitions.reading.texts import text_of
from reconciler.partitions.spec import MILLION, PartitionPlanSpec

_ID = re.compile(r"[A-Za-z0-9_-]*[A-Za-z0-9]")
_STATES = ("active", "draining")
USUAL = {
    "worker": ("worker", "worker_id", "workerId"),
    "capacity": ("capacity",),
    "maxSubjects": ("maxSubjects", "max_subjects"),
    "zone": ("zone",),
    "state": ("state",),
}


@dataclass(frozen=True, slots=True)
class _Row:
    name: str
    capacity: int
    slots: int
    zone: str | None
    state: str


def usual_column(table: TableFiles, given: str | None, names: Sequence[str]) -> str | None:
    """The column that was named, else the first that has a usual name."""
    return given if given is not None else next((name for name in names if name in table.columns), None)


def check_named(table: TableFiles, given: Iterable[tuple[str, str | None]]) -> None:
    """Raises InvalidInput with every column that the plan names and the table does not have."""
    missing = [
        table.problem("unknown-column", no_column(column, table.columns), "columns", field)
        for field, column in given
        if column is not None and column not in table.columns
    ]
    if missing:
        raise InvalidInput(tuple(missing))


def read_workers(table: TableFiles, spec: PartitionPlanSpec) -> WorkerTableRows:
    """All workers; raises InvalidInput with everything that is wrong."""
    columns = spec.workers.columns
    given = {
        "worker": columns.worker,
        "capacity": columns.capacity,
        "maxSubjects": columns.max_subjects,
        "zone": columns.zone,
        "state": columns.state,
    }
    check_named(table, given.items())
    found = {field: usual_column(table, name, USUAL[field]) for field, name in given.items()}
    if found["worker"] is None:
        message = f"no column says which worker: name it in columns.worker; there are {', '.join(table.columns[:20])}"
        raise InvalidInput((table.problem("missing-column", message, "columns"),))
    used = {field: column for field, column in found.items() if column is not None}
    if spec.zones == "ignore":
        used.pop("zone", None)
    faults = Faults(table.shown)
    rows: list[_Row] = []
    for batch in table.batches(list(used.values()), faults):
        rows += _rows(batch, used, spec.max_subjects, faults)
    twice = [name for name, count in Counter(row.name for row in rows).items() if count > 1]
    faults.add("duplicate-worker", "with a worker that stands in the table more than once", len(twice), twice)
    faults.refuse()
    return _ranked(rows)


def _rows(batch: pa.RecordBatch, used: dict[str, str], most: int, faults: Faults) -> list[_Row]:
    count = len(batch)
    numbers = ("capacity", "maxSubjects")
    text = {
        field: text_of(batch.column(column), column, faults.table).to_pylist()
        for field, column in used.items()
        if field not in numbers
    }
    names = text["worker"]
    capacity = micro(batch.column(used["capacity"])).to_pylist() if "capacity" in used else [MILLION] * count
    slots = micro(batch.column(used["maxSubjects"])).to_pylist() if "maxSubjects" in used else [None] * count
    given = batch.column(used["maxSubjects"]).is_valid().to_pylist() if "maxSubjects" in used else [False] * count
    states = [state or "active" for state in text.get("state", [None] * count)]
    zones = text.get("zone", [None] * count)

    def check(code: str, message: str, wrong: list[bool], shown: Sequence[str | None]) -> None:
        faults.add(code, message, sum(wrong), [value for value, bad in zip(shown, wrong, strict=True) if bad])

    check("null-worker", "without a worker", [name is None for name in names], [""] * count)
    bad = [name is not None and not good_id(name) for name in names]
    check(
        "bad-worker",
        "with a name that files and consumers cannot have: letters, digits, - and _, a letter or digit last",
        bad,
        names,
    )
    check("bad-capacity", "with a capacity that is no number above 0", [value is None or value <= 0 for value in capacity], names)
    wrong = [said and (value is None or value < 0 or value % MILLION != 0) for value, said in zip(slots, given, strict=True)]
    check("bad-max-subjects", "with a maxSubjects that is no whole number", wrong, names)
    if "zone" in used:
        check("null-zone", "without a zone, while others have one", [zone is None for zone in zones], names)
    check("bad-state", f"with a state other than {' and '.join(_STATES)}", [state not in _STATES for state in states], states)
    if faults:
        return []
    return [
        _Row(str(name), capacity[row], _slots(slots[row], most), zones[row], str(states[row])) for row, name in enumerate(names)
    ]


def _slots(given: int | None, most: int) -> int:
    return most if given is None else min(most, given // MILLION)


def good_id(name: str) -> bool:
    """Whether a worker of this name can have a file and a consumer."""
    return _ID.fullmatch(name) is not None and len(name) <= MAX_NAME // 2


def _ranked(rows: list[_Row]) -> WorkerTableRows:
    ordered = sorted(rows, key=lambda row: row.name.encode())
    names = sorted({row.zone for row in rows if row.zone is not None})
    numbers = {name: number for number, name in enumerate(names)}
    workers = Workers(
        names=tuple(row.name for row in ordered),
        capacity=tuple(row.capacity for row in ordered),
        slots=tuple(row.slots for row in ordered),
        active=tuple(row.state == "active" for row in ordered),
        zone=tuple(numbers.get(row.zone, -1) if row.zone is not None else -1 for row in ordered),
        fresh=(False,) * len(ordered),
    )
    return WorkerTableRows(workers, numbers)


def with_fresh(found: WorkerTableRows, known: frozenset[str], filling: frozenset[str]) -> Workers:
    """The workers, those marked fresh that the earlier plan did not have; without an earlier plan nobody is."""
    if not known:
        return found.workers
    fresh = tuple(name not in known or name in filling for name in found.workers.names)
    return replace(found.workers, fresh=fresh)
