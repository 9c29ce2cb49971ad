"""The mutants stay where they belong, and `tools.mutants` tells killed from survived, and both from what it cannot know."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tools.mutants.__main__ import ROOT, main
from tools.mutants.data import BadData, Mutant, load
from tools.mutants.workshop import Workshop

MUTANTS = load(ROOT / "tools" / "mutants")
SUBJECTS = {"guard", "losses", "order", "marks", "procedures", "lease", "echo", "backoff"}
CODE = (
    "def most(a, b):\n    return a if a > b else b\n\n\nclass Least:\n    def of(self, a, b):\n        return a if a < b else b\n"
)
TESTS = (
    "import time\nfrom product import Least, most\n\n\n"
    "def test_most():\n    assert most(1, 2) == 2\n\n\n"
    "def test_same():\n    assert most(2, 2) == 2\n\n\n"
    "def test_slow():\n    time.sleep(60 if most(1, 2) == 1 else 0)\n"
)


# -- what is kept ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_each_is_where_it_belongs_and_changes_what_the_code_does(mutant: Mutant) -> None:
    mutant.made_in((ROOT / mutant.file).read_text(encoding="utf-8"))
    for killer in mutant.killers:
        path, _, test = killer.partition("::")
        text = (ROOT / path).read_text(encoding="utf-8")
        assert not test or f"def {test}(" in text, f"there is no {killer}"


def test_there_are_enough_of_them_and_some_for_every_subject() -> None:
    found = Counter(mutant.subject for mutant in MUTANTS)
    assert found.total() >= 40
    assert {subject: found[subject] for subject in SUBJECTS if found[subject] < 3} == {}


# -- the tool --------------------------------------------------------------------------------------------------------------------


def table(name: str, **fields: Any) -> str:
    """One mutant of the small checkout; by default one that its killer notices."""
    usual = {"file": "product.py", "place": "most", "from": "a > b", "to": "a < b", "killers": ["test_product.py::test_most"]}
    rows = {"name": name, **usual, **fields}
    return "[[mutant]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in rows.items())


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small checkout with two files, and a temporary folder of its own in which nothing may be left."""
    root, temporary = tmp_path / "checkout", tmp_path / "temporary"
    (root / "tools" / "mutants").mkdir(parents=True)
    temporary.mkdir()
    (root / "product.py").write_text(CODE, encoding="utf-8")
    (root / "test_product.py").write_text(TESTS, encoding="utf-8")
    subprocess.run(["git", "init", "--quiet", str(root)], check=True)
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    return root


def keep(checkout: Path, *tables: str) -> None:
    """These are the mutants of the checkout."""
    (checkout / "tools" / "mutants" / "some.toml").write_text("\n".join(tables), encoding="utf-8")


def left(checkout: Path) -> list[str]:
    """What was left behind."""
    return [str(path) for path in (checkout.parent / "temporary").iterdir()]


def test_killed_is_told_with_the_test_that_did_it(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(checkout, table("the least is called the most"))
    assert main([], checkout) == 0
    out = capsys.readouterr().out
    assert "some: the least is called the most: killed by test_product.py::test_most" in out
    assert out.endswith("1 killed, 0 survived, 0 in error\n")
    assert (checkout / "product.py").read_text(encoding="utf-8") == CODE
    assert left(checkout) == []


def test_a_survivor_is_told_and_so_are_the_others(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    same = {"place": "Least.of", "from": "a < b", "to": "a <= b"}
    keep(checkout, table("one"), table("two", **same), table("three"))
    assert main(["one", "two", "--json"], checkout) == 1
    rows = json.loads(capsys.readouterr().out)
    assert [(row["name"], row["fate"], row["by"]) for row in rows] == [
        ("one", "killed", "test_product.py::test_most"),
        ("two", "survived", ""),
    ]
    assert left(checkout) == []


def test_what_its_killers_do_not_notice_all_tests_look_for(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    option = 'def pytest_addoption(parser): parser.addoption("--all", action="store_true")'
    (checkout / "conftest.py").write_text(option, encoding="utf-8")
    keep(checkout, table("one", killers=["test_product.py::test_same"]))
    assert main([], checkout) == 1
    assert main(["--whole", "--jobs", "1"], checkout) == 0
    assert "its killers did not notice" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"to": "a >"}, "what it makes is no Python"),
        ({"to": "(a > b)"}, "it changes nothing"),
        ({"from": "a"}, "stands there 3 times, not once"),
        ({"from": "gone"}, "stands there 0 times, not once"),
        ({"place": "least"}, "its place is gone"),
        ({"file": "gone.py"}, "there is no file gone.py"),
        ({"killers": []}, "`killers` is a list"),
        ({"killers": ["test_product.py::test_gone"]}, "the killers do not pass although no mistake was made"),
        ({"more": "x"}, "and not"),
    ],
)
def test_what_cannot_be_made_or_is_not_looked_for_fails_the_tool(
    checkout: Path, capsys: pytest.CaptureFixture[str], fields: dict[str, Any], said: str
) -> None:
    keep(checkout, table("one", **fields))
    assert main([], checkout) == 2
    assert said in capsys.readouterr().err
    assert left(checkout) == []


