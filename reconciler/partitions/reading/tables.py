"""Parquet and CSV files → batches of the columns that are asked for; every other format is Spark's.

CSV is read by one set of rules wherever it is read: RFC 4180, UTF-8, a first line with names, each value a text, nothing is null.

Invariant: a file is read in batches, and never held as a whole. Arrow's threads get nothing of Python's, unless a file has bad
rows: they let go of it whenever they come to it, and where Python is ending, that ends the process with a crash.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from pydantic import ValidationError

from reconciler.errors import InvalidInput, Problem
from reconciler.manifests.findings import from_validation
from reconciler.manifests.suggest import quoted, suggest
from reconciler.partitions.plan_file import PlanFile
from reconciler.partitions.reading.conditions import fulfilled
from reconciler.partitions.reading.faults import Faults
from reconciler.partitions.spec import CsvOptions, Table

LOCAL_FORMATS = ("parquet", "csv")
_DELIMITERS = {";": '";"', "\t": r'"\t"', "|": '"|"'}
"""Besides the comma, and how YAML has them."""
ROWS = 131_072
"""Of one batch."""


@dataclass(frozen=True, slots=True)
class TableFiles:
    """A table of the plan, found on disk."""

    plan: PlanFile
    name: str
    """Its place in the spec: partitions, workers or previous."""
    table: Table
    files: tuple[Path, ...]
    columns: tuple[str, ...]

    @property
    def shown(self) -> str:
        """As it is called in messages."""
        return shown_name(self.name, self.table)

    def problem(self, code: str, message: str, *path: str | int) -> Problem:
        """A fault of what the plan says about this table."""
        return self.plan.problem(code, message, "spec", self.name, *path)

    def batches(self, columns: Sequence[str], faults: Faults) -> Iterator[pa.RecordBatch]:
        """The rows that fulfil every condition, with these columns."""
        wanted = list(dict.fromkeys([*columns, *(condition.column for condition in self.table.where)]))
        for file in self.files:
            read = _parquet(file, wanted) if self.table.format == "parquet" else _csv(file, wanted, _options(self), faults)
            try:
                for batch in read:
                    kept = batch.filter(fulfilled(batch, self.table.where, self.shown)) if self.table.where else batch
                    yield kept.select(list(dict.fromkeys(columns)))
            except (pa.ArrowInvalid, OSError) as error:
                raise InvalidInput((Problem(str(file), 1, 1, "unreadable", str(error)),)) from error


def open_table(plan: PlanFile, name: str, table: Table) -> TableFiles:
    """Finds the files and reads which columns there are; raises InvalidInput when that cannot be."""
    path = there(plan, name, table)
    files = _files(path, table.format)
    if not files:
        message = f"{quoted(str(path))} has no {table.format} files"
        raise InvalidInput((plan.problem("not-found", message, "spec", name, "path"),))
    found = TableFiles(plan, name, table, files, ())
    try:
        names = _parquet_names(files[0]) if table.format == "parquet" else _csv_names(files[0], _options(found))
    except (pa.ArrowInvalid, OSError) as error:
        raise InvalidInput((Problem(str(files[0]), 1, 1, "unreadable", str(error)),)) from error
    twice = sorted(column for column, count in Counter(names).items() if count > 1)
    if twice:
        raise InvalidInput((Problem(str(files[0]), 1, 1, "duplicate-column", f"columns with the same name: {', '.join(twice)}"),))
    found = TableFiles(plan, name, table, files, tuple(names))
    missing = [
        found.problem("unknown-column", no_column(condition.column, names), "where", number, "column")
        for number, condition in enumerate(table.where)
        if condition.column not in names
    ]
    if missing:
        raise InvalidInput(tuple(missing))
    return found


def shown_name(name: str, table: Table) -> str:
    """As a table is called in messages."""
    return table.path or table.table or name


def there(plan: PlanFile, name: str, table: Table) -> Path:
    """The file or directory that a plan names, which has to exist."""
    plain = (table.path or "").removeprefix("file://").removeprefix("file:")
    path = plan.directory / plain
    if not path.exists():
        raise InvalidInput((plan.problem("not-found", f"{quoted(str(path))} is not there", "spec", name, "path"),))
    return path


def no_column(name: str, known: Sequence[str]) -> str:
    """What to say of a column that is not there."""
    return f"there is no column {quoted(name)}{suggest(name, known) or f'; {there_are(known)}'}"


def there_are(known: Sequence[str]) -> str:
    """Which columns there are; of a CSV with another delimiter a single one."""
    if len(known) == 1 and (found := next((sign for sign in _DELIMITERS if sign in known[0]), "")):
        return f"there is only {quoted(known[0])}: options: {{delimiter: {_DELIMITERS[found]}}} splits it"
    return f"there are {', '.join(known[:20])}"


def _files(path: Path, format_: str) -> tuple[Path, ...]:
    if path.is_dir():
        found = (file for file in path.rglob(f"*.{format_}") if not file.name.startswith((".", "_")))
        return tuple(sorted(file for file in found if file.is_file()))
    return (path,) if path.is_file() else ()


def csv_options(plan: PlanFile, name: str, table: Table) -> CsvOptions:
    """How the plan says that a CSV file is written."""
    try:
        return CsvOptions.model_validate(table.options)
    except ValidationError as error:
        found = from_validation(error, CsvOptions, ("spec", name, "options"))
        raise InvalidInput(tuple(plan.problem(finding.code, finding.message, *finding.path) for finding in found)) from error


def _options(table: TableFiles) -> CsvOptions:
    return csv_options(table.plan, table.name, table.table)


def _parquet_names(file: Path) -> list[str]:
    names: list[str] = pq.ParquetFile(file).schema_arrow.names
    return names


def _parquet(file: Path, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(file) as opened:
        missing = [column for column in columns if column not in opened.schema_arrow.names]
        if missing:
            raise InvalidInput((Problem(str(file), 1, 1, "unknown-column", no_column(missing[0], opened.schema_arrow.names)),))
        yield from opened.iter_batches(ROWS, columns=list(columns))


def _csv_names(file: Path, options: CsvOptions) -> list[str]:
    with file.open("rb") as opened:
        head = opened.read(1024 * 1024).removeprefix(b"\xef\xbb\xbf")
    if not head.strip():
        msg = "the file is empty; a first line with the names of the columns is needed"
        raise pa.ArrowInvalid(msg)
    line = head.split(b"\n", 1)[0].rstrip(b"\r") + b"\n"
    copied = pa.BufferOutputStream()
    copied.write(line)
    first = pa.BufferReader(copied.getvalue())
    parsed = pa_csv.read_csv(first, pa_csv.ReadOptions(autogenerate_column_names=True), _parsing(options), _as_text([]))
    return [str(column[0].as_py()) for column in parsed.columns]


def _csv(file: Path, columns: Sequence[str], options: CsvOptions, faults: Faults) -> Iterator[pa.RecordBatch]:
    names = _csv_names(file, options)
    missing = [column for column in columns if column not in names]
    if missing:
        raise InvalidInput((Problem(str(file), 1, 1, "unknown-column", no_column(missing[0], names)),))

    def uneven(row: pa_csv.InvalidRow) -> str:
        message = f"with more or fewer values than the first line ({row.expected_columns})"
        faults.add("bad-row", message, 1, [row.text])
        return "skip"

    converting = _as_text(names, options.null_value)
    converting.include_columns = list(columns)
    given = 0
    try:
        for batch in _blocks(file, _parsing(options), converting):
            yield batch
            given += 1
    except pa.ArrowInvalid:
        yield from islice(_blocks(file, _parsing(options, uneven), converting), given, None)


def _blocks(file: Path, parsing: pa_csv.ParseOptions, converting: pa_csv.ConvertOptions) -> Iterator[pa.RecordBatch]:
    with pa_csv.open_csv(file, pa_csv.ReadOptions(block_size=4 * 1024 * 1024, use_threads=True), parsing, converting) as opened:
        yield from opened


def _parsing(options: CsvOptions, uneven: Callable[[pa_csv.InvalidRow], str] | None = None) -> pa_csv.ParseOptions:
    return pa_csv.ParseOptions(
        delimiter=options.delimiter,
        quote_char=options.quote,
        double_quote=True,
        escape_char=False,
        newlines_in_values=options.multi_line,
        invalid_row_handler=uneven,
    )


def _as_text(names: Sequence[str], null: str = "") -> pa_csv.ConvertOptions:
    return pa_csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()),
        null_values=sorted({"", null}),
        strings_can_be_null=True,
        quoted_strings_can_be_null=True,
    )
