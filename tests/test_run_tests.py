"""The runner of the tests leaves nothing behind, however a run ends; and what it leaves out is proven by something it runs."""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests import conftest
from tests.support import promises
from tests.support.choice import every_day
from tools import run_tests

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 60.0
# Instead of pytest: writes a file, leaves a process in a session of its own behind, and tells who that is.
LEAKY = """
import os, pathlib, subprocess, sys, tempfile, time
pathlib.Path(tempfile.gettempdir(), "left").write_text("behind")
left = subprocess.Popen(["sleep", "1000"], start_new_session=True)
pathlib.Path(sys.argv[1]).write_text(f"{left.pid} {os.getpid()} {tempfile.gettempdir()}")
time.sleep(float(sys.argv[2]))
os._exit(0)
"""
RUN = """
import sys, tempfile
from pathlib import Path
from tools import run_tests
run_tests.MEMORY, tempfile.tempdir = Path("/nowhere"), sys.argv.pop()
run_tests._command = lambda asked: [sys.executable, "-c", *sys.argv[1:]]
run_tests._arguments = lambda own: None
sys.exit(run_tests.main())
"""


@contextmanager
def run_of(base: Path, seconds: float) -> Iterator[tuple[subprocess.Popen[str], list[int], Path]]:
    """A run under way: the runner, what it started, and its folder."""
    said = base / "said"
    command = [sys.executable, "-c", RUN, LEAKY, str(said), str(seconds), str(base)]
    runner = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    with runner:
        wait_for(lambda: said.exists() and len(said.read_text().split()) == 3)
        left, tests, folder = said.read_text().split()
        try:
            yield runner, [int(left), int(tests)], Path(folder)
        finally:
            runner.kill()


def wait_for(condition: Any) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status")
    try:
        return "State:\tZ" not in status.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_what_passing_tests_left_running_is_ended_named_and_fails_the_run(tmp_path: Path) -> None:
    with run_of(tmp_path, 0.0) as (runner, pids, folder):
        _, err = runner.communicate(timeout=SECONDS)
    assert runner.returncode == 1
    assert "still running when the tests were over: sleep" in err
    assert not [pid for pid in pids if is_running(pid)]
    assert not folder.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=["SIGINT", "SIGTERM", "SIGHUP"])
def test_an_interrupted_run_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    with run_of(tmp_path, SECONDS) as (runner, pids, folder):
        assert folder.is_dir()
        runner.send_signal(number)
        assert runner.wait(SECONDS) == 128 + number
    assert not [pid for pid in pids if is_running(pid)]
    assert not folder.exists()


def test_after_a_run_that_was_killed_the_next_one_removes_its_folder(tmp_path: Path) -> None:
    with run_of(tmp_path, SECONDS) as (runner, pids, folder):
        runner.kill()
        runner.wait()
        wait_for(lambda: not is_running(pids[1]))
    assert folder.is_dir()
    (tmp_path / "said").unlink()
    with run_of(tmp_path, SECONDS) as (_, more, another):
        assert not folder.exists()
        assert another.is_dir()
        os.kill(more[0], signal.SIGKILL)
    os.kill(pids[0], signal.SIGKILL)  # in a session of its own, and nobody was there any more who could have ended it


def test_a_folder_of_a_run_that_goes_on_is_left_alone(tmp_path: Path) -> None:
    with run_of(tmp_path, SECONDS) as (first, _, folder):
        (tmp_path / "said").unlink()
        with run_of(tmp_path, 0.0) as (second, _, _):
            second.wait(SECONDS)
        assert folder.is_dir()
        first.terminate()
        first.wait(SECONDS)


@pytest.mark.parametrize("asked", ["plan", "tests/plan", "plan/test_order.py::test_x"])
def test_a_room_is_found_by_its_name_or_a_path(asked: str) -> None:
    assert run_tests._path(asked).startswith("tests/plan")


def test_a_room_that_is_not_there_is_told_with_those_that_are() -> None:
    with pytest.raises(SystemExit, match=r"there are no tests in 'plain'; a room .*plan"):
        run_tests._path("plain")


def test_tests_of_a_group_run_in_one_process() -> None:
    """Those on Spark share a session, those of a module its cluster: else each process would start one of its own."""
    asked = run_tests._arguments(["--side-by-side", "2", "partitions/spark/test_messages.py"])
    command = [*run_tests._command(asked), "-v", "-k", "java"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=2 * SECONDS, check=False)
    processes = re.findall(r"^\[(gw\d)\] .*(?:PASSED|SKIPPED) ", ended.stdout, re.MULTILINE)
    assert len(processes) > 2, ended.stdout
    assert len(set(processes)) == 1, ended.stdout


