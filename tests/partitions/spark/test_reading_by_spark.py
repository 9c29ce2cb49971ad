"""Spark reads what this process reads: the same rows count, the same numbers come out, and the same faults are said."""

from __future__ import annotations

import datetime as dt
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from reconciler.partitions.reading import conditions, numbers, subjects
from reconciler.partitions.spec import RowCondition
from tests.support.choice import examples
from tests.support.partitions.both import Both
from tests.support.partitions.files import Desk
from tests.support.partitions.files import desk as made

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("spark")
AT_ONCE = 50_000
"""Characters: Spark keeps what it is sent in the memory of the driver, row by row."""

NUMBERS = [
    *(
        "1",
        "1.5",
        "-1",
        "+1",
        ".5",
        "5.",
        " 1\t",
        "1e3",
        "1E-3",
        "1e-9999",
        "1e400",
        "0e500",
        "nan",
        "inf",
        "",
        "x",
        "1_0",
        "1\n",
        "٣",
        "0x1",
    ),
    *("0.0000005", "0.0000015", "0.00000050000000000000000001", "0.1000000000000000055511151231257827", f"0.{'1' * 60}"),
    *(
        "4611686018427",
        "4611686018427.387904",
        "4611686018427.0000000000000001",
        "4611686018428",
        "9" * 40,
        "-4611686018428",
        None,
    ),
]
FLOATS = [0.1, 1.0000005, 1e-7, -2.5, 4.611686018427387e12, 4.7e12, 1e300, float("nan"), float("inf"), -0.0, None]
WHOLE = [0, 1, -1, 4611686018427, 4611686018428, -4611686018428, 2**63 - 1, -(2**63), None]
COLUMNS = {
    "text": pa.array(["1", "eu", "true", "É", "é", "", "10", "9", None], pa.string()),
    "float": pa.array([0.5, 1.0, 2.0, float("nan"), -1.0, 1e300, 10.0, 9.0, None], pa.float64()),
    "whole": pa.array([1, 2, -1, 0, 10, 9, 2**40, 7, None], pa.int64()),
    "yes": pa.array([True, False, True, None, True, True, True, True, None], pa.bool_()),
    "day": pa.array([dt.date(2024, 1, n + 1) for n in range(8)] + [None], pa.date32()),
}
VALUES: dict[str, list[Any]] = {
    "text": ["eu", "1", 1, 9.5, True, "É"],
    "float": [1, 0.5, -1],
    "whole": [1, 9.5, "10", 10**20],
    "yes": [True, "true"],
    "day": ["2024-01-03"],
}


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Desk:
    """100 equal partitions on four workers, planned by nobody yet."""
    return made(tmp_path, capsys)


@pytest.fixture
def both(desk: Desk) -> Both:
    """Both planners on it."""
    return Both(desk)


def test_a_number_is_the_same_number(spark: SparkSession) -> None:
    from reconciler.partitions.spark.columns.conditions import micro  # noqa: PLC0415 - only where pyspark is

    columns = {
        "text": pa.array(NUMBERS, pa.string()),
        "float": pa.array(FLOATS, pa.float64()),
        "whole": pa.array(WHOLE, pa.int64()),
    }
    longest = max(map(len, columns.values()))
    table = pa.table({name: pa.concat_arrays([one, pa.nulls(longest - len(one), one.type)]) for name, one in columns.items()})
    frame = spark.createDataFrame(table)
    found = frame.select(*(micro(frame[name], frame.schema[name].dataType).alias(name) for name in table.column_names)).toArrow()
    for name in table.column_names:
        wanted = numbers.micro(table.column(name).combine_chunks())
        pairs = zip(table.column(name).to_pylist(), found.column(name).to_pylist(), wanted.to_pylist(), strict=True)
        assert [one for one in pairs if one[1] != one[2]] == [], name


def test_the_same_rows_fulfil_a_condition(spark: SparkSession) -> None:
    from reconciler.partitions.spark.columns.conditions import fulfilled  # noqa: PLC0415 - only where pyspark is

    asked = [RowCondition(column=name, op=op) for name in COLUMNS for op in ("isNull", "notNull")]
    for name, values in VALUES.items():
        asked += [
            RowCondition(column=name, op=op, value=value) for op in ("eq", "ne", "lt", "le", "gt", "ge") for value in values
        ]
        asked += [
            RowCondition(column=name, op=op, value=[str(value) for value in values]) for op in ("in", "notIn") if name != "float"
        ]
        asked += [RowCondition(column=name, op=op, value=[1, 10]) for op in ("in", "notIn")]
    asked += [RowCondition(column="text", op=op, value=[]) for op in ("in", "notIn")]
    batch = pa.RecordBatch.from_pydict(COLUMNS)
    frame = spark.createDataFrame(pa.Table.from_batches([batch]))
    found = frame.select(*(fulfilled(frame, [one], "t").alias(str(at)) for at, one in enumerate(asked))).toArrow()
    for at, one in enumerate(asked):
        assert found.column(at).to_pylist() == conditions.fulfilled(batch, [one], "t").to_pylist(), one


