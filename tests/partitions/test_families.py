"""Families: subjects that are read through one filter, owned whole by one worker, and met by no other filter."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.cli.app import run
from reconciler.cli.saying.terminal import Terminal
from reconciler.model.subjects import covers, is_literal, overlap
from reconciler.partitions.families import Family, covering, filters, problems
from tests.support.partitions.files import Desk


def read_through(desk: Desk) -> dict[str, str]:
    """The worker of every filter that is written."""
    found: dict[str, str] = {}
    for path, data in desk.manifests().items():
        if path.startswith("w-"):
            spec = yaml.safe_load(data)["spec"]
            found |= dict.fromkeys(spec["filterSubjects"], spec["worker"])
    return found


def test_a_family_is_one_filter_and_counts_as_one(desk: Desk) -> None:
    desk.families("dc.{tool}.>", more=["maxSubjects: 7"])
    report = desk.report()
    part = report["pools"]["processor"]
    assert (part["partitions"], part["families"]) == (100, {"count": 25, "partitions": 100})
    assert part["subjects"] == {"max": 7, "cap": 7}
    assert sorted(read_through(desk)) == sorted(f"dc.tool{number}.>" for number in range(25))
    assert "  families  25, with 100 partitions" in desk().out
    assert run(["validate", "-f", str(desk.root)], Terminal({})) == 0


def test_only_what_is_declared_becomes_a_family(desk: Desk) -> None:
    desk.families("dc.tool1.>")
    desk()
    found = read_through(desk)
    assert [name for name in found if not is_literal(name)] == ["dc.tool1.>"]
    assert len(found) == 97
    assert not [name for name in found if name.startswith("dc.tool1.") and is_literal(name)]


def test_a_family_moves_whole_and_what_is_new_in_it_is_where_it_is(desk: Desk) -> None:
    desk.families("dc.{tool}.>")
    desk.partitions(96)
    desk()
    before = read_through(desk)
    weights = {f"dc.tool{n // 4}.chamber{n % 4}": 1 for n in range(96)} | {"dc.tool3.chamber9": 0.1, "dc.tool77.chamber1": 0.1}
    desk.partitions(weights)
    moved = desk.report()["pools"]["processor"]["moved"]
    assert (moved["count"], moved["new"]) == (0, 1)  # tool77; chamber9 was read already
    after = read_through(desk)
    assert before.items() <= after.items()
    desk.plan("manifests: [manifests/pools.yaml]", 'families: ["dc.{tool}.>"]', "gates: {maxMovedFraction: 1}")
    desk.workers("w-b", "w-c", "w-d")
    desk()
    moves = pq.read_table(desk.output / "_plan" / "moves.parquet").to_pylist()
    gone = sorted(name for name, worker in after.items() if worker == "w-a")
    assert sorted({f"{move['subject'].rpartition('.')[0]}.>" for move in moves}) == gone


@pytest.mark.parametrize("kept", [True, False], ids=["table", "manifests"])
def test_what_was_is_known_from_the_table_and_from_the_manifests(desk: Desk, kept: bool) -> None:
    desk.families("dc.{tool}.>")
    desk.workers("w-a", "w-b", "w-c", "w-d")
    desk()
    if not kept:
        (desk.output / "_plan" / "assignment.parquet").unlink()
    desk.partitions({f"dc.tool{n // 4}.chamber{n % 4}": 1 + n % 3 for n in range(104)})
    report = desk.report()
    assert report["previous"] == ("table" if kept else "manifests")
    part = report["pools"]["processor"]
    assert (part["moved"]["count"], part["moved"]["new"]) == (0, 4)


def test_the_same_plan_whatever_says_what_was(desk: Desk) -> None:
    desk.families("dc.{tool}.>", more=["gates: {maxMovedFraction: 1}"])
    desk()
    first = desk.files()
    found = []
    for name in ("assignment.parquet", "none"):
        for path, data in first.items():
            (desk.output / path).write_bytes(data)
        (desk.output / "_plan" / name).unlink(missing_ok=True)
        desk.partitions({f"dc.tool{n // 5}.chamber{n % 5}": 1 + n % 7 for n in range(140)})
        desk.workers("w-a", "w-b", "w-c", "w-d", "w-e")
        report = desk.report()
        found.append((desk.manifests(), report["pools"], report["plan"]))
    assert found[0] == found[1]


def test_from_subjects_to_families_and_back_nothing_moves_that_is_whole_already(desk: Desk) -> None:
    desk.table("partitions.csv", "subject,weight,unit", [f"dc.tool{n // 4}.chamber{n % 4},1,{n // 4}" for n in range(100)])
    desk()
    assert len(read_through(desk)) == 100
    desk.families("dc.{tool}.>")
    merged = desk.report()
    assert (merged["pools"]["processor"]["moved"]["count"], merged["changed"]) == (0, True)
    assert len(read_through(desk)) == 25
    (desk.output / "_plan" / "assignment.parquet").unlink()
    desk.plan()
    split = desk.report()
    assert (split["previous"], split["pools"]["processor"]["moved"]["count"]) == ("manifests", 0)
    assert len(read_through(desk)) == 100


def test_a_unit_may_have_several_families_and_subjects_and_counts_them(desk: Desk) -> None:
    rows = [f"dc.tool{n // 4}.chamber{n % 4},1,area{n // 16}" for n in range(96)]
    desk.table("partitions.csv", "subject,weight,unit", [*rows, "dc.alone,1,area0"])
    desk.families("dc.{tool}.>", more=["maxSubjects: 9"])
    assert desk.report()["pools"]["processor"]["subjects"]["max"] <= 9
    found = read_through(desk)
    assert len(found) == 25
    assert len({found[name] for name in ("dc.alone", *(f"dc.tool{n}.>" for n in range(4)))}) == 1


def test_the_table_may_name_the_family_itself(desk: Desk) -> None:
    desk.partitions({"dc.tool1.>": 5, "dc.tool1.chamber1": 1, "dc.tool2.>": 3, "dc.alone": 1})
    desk.families("dc.{tool}.>")
    part = desk.report()["pools"]["processor"]
    assert part["families"] == {"count": 2, "partitions": 3}
    assert set(read_through(desk)) == {"dc.tool1.>", "dc.tool2.>", "dc.alone"}
    assert desk.report()["changed"] is False


@pytest.mark.parametrize("subject", ["dc.>", "dc.*.>", "dc.tool1.*", "dc.*.chamber1", "*.tool1.>", "dc.tool1.chamber1.>"])
def test_a_wildcard_that_is_no_declared_family_is_refused(desk: Desk, subject: str) -> None:
    desk.partitions({subject: 1, "dc.tool1.chamber1": 1})
    desk.families("dc.{tool}.>")
    assert "undeclared-wildcard: 1 row with a wildcard that is no declared family" in desk(code=4).err
    assert not desk.output.exists()


def test_without_families_no_wildcard_is_let_in(desk: Desk) -> None:
    desk.partitions({"dc.tool1.>": 1})
    assert "undeclared-wildcard: 1 row with a wildcard" in desk(code=4).err


def test_a_family_in_two_units_is_refused(desk: Desk) -> None:
    desk.table("partitions.csv", "subject,weight,unit", ["dc.t1.a,1,u", "dc.t1.b,1,v", "dc.t2.a,1,", "dc.t2.b,1,v", "dc.t3.a,1,"])
    desk.families("dc.{tool}.>")
    assert 'torn-family: 2 rows with a family whose partitions have more than one unit: "dc.t1.>", "dc.t2.>"' in desk(code=4).err


def test_a_family_pinned_to_two_workers_is_refused(desk: Desk) -> None:
    desk.table("partitions.csv", "subject,weight,pin", ["dc.t1.a,1,w-a", "dc.t1.b,1,w-b"])
    desk.families("dc.{tool}.>")
    assert 'torn-unit-pin: 1 row with a unit that has more than one pin: "dc.t1.>"' in desk(code=4).err


@pytest.mark.parametrize("other", ["dc.tool3.chamber99", "dc.tool3.*", "dc.*.chamber99", "*.tool3.>", "dc.>"])
def test_what_another_pool_reads_is_never_taken_by_a_wildcard(desk: Desk, other: str) -> None:
    desk.families("dc.{tool}.>", other=other)
    err = desk(code=3).err
    assert re.search(r"collision: dc\.tool\d+\.>", err)
    assert "WorkerPool/other of the same stream" in err
    assert not desk.output.exists()


def test_without_manifests_nothing_is_proven(desk: Desk) -> None:
    desk.plan('families: ["dc.{tool}.>"]')
    assert "plan.yaml:10:3: unproven-family: families need manifests" in desk(code=4).err


@pytest.mark.parametrize(
    ("patterns", "said"),
    [
        (["dc.tool"], '"dc.tool" has no wildcard'),
        (["dc.{tool}.{chamber}"], '"dc.{tool}.{chamber}" has no wildcard'),
        (["dc.x{tool}.>"], "has braces that are no whole token"),
        (["dc.{}.>"], "has braces that are no whole token"),
        (["dc.{a}.{a}.>"], "gives two tokens one name"),
        (["dc..>"], "has an empty token"),
        (["dc.>.x"], "has `>` before the last token"),
        (["dc.{tool}.>", "dc.*.x"], '"dc.*.x" meets dc.{tool}.>'),
        (["dc.a.>", "dc.a.>"], '"dc.a.>" meets dc.a.>'),
        ([".".join(["a", "*"] * 10)], "has more than 9 parts between wildcards"),
    ],
)
def test_a_wrong_declaration_is_refused_where_it_stands(desk: Desk, patterns: list[str], said: str) -> None:
    desk.families(*patterns)
    err = desk(code=4).err
    assert f"bad-family: {said}" in err or said in err
    assert re.search(r"plan\.yaml:10:\d+: bad-family", err)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (
            "dc.{tool}.>",
            {
                "dc.t.c": "dc.t.>",
                "dc.t.c.x": "dc.t.>",
                "dc.t": None,
                "dc.>": None,
                "dc.*.>": None,
                "ab.t.c": None,
                "dc.*a.c": "dc.*a.>",
            },
        ),
        ("dc.{tool}.*.x", {"dc.t.c.x": "dc.t.*.x", "dc.t.c.d.x": None, "dc.t.c.y": None}),
        ("a$.(b).*", {"a$.(b).c": "a$.(b).*", "aa.b.c": None}),
        ("ü.{x}.>", {"ü.ß\\1.c": "ü.ß\\1.>", "u.x.c": None}),
        ("*.b.{x}.*.>", {"a.b.c.d.e.f": "*.b.c.*.>", "a.b.c.d": None}),
        (">", {"a": ">", "a.b": ">"}),
    ],
)
def test_which_family_a_subject_belongs_to(pattern: str, expected: Mapping[str, str | None]) -> None:
    assert filters(pa.array([*expected]), [Family(pattern)]).to_pylist() == [*expected.values()]


TOKENS = st.sampled_from(["a", "b", "{x}", "{y}", "*"])
PATTERNS = st.tuples(st.lists(TOKENS, min_size=1, max_size=3), st.booleans()).map(
    lambda drawn: ".".join([*drawn[0], *([">"] if drawn[1] else [])])
)
SUBJECTS = st.lists(st.sampled_from(["a", "b", "c", "*", ">"]), min_size=1, max_size=4).map(".".join)


@settings(max_examples=300)
@given(st.lists(PATTERNS, max_size=4), st.lists(SUBJECTS, unique=True, max_size=30))
def test_no_two_filters_of_a_plan_meet(patterns: list[str], subjects: list[str]) -> None:
    wrong = {place for place, _ in problems(patterns)}
    declared = [Family(pattern) for place, pattern in enumerate(patterns) if place not in wrong]
    family = filters(pa.array(subjects, pa.string()), declared).to_pylist()
    good = [(subject, name) for subject, name in zip(subjects, family, strict=True) if is_literal(subject) or subject == name]
    written = sorted({name or subject for subject, name in good})
    assert all(covers(name, subject) for subject, name in good if name)
    assert not [pair for place, one in enumerate(written) for other in written[:place] if overlap(*(pair := (one, other)))]
    for name in {name for _, name in good if name}:
        assert [found for found in covering([name]) if found.filters(pa.array([name])).to_pylist() == [name]]


@pytest.mark.parametrize("kept", [True, False], ids=["table", "manifests"])
@pytest.mark.parametrize(("left", "passes"), [(100, True), (80, True), (76, False), (40, False)])
def test_the_gate_for_input_that_shrinks_knows_families_that_are_gone(desk: Desk, kept: bool, left: int, passes: bool) -> None:
    desk.families("dc.{tool}.>")
    desk()
    if not kept:
        (desk.output / "_plan" / "assignment.parquet").unlink()
    desk.partitions(left)
    gates = {gate["gate"]: gate for gate in desk.report("--dry-run", code=0 if passes else 3)["gates"]}
    assert gates["maxInputShrink"]["passed"] == passes
