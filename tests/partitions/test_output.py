"""What is written, and what happens when it is interrupted, edited or repeated."""

from __future__ import annotations

import ctypes
import hashlib

import pyarrow.parquet as pq
import pytest
import yaml

from reconciler.errors import Refused
from reconciler.manifests.files.loader import Loader
from reconciler.partitions.output import tree
from reconciler.partitions.output.text import quoted_text
from tests.support.partitions.files import Desk

POOL = """apiVersion: reconciler/v1
kind: WorkerPool
metadata: {name: processor}
spec: {stream: DC}
---
apiVersion: reconciler/v1
kind: Stream
metadata: {name: DC}
spec: {subjects: ["dc.>"]}
"""


def index(desk: Desk) -> dict[str, object]:
    spec = yaml.safe_load((desk.output / "_index.yaml").read_text())["spec"]
    return {file["path"]: file["sha256"] for file in spec["files"]} | {"generation": spec["generation"]}


def test_what_is_written_is_what_the_manifests_say(desk: Desk) -> None:
    desk()
    (desk.root / "manifests" / "pool.yaml").write_text(POOL)
    loaded = Loader().load([str(desk.root)])
    (pool,) = loaded.desired.pools.values()
    assert sorted(pool.workers) == ["w-a", "w-b", "w-c", "w-d"]
    assert sorted(pool.subjects) == sorted(f"dc.tool{n // 4}.chamber{n % 4}" for n in range(100))
    assert [problem.code for problem in loaded.warnings] == []
    listed = index(desk)
    assert listed.pop("generation") == 1
    assert listed == {path: hashlib.sha256((desk.output / path).read_bytes()).hexdigest() for path in listed}


def test_an_unchanged_plan_writes_nothing(desk: Desk) -> None:
    desk()
    before = {path: (desk.output / path).stat().st_ino for path in desk.files()}
    report = desk.report()
    assert (report["changed"], report["generation"]) == (False, 1)
    assert report["pools"]["processor"]["files"] == {"written": 0, "unchanged": 4, "pruned": 0}
    assert {path: (desk.output / path).stat().st_ino for path in desk.files()} == before


def test_a_new_worker_is_filled_and_unchanged_files_stay_the_same_file(desk: Desk) -> None:
    desk.partitions(2000)
    desk.workers(*(f"w-{number}" for number in range(25)))
    desk()
    desk.workers(*(f"w-{number}" for number in range(26)))
    part = desk.report()["pools"]["processor"]
    assert part["moved"]["count"] == 76  # 76.9 are the share
    assert part["load"]["min"] > 0.98
    assert part["moved"]["reasons"] == {"fill": 76}
    assert index(desk)["generation"] == 2
    moves = pq.read_table(desk.output / "_plan" / "moves.parquet").to_pylist()
    assert {move["to"] for move in moves} == {"w-25"}


def test_only_the_files_of_a_move_change(desk: Desk) -> None:
    desk.partitions({f"s.{number}": 1 for number in range(40)})
    desk()
    before = desk.manifests()
    desk.partitions({f"s.{number}": 1 for number in range(41)})
    desk()
    after = desk.manifests()
    assert len([path for path in after if after[path] != before[path]]) == 2  # one worker, and the index