def test_a_subject_is_the_same_subject_in_all_of_unicode(spark: SparkSession) -> None:
    """Of each character: whether it may stand in a subject."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name, where pyspark is

    below = 0x110000 if examples(5) == 5 else 0x3100
    codes = [code for code in range(below) if not 0xD800 <= code < 0xE000]
    good, wild = F.col("text").rlike(subjects.GOOD), F.col("text").rlike(subjects.WILD)
    wrong = ~good | wild | (F.char_length("text") > subjects.LONGEST)
    for first in range(0, len(codes), AT_ONCE):
        texts = pa.array([text for code in codes[first : first + AT_ONCE] for text in (f"a{chr(code)}b", chr(code))], pa.string())
        found = spark.createDataFrame(pa.table({"text": texts})).select("text", wrong.alias("wrong")).toArrow()
        assert found.column("text").combine_chunks().equals(texts)
        assert pc.all(pc.equal(found.column("wrong"), pc.or_(subjects.wrong(texts), subjects.wild(texts)))).as_py()


def test_every_fault_is_counted_and_shown_alike(both: Both) -> None:
    """All at once, some of them in rows that are broken or left out by a condition."""
    desk = both.desk
    desk.workers("w-a,active,east", "w-b,active,west", "w-z,draining,east", header="worker,state,zone")
    rows = [
        *(f",1,east,,,y{n}" for n in range(2)),
        *(f"{subject},1,east,,," for subject in ("a..b", "a b", "a.*", "a.>", "x" * 256, "bad!x ", "bad ", ".", "é .x")),
        *(f"weight.{n},{weight},east,,," for n, weight in enumerate(("0", "-1", "x", "", "nan", "1e-7", "inf"))),
        *(f"twice.{n % 3},1,east,,," for n in range(6)),
        *("pin.a,1,east,nobody,,", "pin.b,1,east,w-z,,", "pin.c,1,east,w-b,,"),
        *("zone.a,1,mars,,,", "zone.b,1,,,,"),
        *("unit.a,1,east,w-a,u,", "unit.b,1,west,w-b,u,"),
        *("short,1", "pin.a,1,east,nobody,,,more", "twice.9,1,east,,,,more", "twice.9,1,east,,,"),
        *("left.out,0,east,,,n", "left..out,1,mars,nobody,,n", "left,out"),
    ]
    desk.table("partitions.csv", "subject,weight,zone,pin,unit,counts", rows)
    desk.plan(instead={"path: partitions.csv": "path: partitions.csv, where: [{column: counts, op: ne, value: n}]"})
    said = both.refused(code=4)
    desk.plan()
    said += both.refused(code=4)
    codes = "bad-row null-subject bad-subject bad-weight duplicate-subject unknown-pin draining-pin pin-outside-zone unknown-zone"
    assert [code for code in f"{codes} null-zone torn-unit-pin torn-unit-zone".split() if f": {code}: " not in said] == []


def test_weights_that_are_too_large_and_templates_that_are_torn(both: Both) -> None:
    desk = both.desk
    desk.table("partitions.csv", "subject,weight", ["a,4000000000000", "b,4000000000000"])
    assert "weights-too-large: 2 rows" in both.refused(code=4)
    desk.table("partitions.csv", "tool,chamber", ["t1.c1,c", "t2,", "t3,c c", "t4,c"])
    template = "path: partitions.csv, template: 'dc.{tool}.{chamber}', columns: {weight: 1}"
    desk.plan(instead={"path: partitions.csv": template})
    assert "split-token: 1 row" in both.refused(code=4)


def test_types_of_parquet_are_read_alike(both: Both) -> None:
    desk = both.desk
    count = 40
    table = pa.table(
        {
            "tool": pa.array([n // 4 for n in range(count)], pa.int16()),
            "chamber": pa.array([f"c{n % 4}" for n in range(count)]).dictionary_encode(),
            "at.line": pa.array(["east"] * count, pa.large_string()),
            "load": pa.array([n + 0.1 for n in range(count)], pa.float32()),
            "ratio": pa.array([float(n) for n in range(count)], pa.float64()),
        }
    )
    (desk.root / "parts [1]").mkdir()
    pq.write_table(table.slice(0, 25), desk.root / "parts [1]" / "a.parquet")
    pq.write_table(table.slice(25), desk.root / "parts [1]" / "b.parquet")
    (desk.root / "parts [1]" / "_SUCCESS").touch()
    (desk.root / "parts [1]" / "note.txt").write_text("no table")
    columns = "template: 'dc.{tool}.{chamber}', columns: {weight: load}, where: [{column: at.line, op: eq, value: east}]"
    instead = "{format: csv, path: partitions.csv}"
    desk.plan(instead={instead: f"{{format: parquet, path: 'parts [1]', {columns}}}"})
    both.plan()
    desk.plan(instead={instead: f"{{format: parquet, path: 'parts [1]', {columns.replace('{tool}', '{ratio}')}}}"})
    assert 'no-texts: the values of "ratio" can be written in several ways' in both.refused(code=4)
    odd = pa.table({"subject": [f"a.{n}" for n in range(len(FLOATS))], "weight": pa.array(FLOATS, pa.float64())})
    pq.write_table(odd, desk.root / "odd.parquet")
    desk.plan(instead={instead: "{format: parquet, path: odd.parquet}"})
    assert "bad-weight" in both.refused(code=4)


def test_csv_is_read_by_one_set_of_rules(both: Both) -> None:
    desk = both.desk
    lines = ["\ufeffsubject;weight;u.n.it;more", '"a.""b""";1;NA;', '\'c\';"2";"u;1";""', "d;3;u;x", "é.ü;0.25;;", "e; 4 ;;"]
    (desk.root / "parts").mkdir()
    (desk.root / "parts" / "1.csv").write_bytes("\r\n".join([*lines, ""]).encode())
    (desk.root / "parts" / "2.csv").write_text('subject;weight;u.n.it;more\n"f";"5";"a\nb";\n', encoding="utf-8")
    options = "options: {delimiter: ';', nullValue: NA, multiLine: true}, columns: {unit: u.n.it}"
    desk.plan(instead={"path: partitions.csv": f"path: parts, {options}"})
    both.plan()
    assert desk.report("--dry-run", "--engine", "local")["pools"]["processor"]["partitions"] == 6
    shutil.rmtree(desk.output)
    (desk.root / "parts" / "2.csv").write_bytes(b"subject;weight;u.n.it;more\na\xff.b;1;;\n")
    for engine in ("local", "spark"):
        assert "UTF" in desk("--engine", engine, code=4).err
    desk.table("partitions.csv", "subject,subject,weight", [])
    desk.plan()
    both.refused(code=4)
    (desk.root / "partitions.csv").write_text("")
    both.refused(code=4)


