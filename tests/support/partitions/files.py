"""A directory with tables and a plan, and the command that is run on it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from reconciler.cli.app import run
from reconciler.cli.saying.terminal import Terminal

PLAN = """apiVersion: reconciler/v1
kind: PartitionPlan
metadata: {name: processor}
spec:
  pool: processor
  stream: DC
  partitions: {format: csv, path: partitions.csv}
  workers: {format: csv, path: workers.csv}
  output: manifests/processor
"""

POOLS = """apiVersion: reconciler/v1
kind: Stream
metadata: {name: DC}
spec: {subjects: ["dc.>"]}
---
apiVersion: reconciler/v1
kind: WorkerPool
metadata: {name: processor}
spec: {stream: DC}
---
apiVersion: reconciler/v1
kind: WorkerPool
metadata: {name: other}
spec:
  stream: DC
  workers: [{id: w, filterSubjects: [OTHER]}]
"""


@dataclass(frozen=True)
class Ended:
    """What a command said, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its stdout as the one JSON document it has to be."""
        return json.loads(self.out)


@dataclass
class Desk:
    """Where a data engineer works."""

    root: Path
    capsys: pytest.CaptureFixture[str]

    @property
    def output(self) -> Path:
        """The generated directory."""
        return self.root / "manifests" / "processor"

    def table(self, name: str, header: str, rows: Sequence[str]) -> None:
        """Writes a CSV file."""
        (self.root / name).write_text("".join(f"{line}\n" for line in (header, *rows)), encoding="utf-8")

    def partitions(self, weights: Mapping[str, object] | int) -> None:
        """Subjects with weights, or so many equal ones."""
        given = {f"dc.tool{n // 4}.chamber{n % 4}": 1 for n in range(weights)} if isinstance(weights, int) else weights
        self.table("partitions.csv", "subject,weight", [f"{subject},{weight}" for subject, weight in given.items()])

    def workers(self, *names: str, header: str = "worker") -> None:
        """Workers, a line each."""
        self.table("workers.csv", header, names)

    def plan(self, *more: str, instead: Mapping[str, str] | None = None) -> None:
        """The plan, with more lines of its spec, or with some replaced."""
        text = PLAN
        for old, new in (instead or {}).items():
            assert old in text
            text = text.replace(old, new)
        (self.root / "plan.yaml").write_text(text + "".join(f"  {line}\n" for line in more), encoding="utf-8")

    def families(self, *patterns: str, other: str = "dc.elsewhere", more: Sequence[str] = ()) -> None:
        """The plan, with these families and more lines, beside another pool of the stream."""
        (self.root / "manifests").mkdir(exist_ok=True)
        (self.root / "manifests" / "pools.yaml").write_text(POOLS.replace("OTHER", other if "," in other else f'"{other}"'))
        listed = ", ".join(f'"{pattern}"' for pattern in patterns)
        self.plan(f"families: [{listed}]", "manifests: [manifests/pools.yaml]", *more)

    def __call__(self, *arguments: str, code: int = 0, command: str = "plan") -> Ended:
        """Runs `partitions plan`; `code` is what it has to end with."""
        self.capsys.readouterr()
        ended = run(["partitions", command, "-c", str(self.root / "plan.yaml"), *arguments], Terminal({}))
        out, err = self.capsys.readouterr()
        found = Ended(ended, out, err)
        assert found.code == code, found
        return found

    def report(self, *arguments: str, code: int = 0) -> Any:
        """The report of a run."""
        return self("--format", "json", *arguments, code=code).json

    def files(self) -> dict[str, bytes]:
        """Everything below the output, by relative path."""
        found = (path for path in self.output.rglob("*") if path.is_file())
        return {str(path.relative_to(self.output)): path.read_bytes() for path in found}

    def manifests(self) -> dict[str, bytes]:
        """The same without the tables and the report."""
        return {path: data for path, data in self.files().items() if not path.startswith("_plan/")}


def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Desk:
    """100 equal partitions on four workers, planned by nobody yet."""
    made = Desk(tmp_path, capsys)
    made.partitions(100)
    made.workers("w-a", "w-b", "w-c", "w-d")
    made.plan()
    return made
