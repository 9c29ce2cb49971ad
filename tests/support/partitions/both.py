"""One desk, planned by Spark and without: what is written and what is refused is the same."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.partitions.files import Desk


@dataclass(frozen=True)
class Both:
    """Both planners, from the same earlier plan."""

    desk: Desk

    def plan(self, *arguments: str, engine: str = "spark") -> None:
        """The same manifests, index, assignment and moves, and the same report but for the seconds; those of Spark stay."""
        before = self.desk.root / "before"
        if self.desk.output.exists():
            shutil.copytree(self.desk.output, before)
        local = self._said("local", arguments)
        written, tables = self.desk.manifests(), self.tables()
        shutil.rmtree(self.desk.output)
        if before.exists():
            shutil.move(before, self.desk.output)
        assert self._said(engine, arguments) == local
        assert self.desk.manifests() == written
        assert self.tables() == tables

    def refused(self, *arguments: str, code: int) -> str:
        """The same words, the same exit code, and nothing written."""
        before = self.desk.files()
        local = findings(self.desk("--engine", "local", *arguments, code=code).err)
        spark = findings(self.desk("--engine", "spark", *arguments, code=code).err)
        assert spark == local, (spark, local)
        assert self.desk.files() == before
        return "\n".join(local)

    def tables(self) -> list[pa.Table]:
        """Assignment and moves."""
        return [pq.read_table(self.desk.output / "_plan" / f"{name}.parquet") for name in ("assignment", "moves")]

    def _said(self, engine: str, arguments: tuple[str, ...]) -> dict[str, object]:
        report: dict[str, object] = self.desk.report("--engine", engine, *arguments)
        return {name: value for name, value in report.items() if name != "seconds"}


def findings(said: str) -> list[str]:
    """Without the lines that end with how long a step took."""
    lines = said.replace("file://", "").splitlines()
    found = [line for line in lines if not re.search(r"\(\d+\.\d\ds\)$", line)]
    assert found
    return found