@pytest.mark.parametrize(
    ("instead", "said"),
    [
        ("path: nowhere.csv", "not-found"),
        ("path: partitions.csv, options: {sep: x}", 'unknown field "sep"'),
        ("path: partitions.csv, columns: {weight: wight}", 'there is no column "wight"; did you mean weight?'),
        ("path: partitions.csv, where: [{column: regio, op: eq, value: x}]", 'there is no column "regio"'),
        ("path: partitions.csv, template: 'dc.{tool}'", "no columns tool; there are subject, weight"),
    ],
)
def test_what_a_plan_says_of_its_table_is_checked_alike(both: Both, instead: str, said: str) -> None:
    both.desk.plan(instead={"path: partitions.csv": instead})
    assert said in both.refused(code=4)


def test_an_earlier_plan_in_a_table_is_read_alike(both: Both) -> None:
    desk = both.desk
    desk.table(
        "before.csv", "topic,worker", [*(f"dc.tool{n // 4}.chamber{n % 4},w-{'abx'[n % 3]}" for n in range(90)), "dc.gone,w-a"]
    )
    desk.plan(
        "previous: {format: csv, path: before.csv, columns: {subject: topic}}",
        "gates: {maxMovedFraction: 1, maxWorkersRemovedFraction: 1}",
    )
    both.plan()
    desk.table("before.csv", "topic,worker", ["a,w-a", "a,w-b", ",w-a", "b,"])
    assert "duplicate-subject: 1 row with a subject that has more than one worker" in both.refused(code=4)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("s.bad,x,", 'bad-weight: 1 row with a weight that is no number of at least 0.000001: "s.bad"'),
        ("s.bad", 'bad-row: 1 row with more or fewer values than the first line (3): "s.bad"'),
        ("s.19999,1,", 'duplicate-subject: 1 row with a subject that stands there more than once: "s.19999"'),
    ],
)
def test_one_bad_row_in_the_middle_of_many_is_found(both: Both, bad: str, said: str) -> None:
    rows = [f"s.{number},{number % 7 + 1},x" for number in range(20_000)]
    both.desk.table("partitions.csv", "subject,weight,unused", [*rows[:10_000], bad, *rows[10_000:]])
    assert said in both.refused(code=4)
