"""Tables of a plan as DataFrames: everything that the session knows, by the options of the plan.

CSV gets the very rules of the local reader: RFC 4180, UTF-8, a first line with names, every value a text.

Invariant: a path means the same file to this process and to every executor, or it is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.types import StringType, StructField, StructType

from reconciler.errors import InvalidInput
from reconciler.partitions.plan_file import PlanFile
from reconciler.partitions.reading.faults import Faults
from reconciler.partitions.reading.tables import LOCAL_FORMATS, TableFiles, csv_options, no_column, open_table, shown_name, there
from reconciler.partitions.spark.columns.conditions import fulfilled
from reconciler.partitions.spark.columns.frames import named
from reconciler.partitions.spark.ending import answers
from reconciler.partitions.spark.session import explained, is_local
from reconciler.partitions.spec import Table

_PATTERN, _ESCAPED = re.compile(r"([{}\[\]*?\\])"), r"\\\1"
"""What Spark reads as a pattern, and how it stands for itself."""
BROKEN = "_reconciler_broken_row"
"""The column with the text of a CSV row that has more or fewer values than the first line."""


@dataclass(frozen=True, slots=True)
class TableSource:
    """Where the tables of a plan are looked for."""

    spark: SparkSession
    plan: PlanFile
    shared_filesystem: bool = False

    def open(self, name: str, table: Table) -> DataFrame:
        """The rows that fulfil every condition, with all columns; broken ones are left in, to be counted."""
        try:
            frame = self._read(name, table)
            columns = frame.columns  # a Connect server looks for the table only now
        except answers() as error:
            raise self._said(error, name, table) from error
        missing = [
            self.plan.problem("unknown-column", no_column(condition.column, columns), "spec", name, "where", at, "column")
            for at, condition in enumerate(table.where)
            if condition.column not in columns
        ]
        if missing:
            raise InvalidInput(tuple(missing))
        if not table.where:
            return frame
        kept = fulfilled(frame, table.where, shown_name(name, table))
        return frame.filter(kept | F.col(BROKEN).isNotNull() if BROKEN in columns else kept)

    def collected(self, name: str, table: Table) -> TableFiles:
        """A table that this process reads, as the local reader sees one."""
        frame = self.open(name, table)
        columns = tuple(column for column in frame.columns if column != BROKEN)
        return Collected(self.plan, name, table, (), columns, frame)

    def need_shared(self, name: str, table: Table) -> None:
        """Raises InvalidInput where the executors may find something else by the path of a table, or nothing."""
        if table.path is None or not self._is_ours(table) or is_local(self.spark) or self.shared_filesystem:
            return
        message = (
            f"{table.path} is a path of this machine, and the executors of this Spark may have another: give one with a scheme "
            "that all of them share (s3a://, hdfs://, abfs://), or say --shared-filesystem if they mount the same directory"
        )
        raise InvalidInput((self.plan.problem("not-shared", message, "spec", name, "path"),))

    def _read(self, name: str, table: Table) -> DataFrame:
        reader = self.spark.read
        if table.table is not None and table.format != "jdbc":
            return reader.options(**_texts(table.options)).table(table.table)
        if table.format == "csv":
            return self._csv(name, table)
        reader = reader.format(table.format).options(**_texts(table.options))
        return reader.load(self._paths(name, table)) if table.path is not None else reader.load()

    def _csv(self, name: str, table: Table) -> DataFrame:
        options = csv_options(self.plan, name, table)
        given = {
            "sep": options.delimiter,
            "quote": options.quote,
            "escape": options.quote,
            "multiLine": str(options.multi_line).lower(),
            "encoding": "UTF-8",
            "maxCharsPerColumn": "-1",
            "mode": "PERMISSIVE",
            "columnNameOfCorruptRecord": BROKEN,
            "enforceSchema": "false",
            "columnPruning": "false",  # a row is broken by what stands in columns that nobody asks for, too
        }
        paths = self._paths(name, table)
        names = open_table(self.plan, name, table).columns if self._is_ours(table) else self._first_line(paths, given)
        fields = [StructField(column, StringType()) for column in (*names, BROKEN)]
        frame = self.spark.read.options(header="true", **given).schema(StructType(fields)).csv(paths)
        nothing = sorted({"", options.null_value})
        texts = [F.when(named(column).isin(nothing), None).otherwise(named(column)).alias(column) for column in names]
        return frame.select(*texts, BROKEN)

    def _first_line(self, paths: str | list[str], given: Mapping[str, str]) -> list[str]:
        first = self.spark.read.options(header="false", **given).csv(paths).first()
        return [str(column or "") for column in first or ()]

    def _is_ours(self, table: Table) -> bool:
        """Whether this process can look at the files as well."""
        return (table.path or "").partition(":")[0] == "file" or "://" not in (table.path or "")

    def _paths(self, name: str, table: Table) -> str | list[str]:
        """Absolute, and the same files everywhere: those that the local reader would take, where it can read the format."""
        given = table.path or ""
        if not self._is_ours(table):
            return given
        self.need_shared(name, table)
        path = there(self.plan, name, table)
        if table.format not in LOCAL_FORMATS:
            return f"file://{path.resolve()}"
        return [f"file://{_PATTERN.sub(_ESCAPED, str(file.resolve()))}" for file in open_table(self.plan, name, table).files]

    def _said(self, error: Exception, name: str, table: Table) -> Exception:
        """In words that lead on."""
        known = explained(error, table.format, self.spark)
        if known is not None:
            return known
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return InvalidInput((self.plan.problem("unreadable", lines[0], "spec", name),))


@dataclass(frozen=True)
class Collected(TableFiles):
    """Rows that Spark has read and this process gets."""

    frame: DataFrame

    def batches(self, columns: Sequence[str], faults: Faults) -> Iterator[pa.RecordBatch]:
        """All of them."""
        if BROKEN in self.frame.columns:
            broken = self.frame.filter(F.col(BROKEN).isNotNull())
            texts = [row[0] for row in broken.select(BROKEN).orderBy(BROKEN).limit(5).collect()]
            count = broken.count() if texts else 0
            faults.add("bad-row", f"with more or fewer values than the first line ({len(self.columns)})", count, texts)
        wanted = list(dict.fromkeys(columns))
        yield from self.frame.select(*(named(column) for column in wanted)).toArrow().to_batches()


def _texts(options: dict[str, Any]) -> dict[str, str]:
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}
