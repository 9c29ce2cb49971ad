"""The command around the planner: what it prints, explains and asks for."""

from __future__ import annotations

import ast
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from reconciler.cli.app import run
from reconciler.cli.commands.partitions import _need_planner
from reconciler.cli.saying.terminal import Terminal
from reconciler.errors import UsageError
from reconciler.partitions.picture import svg
from tests.support.partitions.files import Desk

ROOM = Path(__file__).parents[2] / "reconciler"


def test_a_plan_is_told_in_a_few_lines(desk: Desk) -> None:
    ended = desk()
    assert ended.out.splitlines() == [
        "processor: 100 partitions on 4 workers",
        "  load      1.000 to 1.000 of the share",
        "  subjects  at most 25 of 500 on one worker",
        "  moved     0 partitions, 0.00% of the weight; 100 new",
        "  files     4 written, 0 unchanged, 0 pruned",
    ]
    assert "read 100 partitions and 4 workers" in ended.err


def test_the_report_has_a_version_and_keys_that_stay(desk: Desk) -> None:
    report = desk.report()
    assert (report["apiVersion"], report["kind"], report["version"]) == ("reconciler/v1", "PartitionReport", 1)
    part = report["pools"]["processor"]
    assert set(part["load"]) == {"max", "mean", "p99", "min", "maxOverLevel", "minOverLevel", "giants"}
    assert {"count", "weight", "fraction", "lowerBound", "ratio"} <= set(part["moved"])
    assert set(part["subjects"]) == {"max", "cap"}
    assert set(part["files"]) == {"written", "unchanged", "pruned"}
    assert set(report["seconds"]) == {"read", "previous", "plan", "render"}


def test_what_it_writes_is_valid(desk: Desk) -> None:
    desk()
    assert run(["validate", "-f", str(desk.root)], Terminal({})) == 0


def test_explain_says_why_what_holds_and_what_one_more_would_do(desk: Desk) -> None:
    desk.partitions(2000)
    desk()
    desk.workers("w-a", "w-b", "w-c", "w-d", "w-e")
    found = desk("--format", "json", command="explain").json
    assert (found["planned"], found["reasons"], found["heldBy"]) == (True, {"overload": 400}, [])
    assert found["oneMoreWorker"]["movedCount"] in range(330, 337)
    lines = desk(command="explain").out.splitlines()
    assert lines[:2] == ["the next plan would move:", lines[1]]
    assert lines[1].startswith("  400 × overload: was given away: its worker was over the trigger")
    assert lines[-1].startswith("one more worker: moves 33")


def test_explain_tells_of_the_last_plan_when_there_is_nothing_to_do(desk: Desk) -> None:
    desk()
    desk.partitions(101)
    desk()
    assert desk(command="explain").out.splitlines()[:2] == [
        "nothing would move; the last plan moved:",
        "  1 × new: is new: the plan before did not have it",
    ]
    assert "is new" in desk("--subject", "dc.tool25.chamber0", command="explain").out
    assert "stays where it was" in desk("--subject", "dc.tool1.chamber0", command="explain").out
    assert "there is no partition x" in desk("--subject", "x", code=1, command="explain").err


def test_explain_says_what_holds_a_plan_from_its_balance(desk: Desk) -> None:
    desk.partitions({f"s.{number}": weight for number, weight in enumerate([30, 30, 30, 30, 30, 1, 1, 1, 1])})
    desk()
    out = desk(command="explain").out
    assert "held by largePartitions: partitions are so large" in out


def test_explain_knows_when_there_is_no_room_for_more(desk: Desk) -> None:
    desk.table("partitions.csv", "subject,weight,pin", ["a,5,w-a", "b,1,", "c,1,"])
    found = desk("--format", "json", command="explain").json
    assert found["oneMoreWorker"]["possible"] is True


@pytest.mark.parametrize("count", [4, 30, 500])
def test_the_picture_is_light_and_well_formed(count: int) -> None:
    loads = [1 + (number % 7) / 100 for number in range(count)]
    drawn = svg(loads[: count // 2], loads, 0.1)
    assert len(drawn) < 20_000
    root = ET.fromstring(drawn)  # noqa: S314 - our own
    assert root.tag == "{http://www.w3.org/2000/svg}svg"


def test_explain_draws(desk: Desk) -> None:
    desk()
    desk.partitions(120)
    desk("--svg", str(desk.root / "load.svg"), command="explain")
    assert (desk.root / "load.svg").read_text().count("<rect") == 9


def test_a_missing_extra_is_said_with_the_line_that_installs_it() -> None:
    with pytest.raises(UsageError, match=r"needs xxhash: pip install 'jetstream-reconciler\[planner\]'"):
        _need_planner(lambda name: None if name == "xxhash" else object())


def test_a_thread_of_arrow_that_is_still_busy_does_not_change_how_it_ends(desk: Desk) -> None:
    desk()
    desk.partitions(10)
    command = [sys.executable, "-m", "tests.support.partitions.reading", "partitions", "plan", "-c", str(desk.root / "plan.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOM.parent)
    assert (done.returncode, done.stdout) == (3, ""), done
    assert done.stderr.splitlines()[-1].startswith("maxInputShrink: 10 partitions, 100 before"), done


def test_what_is_to_be_done_at_the_end_is_done(desk: Desk) -> None:
    code = "import atexit, reconciler.cli.app; atexit.register(print, 'done'); reconciler.cli.app.main()"
    asked = ["partitions", "plan", "-c", str(desk.root / "plan.yaml")]
    done = subprocess.run([sys.executable, "-c", code, *asked], capture_output=True, text=True, check=True)
    assert (done.stdout.splitlines()[0], done.stdout.splitlines()[-1]) == ("processor: 100 partitions on 4 workers", "done")


def test_nothing_outside_the_room_loads_its_libraries() -> None:
    code = "import sys, reconciler, reconciler.partitions, reconciler.cli.app, reconciler.cli.commands.partitions\n"
    code += "print(sorted({'numpy', 'pyarrow', 'pandas', 'pyspark', 'xxhash'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_planning_itself_reads_and_writes_nothing() -> None:
    impure = {"os", "pathlib", "time", "io", "subprocess", "tempfile", "random", "datetime", "logging", "socket", "shutil"}
    for path in (ROOM / "partitions" / "planning").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.split(".")[0] for name in names} & impure, path
