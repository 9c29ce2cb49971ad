"""Tables of a plan as DataFrames: everything that the session knows, by the options of the plan.

CSV gets the very rules of the local reader: RFC 4180, UTF-8, a first line with names, every value a text.

Invariant: a path means the same file to this process and to every executor, or it is refused.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pydantic import ValidationError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.types import StringType, StructField, StructType

from reconciler.errors import InvalidInput, Problem
from reconciler.manifests.findings import from_validation
from reconciler.partitions.plan_file import PlanFile
from reconciler.partitions.reading.faults import Faults
from reconciler.partitions.reading.tables import TableFiles, no_column
from reconciler.partitions.spark.conditions import fulfilled
from reconciler.partitions.spark.session import explained, is_local
from reconciler.partitions.spec import CsvOptions, Table

BROKEN = "_reconciler_broken_row"
"""The column with the text of a CSV row that has more or fewer values than the first line."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where the tables of a plan are looked for."""

    spark: SparkSession
    plan: PlanFile
    shared_filesystem: bool = False

    def open(self, name: str, table: Table) -> DataFrame:
        """The rows that fulfil every condition, with all columns."""
        try:
            frame = self._read(name, table)
            missing = [
                self.plan.problem(
                    "unknown-column", no_column(condition.column, frame.columns), "spec", name, "where", at, "column"
                )
                for at, condition in enumerate(table.where)
                if condition.column not in frame.columns
            ]
        except (PySparkException, _java_error()) as error:
            raise self._said(error, name, table) from error
        if missing:
            raise InvalidInput(tuple(missing))
        return frame.filter(fulfilled(frame, table.where)) if table.where else frame

    def collected(self, name: str, table: Table) -> TableFiles:
        """A table that this process reads, as the local reader sees one."""
        frame = self.open(name, table)
        columns = tuple(column for column in frame.columns if column != BROKEN)
        return Collected(self.plan, name, table, (), columns, frame)

    def _read(self, name: str, table: Table) -> DataFrame:
        reader = self.spark.read
        if table.table is not None and table.format != "jdbc":
            return reader.options(**_texts(table.options)).table(table.table)
        if table.format == "csv":
            return self._csv(reader, name, table)
        reader = reader.format(table.format).options(**_texts(table.options))
        return reader.load(self._path(name, table)) if table.path is not None else reader.load()

    def _csv(self, reader: DataFrameReader, name: str, table: Table) -> DataFrame:
        options = self._csv_options(name, table)
        given = {
            "sep": options.delimiter,
            "quote": options.quote,
            "escape": options.quote,
            "multiLine": str(options.multi_line).lower(),
            "header": "true",
            "encoding": "UTF-8",
            "maxCharsPerColumn": "-1",
            "mode": "PERMISSIVE",
            "columnNameOfCorruptRecord": BROKEN,
        }
        path = self._path(name, table)
        names = reader.options(**given).csv(path).columns
        fields = [StructField(column, StringType()) for column in (*names, BROKEN)]
        frame = self.spark.read.options(**given).schema(StructType(fields)).csv(path)
        nothing = sorted({"", options.null_value})
        texts = [F.when(F.col(_q(column)).isin(nothing), None).otherwise(F.col(_q(column))).alias(column) for column in names]
        return frame.select(*texts, BROKEN)

    def _csv_options(self, name: str, table: Table) -> CsvOptions:
        try:
            return CsvOptions.model_validate(table.options)
        except ValidationError as error:
            found = from_validation(error, CsvOptions, ("spec", name, "options"))
            raise InvalidInput(tuple(self.plan.problem(one.code, one.message, *one.path) for one in found)) from error

    def _path(self, name: str, table: Table) -> str:
        """Absolute, and the same file everywhere."""
        given = table.path or ""
        scheme = given.partition("://")[0] if "://" in given else "file" if given.startswith("file:") else ""
        if scheme not in ("", "file"):
            return given
        if not is_local(self.spark) and not self.shared_filesystem:
            message = (
                f"{given} is a path of this machine, and the executors of this Spark may have another: give one with a scheme "
                "that all of them share (s3a://, hdfs://, abfs://), or say --shared-filesystem if they mount the same directory"
            )
            raise InvalidInput((self.plan.problem("not-shared", message, "spec", name, "path"),))
        plain = Path(given.removeprefix("file://").removeprefix("file:"))
        return f"file://{plain if plain.is_absolute() else (self.plan.directory / plain).resolve()}"

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
        yield from self.frame.select(*(_q(column) for column in wanted)).toArrow().to_batches()

    def problem(self, code: str, message: str, *path: str | int) -> Problem:
        """A fault of what the plan says about this table."""
        return self.plan.problem(code, message, "spec", self.name, *path)


def _q(column: str) -> str:
    """A name with dots in it is one name."""
    return "`" + column.replace("`", "``") + "`"


quoted_name = _q


def _texts(options: dict[str, Any]) -> dict[str, str]:
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}


def _java_error() -> type[Exception]:
    """What classic Spark raises for errors of the JVM that it does not know."""
    found: type[Exception] = PySparkException
    with contextlib.suppress(ImportError):  # a client of Connect may lack it
        from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - the same

        found = Py4JJavaError
    return found
