"""An earlier plan in a table of somebody else's.

Invariant: a subject has one worker there, or the table is refused.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from reconciler.errors import InvalidInput
from reconciler.partitions.reading.faults import EXAMPLES, Faults
from reconciler.partitions.reading.inputs import Previous
from reconciler.partitions.reading.tables import TableFiles, no_column
from reconciler.partitions.reading.texts import text_of


def read_earlier(table: TableFiles, names: tuple[str, str]) -> Previous:
    """Subjects and workers; rows without either are faults."""
    missing = [
        table.problem("unknown-column", no_column(name, table.columns), "columns") for name in names if name not in table.columns
    ]
    if missing:
        raise InvalidInput(tuple(missing))
    faults = Faults(table.shown)
    subjects: list[pa.Array] = []
    workers: list[pa.Array] = []
    for batch in table.batches(names, faults):
        for name, column in zip(names, (subjects, workers), strict=True):
            column.append(text_of(batch.column(name), name, table.shown))
            faults.add(
                f"null-{'subject' if column is subjects else 'worker'}", f"without {name}", batch.column(name).null_count, []
            )
    subject = pa.chunked_array(subjects, pa.string()).combine_chunks()
    worker = pa.chunked_array(workers, pa.string()).combine_chunks()
    if pc.count_distinct(subject).as_py() != len(subject):
        counts = pc.value_counts(subject)
        twice = counts.filter(pc.greater(counts.field("counts"), 1)).field("values").to_pylist()
        faults.add(
            "duplicate-subject",
            "with a subject that has more than one worker",
            len(twice),
            sorted(filter(None, twice))[:EXAMPLES],
        )
    faults.refuse()
    return Previous(subject, worker, frozenset(pc.unique(worker).to_pylist()), source="table")
