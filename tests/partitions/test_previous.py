"""An earlier plan that somebody else keeps, and plans that begin from nothing."""

from __future__ import annotations

from pathlib import Path

from reconciler.partitions.output.text import worker_file
from tests.support.partitions.files import Desk


def owners(desk: Desk) -> dict[str, str]:
    """Who has which subject, from the manifests that count: the file of a worker that is gone is still there."""
    found = {}
    index = (desk.output / "_index.yaml").read_text()
    for path in (path for path in desk.output.glob("w-*.yaml") if f'"{path.name}"' in index):
        for line in path.read_text().splitlines():
            if line.startswith("    - "):
                found[line[7:-1]] = Path(path).stem[2:]
    return found


def test_a_table_says_what_was(desk: Desk) -> None:
    before = {f"dc.tool{n // 4}.chamber{n % 4}": ("w-a", "w-b", "w-c", "w-d")[n % 4] for n in range(100)}
    desk.table("before.csv", "topic,who", [f"{subject},{worker}" for subject, worker in before.items()])
    desk.plan("previous: {format: csv, path: before.csv, columns: {subject: topic, worker: who}}")
    assert desk.report()["pools"]["processor"]["moved"]["count"] == 0
    assert owners(desk) == before


def test_a_table_that_says_two_things_is_refused(desk: Desk) -> None:
    desk.table("before.csv", "subject,worker", ["a,w-a", "a,w-b", "b,"])
    desk.plan("previous: {format: csv, path: before.csv}")
    err = desk(code=4).err
    assert 'duplicate-subject: 1 row with a subject that has more than one worker: "a"' in err
    assert "null-worker: 1 row without worker" in err


def test_none_begins_from_nothing(desk: Desk) -> None:
    desk()
    desk.plan("previous: none")
    part = desk.report()["pools"]["processor"]
    assert (part["moved"]["count"], part["moved"]["new"]) == (0, 100)


def test_a_worker_that_is_gone_gives_its_partitions_away_and_nobody_else_does(desk: Desk) -> None:
    desk.plan("gates: {maxMovedFraction: 0.3}")
    desk()
    before = owners(desk)
    desk.workers("w-a", "w-b", "w-d")
    assert desk.report()["pools"]["processor"]["moved"]["reasons"] == {"absent": 25}
    after = owners(desk)
    assert {subject for subject in before if before[subject] != after[subject]} == {
        s for s, worker in before.items() if worker == "w-c"
    }


def test_units_stay_together_where_most_of_them_was(desk: Desk) -> None:
    desk.table("before.csv", "subject,worker", ["s.0,w-a", "s.1,w-b", "s.2,w-b"])
    desk.table("partitions.csv", "subject,weight,unit", ["s.0,1,u", "s.1,1,u", "s.2,1,u"])
    desk.plan("previous: {format: csv, path: before.csv}", "gates: {maxMovedFraction: 1}")
    assert desk.report()["pools"]["processor"]["moved"]["reasons"] == {"unit": 1}
    assert set(owners(desk).values()) == {"w-b"}


def test_zones_are_a_rule(desk: Desk) -> None:
    desk.workers("w-a,east", "w-b,west", header="worker,zone")
    desk.table("partitions.csv", "subject,weight,zone", [f"s.{n},1,{'east' if n < 30 else 'west'}" for n in range(40)])
    desk()
    assert {subject: worker for subject, worker in owners(desk).items() if worker == "w-b"}.keys() == {
        f"s.{n}" for n in range(30, 40)
    }


def test_a_zone_without_room_is_an_error(desk: Desk) -> None:
    desk.workers("w-a,east", "w-b,west", header="worker,zone")
    desk.plan("maxSubjects: 20")
    desk.table("partitions.csv", "subject,weight,zone", [f"s.{n},1,east" for n in range(30)])
    assert "20 of 30 partitions that need a worker fit" in desk(code=3).err


def test_names_of_files_are_safe() -> None:
    assert worker_file("_a") == "w-_a.yaml"


def test_files_of_other_names_say_whose_they_are(desk: Desk) -> None:
    desk()
    before = owners(desk)
    text = (desk.output / "_index.yaml").read_text()
    (desk.output / "w-w-a.yaml").rename(desk.output / "elsewhere.yaml")
    (desk.output / "_index.yaml").write_text(text.replace("w-w-a.yaml", "elsewhere.yaml"))
    assert desk.report()["pools"]["processor"]["moved"]["count"] == 0
    assert owners(desk) == before


def test_a_report_of_another_plan_says_nothing(desk: Desk) -> None:
    desk.plan("balance: {maxMoved: 0.1}")
    desk()
    desk.workers("w-a", "w-b", "w-c", "w-d", "w-e")
    assert desk.report()["staged"]["filling"] == ["w-e"]
    path = desk.output / "_plan" / "report.json"
    path.write_text(path.read_text().replace('"files": "', '"files": "0'))
    assert desk.report()["pools"]["processor"]["workers"]["new"] == 0
