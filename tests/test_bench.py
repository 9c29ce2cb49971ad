"""`make bench` runs, says what it found line by line, and fails when a limit does not hold."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.skipped import NO_SPARK
from tools.bench import __main__ as bench
from tools.bench.measure import Measure
from tools.bench.partitions.spark import missing, on_spark

ROOT = Path(__file__).resolve().parent.parent
KEYS = ["measure", "value", "unit", "ratio", "limit", "ok"]


GROUPS = {
    "loading": ["loading"],
    "passes": ["no-op pass, first", "no-op pass, later", "no-op pass, requests", "memory"],
    "commands": ["reconciler --help", "reconciler plan", "reconciler validate", "reconciler apply"],
    "creating": ["creating"],
    "writes": ["updating", "daemon latency, a commit edits", "daemon latency, a commit creates"],
    "trouble": ["daemon latency, 50 streams", "daemon, a commit a second"],
    "listing": ["listing"],
    "audit": ["API audit"],
    "latency": ["daemon latency"],
    "daemon": ["daemon pass", "daemon memory", "daemon churn"],
    "sourcing": ["sourcing, first message", "sourcing, ephemeral to managed", "sourcing, managed to ephemeral"],
    "partitions": ["partition moves", "partition load", "partition plan of", "planning", "memory of planning", "manifests of"],
    "spark": [
        "planning with Spark",
        "partition moves, by Spark",
        "partition load, by Spark",
        "memory of",
        "the command",
        "manifests of",
    ],
}
NEEDS_SPARK = pytest.mark.thorough(also="tests/test_bench.py::test_without_java_the_lines_of_spark_are_left_out")


def test_every_group_is_run() -> None:
    with pytest.raises(SystemExit, match=re.escape(f"(there are {', '.join(GROUPS)})")):
        bench.main(["nothing"])


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("group", [pytest.param(name, marks=NEEDS_SPARK) if name == "spark" else name for name in GROUPS])
def test_every_measure_runs(group: str, tmp_path: Path) -> None:
    lack = missing() if group == "spark" else ""
    if lack and not os.environ.get("CI"):
        pytest.skip(f"{NO_SPARK}{lack}")
    environment = {**os.environ, "QUICK": "tiny", "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "tools.bench", group]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [list(line)[: len(KEYS)] for line in lines] == [KEYS] * len(lines)
    assert [name for name in GROUPS[group] if not any(line["measure"].startswith(name) for line in lines)] == []
    assert list(tmp_path.iterdir()) == []


def test_without_java_the_lines_of_spark_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    (only,) = on_spark(tmp_path / "scratch", ((20_000, 40),), 1)
    assert only.ok
    assert re.search("Java 17|pyspark is not installed", str((only.detail or {})["skipped"]))


@pytest.mark.parametrize(("ok", "code"), [(True, 0), (False, 1)])
def test_a_limit_that_does_not_hold_fails_the_run(ok: bool, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Measure(measure="something", value=2.0, unit="s", limit=1.0, ok=ok)
    monkeypatch.setattr(bench, "_all", lambda *_: iter([found]))
    monkeypatch.delenv("QUICK", raising=False)
    assert bench.main() == code
