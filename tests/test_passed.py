"""Of what `make test` has passed, `make test-all` runs again only what it runs more of."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support import choice, passed


def test_names_are_the_same_with_and_without_a_group() -> None:
    assert passed.name_of("tests/a.py::test_x[1-b]") == "tests/a.py::test_x[1-b]"
    assert passed.name_of("tests/a.py::test_x[1-b]@cluster of tests/a.py") == "tests/a.py::test_x[1-b]"


def test_what_passed_is_read_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECONCILER_PASSED", str(tmp_path / "passed"))
    assert passed.read() == frozenset()
    reports = [SimpleNamespace(nodeid=f"tests/a.py::test_{when}", when=when) for when in ("setup", "call", "teardown")]
    passed.write(reports)
    assert passed.read() == {"tests/a.py::test_call"}
    assert set(json.loads((tmp_path / "passed").read_text())) == {"passed", "promises"}


@pytest.mark.parametrize(
    ("names", "same"), [({}, True), ({"examples": choice.examples}, False), ({"few": choice.some}, False), ({"x": len}, True)]
)
def test_a_module_that_chooses_is_run_again(names: dict[str, object], *, same: bool) -> None:
    item = SimpleNamespace(module=SimpleNamespace(**names))
    assert passed.is_the_same(item) == same  # type: ignore[arg-type]
