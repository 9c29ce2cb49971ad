"""Kind PartitionPlan: what a plan.yaml may say.

Invariant: fractions become whole millionths (`ppm`) here, once; nothing after this file decides by a floating-point number.
"""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from reconciler.model.identity import valid_name
from reconciler.model.kinds.common import Domain
from reconciler.model.kinds.fields import Spec

MILLION = 1_000_000


def ppm(fraction: float) -> int:
    """A fraction in millionths, as it is written: 0.1 is 100000."""
    return int((Decimal(repr(fraction)) * MILLION).quantize(Decimal(1), ROUND_HALF_EVEN))


def _name(value: str) -> str:
    if not valid_name(value):
        msg = "is no name that JetStream takes: no white space, none of . * > / \\"
        raise ValueError(msg)
    return value


Name = Annotated[str, Field(min_length=1), AfterValidator(_name)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Text = Annotated[str, Field(min_length=1)]


class RowCondition(Spec):
    """One row of `where`: only rows that fulfil all of them count."""

    column: Text
    op: Literal["eq", "ne", "in", "notIn", "lt", "le", "gt", "ge", "isNull", "notNull"]
    value: str | int | float | bool | list[str] | list[int] | None = None

    @model_validator(mode="after")
    def _has_what_it_needs(self) -> RowCondition:
        if self.op in ("isNull", "notNull"):
            if self.value is not None:
                msg = f"{self.op} takes no value"
                raise ValueError(msg)
        elif self.op in ("in", "notIn"):
            if not isinstance(self.value, list):
                msg = f"{self.op} needs a list"
                raise ValueError(msg)
        elif self.value is None or isinstance(self.value, list):
            msg = f"{self.op} needs one value"
            raise ValueError(msg)
        return self


class CsvOptions(Spec):
    """How a CSV file is written (RFC 4180: quotes are doubled, the first line names the columns)."""

    delimiter: Annotated[str, Field(min_length=1, max_length=1)] = ","
    quote: Annotated[str, Field(min_length=1, max_length=1)] = '"'
    null_value: str = ""
    """Besides nothing at all."""
    multi_line: bool = False
    """Whether a quoted value may go over several lines."""


class Table(Spec):
    """Where rows come from."""

    format: Text
    path: str | None = None
    """Of a file, or a directory of files; relative to the plan."""
    table: str | None = None
    """In a catalog of Spark's."""
    options: dict[str, Any] = {}
    where: list[RowCondition] = []

    @model_validator(mode="after")
    def _is_somewhere(self) -> Table:
        if (self.path is None) == (self.table is None) and self.format != "jdbc":
            msg = "give either path or table"
            raise ValueError(msg)
        return self


class PartitionColumns(Spec):
    """Which columns say what about a partition; a column that is not named here is looked for under its usual name."""

    subject: str | None = None
    weight: str | Annotated[int, Field(ge=1)] | None = None
    """A column, or a number when all are equal."""
    unit: str | None = None
    zone: str | None = None
    pin: str | None = None


class PartitionTable(Table):
    """The partitions."""

    columns: PartitionColumns = PartitionColumns()
    template: str | None = None
    """The subject, with `{column}` where a value goes."""


class WorkerColumns(Spec):
    """Which columns say what about a worker."""

    worker: str | None = None
    capacity: str | None = None
    max_subjects: str | None = None
    zone: str | None = None
    state: str | None = None


class WorkerTable(Table):
    """The workers."""

    columns: WorkerColumns = WorkerColumns()


class PreviousColumns(Spec):
    """Which columns say what about an earlier plan."""

    subject: str | None = None
    worker: str | None = None


class PreviousTable(Table):
    """An earlier plan that somebody else keeps."""

    columns: PreviousColumns = PreviousColumns()


class Balance(Spec):
    """When a worker gives something away, and down to what, as a fraction over its share."""

    trigger: Fraction = 0.10
    target: Fraction = 0.05
    fill_new: Literal["average", "shed"] = "average"
    """`average`: a new worker is filled to its share at once. `shed`: it gets what others are over the trigger."""
    max_moved: Annotated[float, Field(gt=0, le=1)] | None = None
    """The largest part of the weight that one plan may move of its own will; the rest waits for the next run."""

    @model_validator(mode="after")
    def _is_a_band(self) -> Balance:
        if self.target > self.trigger:
            msg = "target must not be above trigger: a worker would be full again before it gives anything away"
            raise ValueError(msg)
        return self


class Gates(Spec):
    """What is refused, unless it is forced by name."""

    max_moved_fraction: Fraction = 0.2
    max_workers_removed_fraction: Fraction = 0.3
    max_input_shrink: Fraction = 0.2
    min_workers: Annotated[int, Field(ge=1)] = 1
    max_manifest_bytes: Annotated[int, Field(ge=1)] = 512 * 1024
    """Of one worker: all its subjects travel in one request."""


class PartitionPlanSpec(Spec):
    """What becomes of which tables."""

    pool: Name
    stream: Name
    domain: Domain = ""
    partitions: PartitionTable
    workers: WorkerTable
    previous: Literal["auto", "none"] | PreviousTable = "auto"
    output: Text
    families: list[Text] = []
    """Subjects that are read through one filter: `dc.{tool}.>` is such a filter for every tool."""
    balance: Balance = Balance()
    zones: Literal["hard", "soft", "ignore"] = "hard"
    """Where tables have a zone: a rule, a preference, or nothing."""
    max_subjects: Annotated[int, Field(ge=1)] = 500
    layout: Literal["flat", "hashed"] = "flat"
    """`hashed`: the files of the workers are in 256 directories, by the hash of their names."""
    gates: Gates = Gates()
    manifests: list[Text] = []
    """Where the WorkerPool, its stream and the other pools of the stream are declared."""
    environment: str = ""
    """The environment to load them for, where they declare some."""
    local_rows: Annotated[int, Field(ge=1)] = 1_000_000
    """Up to so many partitions are planned in this process, more of them by Spark."""