def test_the_order_of_the_tables_means_nothing(desk: Desk) -> None:
    weights = {f"s.{number}": number % 7 + 1 for number in range(100)}
    desk.partitions(weights)
    first = desk.report()
    written = desk.manifests()
    for path in sorted(desk.output.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    desk.partitions(dict(reversed(weights.items())))
    desk.workers("w-d", "w-c", "w-b", "w-a")
    second = desk.report()
    assert desk.manifests() == written
    assert {name: part for name, part in first.items() if name != "seconds"} == {
        name: part for name, part in second.items() if name != "seconds"
    }


def test_without_the_table_the_manifests_say_what_was(desk: Desk) -> None:
    desk()
    for path in (desk.output / "_plan").iterdir():
        path.unlink()
    report = desk.report()
    assert (report["previous"], report["changed"]) == ("manifests", False)


@pytest.mark.parametrize("damage", ["assignment.parquet", "report.json"])
def test_a_damaged_table_is_no_truth(desk: Desk, damage: str) -> None:
    desk()
    (desk.output / "_plan" / damage).write_bytes(b"nonsense")
    assert desk.report()["previous"] == "manifests"


def test_a_table_of_other_rows_is_no_truth(desk: Desk) -> None:
    desk()
    path = desk.output / "_plan" / "assignment.parquet"
    pq.write_table(pq.read_table(path).slice(1), path)
    assert desk.report()["previous"] == "manifests"


def test_an_edited_file_is_written_anew_only_when_forced(desk: Desk) -> None:
    desk()
    path = desk.output / "w-w-a.yaml"
    written = path.read_bytes()
    path.write_bytes(written.replace(b"\n", b"\r\n"))
    assert "edited: changed since they were written: w-w-a.yaml" in desk(code=3).err
    desk("--force", "edited")
    assert path.read_bytes() == written


def test_a_stranger_in_the_way_is_not_overwritten(desk: Desk) -> None:
    desk()
    desk.workers("w-a", "w-b", "w-c", "w-d", "w-e")
    (desk.output / "w-w-e.yaml").write_text("mine\n")
    assert "w-w-e.yaml" in desk(code=3).err
    assert (desk.output / "w-w-e.yaml").read_text() == "mine\n"


def test_files_of_workers_that_are_gone_leave_the_index_at_once_and_the_disk_with_prune(desk: Desk) -> None:
    desk.plan("gates: {maxMovedFraction: 1}")
    desk()
    (desk.output / "README").write_text("kept")
    desk.workers("w-a", "w-b", "w-c")
    desk()
    assert "w-w-d.yaml" not in index(desk)
    assert (desk.output / "w-w-d.yaml").exists()
    assert desk.report("--prune")["pools"]["processor"]["files"]["pruned"] == 1
    assert not (desk.output / "w-w-d.yaml").exists()
    assert (desk.output / "README").read_text() == "kept"


def test_a_draining_worker_keeps_its_file_and_loses_its_subjects(desk: Desk) -> None:
    desk.plan("gates: {maxMovedFraction: 1}")
    desk.workers("w-a,active", "w-b,active", "w-c,active", "w-d,active", header="worker,state")
    desk()
    desk.workers("w-a,active", "w-b,active", "w-c,active", "w-d,draining", header="worker,state")
    report = desk.report()
    assert report["pools"]["processor"]["moved"]["reasons"] == {"draining": 25}
    assert (desk.output / "w-w-d.yaml").read_bytes().endswith(b"  filterSubjects: []\n")


def test_a_budget_drains_in_stages(desk: Desk) -> None:
    desk.plan("balance: {maxMoved: 0.1}")
    desk()
    desk.workers("w-a,active", "w-b,active", "w-c,active", "w-d,draining", header="worker,state")
    moved = [desk.report()["pools"]["processor"]["moved"]["count"] for _ in range(4)]
    assert moved == [10, 10, 5, 0]


def test_a_budget_goes_on_filling_a_new_worker(desk: Desk) -> None:
    desk.plan("balance: {maxMoved: 0.1}")
    desk()
    desk.workers("w-a", "w-b", "w-c", "w-d", "w-e")
    reports = [desk.report() for _ in range(3)]
    assert [report["pools"]["processor"]["moved"]["count"] for report in reports] == [10, 10, 0]
    assert [report["staged"]["filling"] for report in reports] == [["w-e"], [], []]


def test_a_dry_run_shows_moves_and_difference_and_writes_nothing(desk: Desk) -> None:
    desk()
    desk.partitions(101)
    before = desk.files()
    out = desk("--dry-run").out
    assert desk.files() == before
    assert '+    - "dc.tool25.chamber0"' in out
    assert "--- a/processor/_index.yaml" in out
    assert ": +1 -0" in out


def test_a_directory_of_another_pool_is_refused(desk: Desk) -> None:
    desk()
    desk.plan(instead={"pool: processor": "pool: other"})
    assert "another-pool: this directory belongs to the pool processor" in desk(code=4).err


@pytest.mark.parametrize("text", ["a", 'q"b\\', "ü.ß", "a\u200bb", "\u0085", "\U0001f600", "\ufeff", "*", "- a: b", "no"])
def test_any_text_is_read_back_from_yaml(text: str) -> None:
    assert yaml.safe_load(quoted_text(text)) == text


def test_a_linked_output_is_swapped(desk: Desk) -> None:
    real = desk.root / "elsewhere"
    real.mkdir()
    desk.output.parent.mkdir()
    desk.output.symlink_to(real)
    desk()
    assert desk.output.is_symlink()
    assert "w-w-a.yaml" in desk.files()
    desk.partitions(101)
    desk()
    assert len([path for path in desk.root.iterdir() if path.is_dir()]) == 2  # manifests, and one tree behind the link


def test_where_nothing_can_be_exchanged_it_is_refused(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk()

    class Refusing:
        def renameat2(self, *_: object) -> int:
            ctypes.set_errno(22)
            return -1

    monkeypatch.setattr(tree, "_LIBC", Refusing())
    desk.partitions(101)
    before = desk.files()
    assert "cannot exchange two directories in one step" in desk(code=3).err
    assert desk.files() == before


def test_one_planner_at_a_time(desk: Desk) -> None:
    desk()
    with tree.claimed(desk.output), pytest.raises(Refused, match="another planner"), tree.claimed(desk.output):
        pass


def test_what_a_killed_run_has_left_goes_although_there_is_nothing_to_write(desk: Desk) -> None:
    desk()
    left = desk.output.parent / ".processor.next"
    (left / "_plan").mkdir(parents=True)
    (left / "w-w-a.yaml").write_text("half")
    desk("--dry-run")
    assert left.exists()
    assert desk.report()["changed"] is False
    assert not left.exists()