def test_a_test_that_cannot_be_collected_has_killed_nothing(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(checkout, table("one", **{"place": "Least", "from": "class Least:", "to": "class Other:"}))
    assert main([], checkout) == 1
    assert "0 killed, 0 survived, 1 in error" in capsys.readouterr().out


def test_what_takes_too_long_has_killed_nothing(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(checkout, table("one", killers=["test_product.py::test_slow"]))
    assert main(["--limit", "3"], checkout) == 1
    assert "0 killed, 0 survived, 1 in error (1 timed out)" in capsys.readouterr().out
    assert left(checkout) == []


def test_two_of_one_name_and_what_nobody_has_are_refused(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(checkout, table("one"), table("one"))
    assert main(["--list"], checkout) == 2
    keep(checkout, table("one"), table("two"))
    assert main(["three"], checkout) == 2
    assert "there is no mutant 'three'" in capsys.readouterr().err
    assert main(["--list", "two"], checkout) == 0
    assert capsys.readouterr().out == "some: two\n"


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_no_folder_and_no_process(checkout: Path, sign: signal.Signals) -> None:
    keep(checkout, table("one", killers=["test_product.py::test_slow"]))
    temporary = checkout.parent / "temporary"
    code = "import sys, pathlib; from tools.mutants.__main__ import main; sys.exit(main([], pathlib.Path(sys.argv[1])))"
    environment = {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(checkout)],
        env=environment,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509 - in the background it is off
    )
    try:
        over = time.monotonic() + 30
        while not _mistaken(temporary) and time.monotonic() < over:
            time.sleep(0.02)
        process.send_signal(sign)
        assert process.wait(20) == 130
    finally:
        process.kill()
    assert left(checkout) == []
    assert [line for line in _commands() if str(temporary) in line] == []


def _mistaken(temporary: Path) -> bool:
    """Whether the mistake is made by now, and looked for."""
    return any("a < b else b\n\n\n" in path.read_text(encoding="utf-8") for path in temporary.glob("*/tree/product.py"))


def _commands() -> list[str]:
    """Where the processes of this machine are at work."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cwd"):
        try:
            found.append(str(entry.readlink()))
        except OSError:
            continue
    return found


def test_a_place_is_found_by_its_name_alone() -> None:
    def made(place: str, before: str, after: str) -> str:
        return Mutant("some", "one", "product.py", place, before, after, ("x",)).made_in(CODE)

    assert made("Least.of", "a < b", "a > b") == CODE.replace("a < b", "a > b")
    with pytest.raises(BadData, match="stands there 0 times"):
        made("most", "a < b", "a > b")
    twice = Mutant("some", "one", "x.py", "LIMIT", "1", "2", ("x",))
    assert twice.made_in("LIMIT = 1\nOTHER = 1\n") == "LIMIT = 2\nOTHER = 1\n"
    with pytest.raises(BadData, match="there are 2 places of that name"):
        twice.made_in("LIMIT = 1\nLIMIT = 3\n")


def test_what_a_copy_holds_is_what_git_would_hold(checkout: Path) -> None:
    (checkout / ".gitignore").write_text("ignored\n", encoding="utf-8")
    (checkout / "ignored").write_text("x", encoding="utf-8")
    with Workshop.of(checkout) as workshop:
        assert sorted(path.name for path in workshop.tree.iterdir()) == [".gitignore", "product.py", "test_product.py"]
        assert asyncio.run(workshop.pytest(["test_product.py::test_most"], 30)).code == 0
    assert left(checkout) == []
