"""Everything that can be wrong with a plan or its tables is said, counted, with examples, and nothing is written."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from tests.support.partitions.files import Desk


@pytest.mark.parametrize(
    ("instead", "said"),
    [
        ({"pool: processor\n": "pools: processor\n"}, 'plan.yaml:5:3: unknown-field: unknown field "pools"; did you mean pool?'),
        ({"  stream: DC\n": ""}, "plan.yaml:4:1: missing-field: stream is required"),
        ({"output: manifests/processor": "output: _x"}, "plan.yaml:9:3: bad-value: a directory of its own is needed"),
        ({"format: csv, path: workers.csv": "format: csv"}, "bad-value: give either path or table"),
        ({"path: workers.csv": "path: nowhere.csv"}, "plan.yaml:8:26: not-found"),
        ({"path: workers.csv": "path: workers.csv, options: {sep: x}"}, 'unknown-field: unknown field "sep"'),
        (
            {"path: workers.csv": "path: workers.csv, columns: {worker: wrker}"},
            'there is no column "wrker"; did you mean worker?',
        ),
        (
            {"path: partitions.csv": "path: partitions.csv, where: [{column: regio, op: eq, value: x}]"},
            'there is no column "regio"',
        ),
        ({"path: partitions.csv": "path: partitions.csv, where: [{column: subject, op: eq}]"}, "eq needs one value"),
        ({"path: partitions.csv": "path: partitions.csv, template: 'dc.{tool}'"}, "no columns tool; there are subject, weight"),
        ({"path: partitions.csv": "path: partitions.csv, template: 'dc.tool'"}, "a template names columns in braces"),
        ({"kind: PartitionPlan": "kind: Stream"}, "one-plan: no PartitionPlan here"),
    ],
    ids=lambda value: next(iter(value.values()), "missing") if isinstance(value, Mapping) else "",
)
def test_a_wrong_plan_is_refused_where_it_is_wrong(desk: Desk, instead: dict[str, str], said: str) -> None:
    desk.plan(instead=instead)
    assert said in desk(code=4).err
    assert not desk.output.exists()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("balance: {trigger: 0.05, target: 0.1}", "target must not be above trigger"),
        ("gates: {minWorkers: 0}", "must be at least 1"),
        ("maxSubjects: many", "must be a whole number"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(desk: Desk, line: str, said: str) -> None:
    desk.plan(line)
    assert said in desk(code=4).err


@pytest.mark.parametrize(
    ("header", "rows", "code", "said"),
    [
        ("subject,weight", [",1"] * 7, "null-subject", "7 rows without a subject"),
        (
            "subject,weight",
            ["a..b,1", "a b,1", f"{'x' * 256},1", "ok,1"],
            "bad-subject",
            "3 rows with a subject that is none",
        ),
        ("subject,weight", ["a.*,1", "a.>,1", "a*.>b,1"], "undeclared-wildcard", "2 rows with a wildcard that is no declared"),
        ("subject,weight", ["a,0", "b,-1", "c,x", "d,", "e,nan", "f,0.0000001", "g,inf"], "bad-weight", "7 rows with a weight"),
        (
            "subject,weight",
            ["a,1", "a,2", "b,1"],
            "duplicate-subject",
            '1 row with a subject that stands there more than once: "a"',
        ),
        (
            "subject,weight,pin",
            ["a,1,nobody"],
            "unknown-pin",
            '1 row pinned to a worker that is not in the table of workers: "a"',
        ),
        ("subject,weight,pin", ["a,1,w-z"], "draining-pin", "1 row pinned to a worker that is draining"),
        ("subject,weight,zone", ["a,1,mars"], "unknown-zone", "1 row with a zone that no worker has"),
        ("subject,weight,zone", ["a,1,east", "b,1,"], "null-zone", "1 row without a zone"),
        ("subject,weight,zone,pin", ["a,1,east,w-b"], "pin-outside-zone", "1 row pinned to a worker of another zone"),
        (
            "subject,weight,unit,pin",
            ["a,1,u,w-a", "b,1,u,w-b"],
            "torn-unit-pin",
            '1 row with a unit that has more than one pin: "u"',
        ),
        ("subject,weight", ["a,1", "b,1,2", "c"], "bad-row", "2 rows with more or fewer values than the first line (2)"),
        ("subject,weight", ["a,4000000000000", "b,4000000000000"], "weights-too-large", "2 rows whose weights add up to"),
    ],
)
def test_a_wrong_partition_is_counted_and_shown(desk: Desk, header: str, rows: list[str], code: str, said: str) -> None:
    desk.workers("w-a,active,east", "w-b,active,west", "w-z,draining,east", header="worker,state,zone")
    desk.table("partitions.csv", header, rows)
    ended = desk(code=4)
    assert f"partitions.csv:1:1: {code}: {said}" in ended.err
    assert not desk.output.exists()


@pytest.mark.parametrize(
    ("header", "rows", "said"),
    [
        ("worker", [" ", '""'], "null-worker: 1 row without a worker"),
        ("worker", ["a.b", "x_", "ok"], "bad-worker: 2 rows"),
        ("worker", ["a", "a"], 'duplicate-worker: 1 row with a worker that stands in the table more than once: "a"'),
        ("worker,capacity", ["a,0", "b,x"], "bad-capacity: 2 rows"),
        ("worker,max_subjects", ["a,1.5", "b,-1"], "bad-max-subjects: 2 rows"),
        ("worker,state", ["a,asleep"], 'bad-state: 1 row with a state other than active and draining: "asleep"'),
        ("worker,zone", ["a,east", "b,"], "null-zone: 1 row without a zone"),
        ("name", ["a"], "missing-column: no column says which worker"),
        ("worker,worker", ["a,b"], "duplicate-column: columns with the same name: worker"),
    ],
)
def test_a_wrong_worker_is_counted_and_shown(desk: Desk, header: str, rows: list[str], said: str) -> None:
    desk.workers(*rows, header=header)
    assert said in desk(code=4).err


def test_no_more_than_five_examples_are_shown_and_they_are_the_same_every_time(desk: Desk) -> None:
    rows = [f"b {number:03},1" for number in range(200)]
    desk.table("partitions.csv", "subject,weight", rows)
    first = desk(code=4).err
    desk.table("partitions.csv", "subject,weight", rows[::-1])
    assert desk(code=4).err == first
    assert "200 rows with a subject that is none" in first
    assert first.count('"b ') == 5


def test_every_kind_of_fault_is_reported_at_once(desk: Desk) -> None:
    desk.table("partitions.csv", "subject,weight", ["a b,1", "c,0", "d,1", "d,1"])
    err = desk(code=4).err
    assert all(code in err for code in ("bad-subject", "bad-weight", "duplicate-subject"))


def test_one_bad_row_among_many_is_found_without_keeping_them(desk: Desk) -> None:
    rows = [f"s.{number},1" for number in range(3000)]
    rows[1500] = "s. x,1"
    desk.table("partitions.csv", "subject,weight", [*rows, "s.7,1"])
    desk.plan("localRows: 1000")
    err = desk(code=4).err
    assert "bad-subject: 1 row with a subject" in err
    assert 'duplicate-subject: 1 row with a subject that stands there more than once: "s.7"' in err


def test_arrow_is_given_something_of_ours_only_where_a_row_is_bad(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[bool] = []
    parsing = pa_csv.ParseOptions

    def noted(**options: object) -> pa_csv.ParseOptions:
        given.append(options["invalid_row_handler"] is not None)
        return parsing(**options)

    monkeypatch.setattr(pa_csv, "ParseOptions", noted)
    desk()
    assert set(given) == {False}
    rows = [f"dc.{number}.{'x' * 100},1" for number in range(200_000)]
    desk.table("partitions.csv", "subject,weight", [*rows, "a,1,2", rows[0], "b,1,2", ""])
    err = desk(code=4).err
    assert given.count(True) == 1
    assert 'bad-row: 2 rows with more or fewer values than the first line (2): "a,1,2", "b,1,2"' in err
    assert "duplicate-subject: 1 row" in err, "what was read before the bad row is read once"


def test_more_partitions_than_are_planned_here_need_spark(desk: Desk) -> None:
    desk.plan("localRows: 99")
    err = desk("--engine", "local", code=64).err
    assert "100 partitions are more than the 99 that are planned in this process (spec.localRows)" in err
    assert "pip install 'jetstream-reconciler[spark]'" in err


@pytest.mark.parametrize("format_", ["delta", "iceberg", "json"])
def test_other_formats_need_spark(desk: Desk, format_: str) -> None:
    desk.plan(instead={"format: csv, path: partitions.csv": f"format: {format_}, path: x"})
    assert "pip install 'jetstream-reconciler[spark]'" in desk("--engine", "local", code=64).err


def test_an_object_store_is_no_output(desk: Desk) -> None:
    desk.plan(instead={"output: manifests/processor": "output: 's3://bucket/x'"})
    assert "an object store cannot do" in desk(code=64).err


def test_parquet_and_csv_give_the_same_plan(desk: Desk) -> None:
    weights = [0.1, 1.5, 2.25, 1e-6, 3.0000005]
    desk.table("partitions.csv", "subject,weight", [f"a.{n},{weight!r}" for n, weight in enumerate(weights)])
    desk()
    from_csv = desk.manifests()
    table = pa.table({"subject": [f"a.{n}" for n in range(5)], "weight": pa.array(weights, pa.float64())})
    pq.write_table(table, desk.root / "partitions.parquet")
    desk.plan(instead={"format: csv, path: partitions.csv": "format: parquet, path: partitions.parquet"})
    assert desk.report()["changed"] is False
    assert desk.manifests() == from_csv


def test_a_template_makes_subjects(desk: Desk) -> None:
    desk.table("partitions.csv", "tool,chamber", ["t1,c1", "t1,c2"])
    template = "path: partitions.csv, template: 'dc.{tool}.{chamber}.completion', columns: {weight: 1}"
    desk.plan(instead={"path: partitions.csv": template})
    desk()
    text = b"".join(desk.manifests().values())
    assert b'"dc.t1.c1.completion"' in text
    assert b'"dc.t1.c2.completion"' in text


def test_a_template_refuses_values_that_are_no_token(desk: Desk) -> None:
    desk.table("partitions.csv", "tool", ["t1.c1", "t2"])
    desk.plan(instead={"path: partitions.csv": "path: partitions.csv, template: 'dc.{tool}', columns: {weight: 1}"})
    assert (
        'split-token: 1 row with a value in the template that is no single token (a dot, or nothing): "dc.t1.c1"'
        in desk(code=4).err
    )


@pytest.mark.parametrize(
    ("where", "kept"),
    [
        ("[{column: region, op: eq, value: eu}]", 2),
        ("[{column: region, op: ne, value: eu}]", 1),
        ("[{column: region, op: in, value: [eu, us]}]", 3),
        ("[{column: region, op: notIn, value: [eu]}]", 1),
        ("[{column: region, op: isNull}]", 1),
        ("[{column: weight, op: ge, value: 2}, {column: region, op: notNull}]", 2),
        ("[{column: weight, op: lt, value: 10}]", 3),
    ],
)
def test_conditions_choose_rows(desk: Desk, where: str, kept: int) -> None:
    desk.table("partitions.csv", "subject,weight,region", ["a,1,eu", "b,2,eu", "c,3,us", "d,10,"])
    desk.plan(instead={"path: partitions.csv": f"path: partitions.csv, where: {where}"})
    assert desk.report("--dry-run")["pools"]["processor"]["partitions"] == kept


def test_csv_is_read_by_one_set_of_rules(desk: Desk) -> None:
    text = '\ufeffsubject;weight;unit\r\n"a.""b""";1;\r\n\'c\';" 2 ";NA\r\nd;3;""\r\n'
    (desk.root / "partitions.csv").write_bytes(text.encode())
    desk.plan(instead={"path: partitions.csv": "path: partitions.csv, options: {delimiter: ';', nullValue: NA}"})
    desk()
    found = b"".join(desk.manifests().values()).decode()
    assert r'"a.\"b\""' in found
    assert "\"'c'\"" in found


def test_a_directory_of_files_is_one_table(desk: Desk) -> None:
    (desk.root / "parts").mkdir()
    for number in range(3):
        desk.table(f"parts/{number}.csv", "subject,weight", [f"s.{number},1"])
    (desk.root / "parts" / "_SUCCESS").touch()
    desk.plan(instead={"path: partitions.csv": "path: parts"})
    assert desk.report()["pools"]["processor"]["partitions"] == 3


@pytest.mark.parametrize(("sign", "shown"), [(";", '";"'), ("\t", '"\\t"'), ("|", '"|"')])
def test_another_delimiter_is_suggested_and_works(desk: Desk, sign: str, shown: str) -> None:
    desk.table("partitions.csv", f"subject{sign}weight", [f"a{sign}1"])
    err = desk(code=4).err
    assert f"options: {{delimiter: {shown}}} splits it" in err
    desk.plan(instead={"path: partitions.csv": f"path: partitions.csv, options: {{delimiter: {shown}}}"})
    assert desk.report()["pools"]["processor"]["partitions"] == 1