# -- what is left out -----------------------------------------------------------------------------------------------------------


def test_what_only_the_long_run_has_names_a_test_of_the_short_one_that_proves_the_same() -> None:
    functions, long = set[str](), dict[str, str]()
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        constants = {ast.unparse(node.targets[0]): node.value for node in tree.body if isinstance(node, ast.Assign)}
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                name = f"{path.relative_to(ROOT)}::{node.name}"
                functions.add(name)
                for also in (also for decorator in node.decorator_list for also in _named(decorator, constants)):
                    long[name] = also
    assert long
    assert {name: also for name, also in long.items() if also not in functions or (also in long and also != name)} == {}


def _named(decorator: ast.expr, constants: Mapping[str, ast.expr]) -> Iterator[str]:
    """What a `thorough` in it, on the function or on one of its cases, names."""
    for node in ast.walk(decorator):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.thorough":
            also = next((each.value for each in node.keywords if each.arg == "also"), ast.Constant(""))
            yield str(ast.literal_eval(constants.get(ast.unparse(also), also)))


def item(name: str, *marks: str, **params: object) -> Any:
    """As much of a collected test as the choice looks at."""
    callspec = {"callspec": SimpleNamespace(params=params)} if params else {}
    return SimpleNamespace(nodeid=name, get_closest_marker=lambda mark: mark if mark in marks else None, **callspec)


def test_of_a_diagonal_each_value_occurs_and_few_cases_are_taken() -> None:
    cases = [item(f"t[{a}-{b}]", "diagonal", a=a, b=b) for a in range(5) for b in "xyz"]
    chosen: list[Any] = list(every_day(cases))
    assert {one.callspec.params["a"] for one in chosen} == set(range(5))
    assert {one.callspec.params["b"] for one in chosen} == set("xyz")
    assert len(chosen) == 5
    assert chosen == list(every_day(list(cases)))


def test_what_is_thorough_is_left_out_and_everything_else_is_kept() -> None:
    plain = [item("a"), *(item(f"c[{x}-{y}]", x=x, y=y) for x in (1, 2) for y in (1, 2))]
    assert list(every_day([*plain, item("b", "thorough")])) == plain


# -- what has to be seen --------------------------------------------------------------------------------------------------------


def whole_run(monkeypatch: pytest.MonkeyPatch, missing: set[str]) -> Any:
    """The end of a run of everything, in which these promises were seen nowhere."""
    monkeypatch.setattr(promises, "all_promises", lambda: {"reason seen", *missing})
    monkeypatch.setattr(promises, "seen", lambda: {"reason seen"})
    option = SimpleNamespace(keyword="", markexpr="", collectonly=False)
    config = SimpleNamespace(args=["tests"], getini=lambda _: ["tests"], option=option, stash=pytest.Stash())
    session = SimpleNamespace(config=config, testsfailed=0, exitstatus=0)
    conftest.pytest_sessionfinish(cast(pytest.Session, session))
    return session


@pytest.mark.parametrize(("missing", "status"), [(set[str](), 0), ({"reason never-seen"}, 1)])
def test_a_whole_run_fails_when_a_promise_was_seen_nowhere(
    monkeypatch: pytest.MonkeyPatch, missing: set[str], status: int
) -> None:
    assert int(whole_run(monkeypatch, missing).exitstatus) == status


def test_every_reason_has_a_name_that_the_promises_know() -> None:
    unnamed = []
    for path in (ROOT / "reconciler").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "Reason":
                named = node.args and ast.unparse(node.args[0])
                if not named or not (isinstance(node.args[0], ast.Constant) or "_LOSS" in named):
                    unnamed.append(f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)[:60]}")
    assert [one for one in unnamed if "person.code" not in one] == []


def test_a_field_of_a_plan_is_no_reason() -> None:
    promises.saw_output("        made-up: 1 → 3\n        no-such-reason: it says why\n          way out: do this\n")
    assert "reason made-up" not in promises.seen()
    assert "reason no-such-reason" in promises.seen()
    promises._seen.discard("reason no-such-reason")


def test_a_procedure_counts_when_it_was_applied_to_its_end() -> None:
    change = {"procedure": {"name": "no-such-procedure"}, "result": "unfinished"}
    promises.saw_document({"changes": [change, {**change, "result": None}, {"procedure": "no-such-procedure"}]})
    assert "procedure no-such-procedure" not in promises.seen()
    promises.saw_document({"changes": [{**change, "result": "applied"}]})
    assert "procedure no-such-procedure" in promises.seen()
    promises._seen.discard("procedure no-such-procedure")
