"""What a GitHub workflow understands: annotations on lines of files, and the summary of a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from reconciler.cli.saying.terminal import Terminal
from reconciler.errors import Problem

_SUMMARY = "GITHUB_STEP_SUMMARY"


def in_github(environ: Mapping[str, str]) -> bool:
    """Whether this runs as a step of a GitHub workflow."""
    return environ.get("GITHUB_ACTIONS") == "true"


def annotation(problem: Problem) -> str:
    """A workflow command that marks the line."""
    kind = "warning" if problem.severity == "warning" else "error"
    where = f" ({problem.field})" if problem.field else ""
    place = f"file={_property(problem.file)},line={problem.line},col={problem.column},title={_property(problem.code)}"
    return f"::{kind} {place}::{_data(problem.message + where)}"


def add_summary(terminal: Terminal, markdown: Callable[[], str]) -> None:
    """Append to the summary page of the step, if there is one."""
    path = terminal.environ.get(_SUMMARY)
    if not path or not in_github(terminal.environ):
        return
    try:
        with Path(path).open("a", encoding="utf-8") as summary:
            summary.write(f"{markdown()}\n")
    except OSError as error:
        terminal.warn(f"the step summary cannot be written to {path}: {error.strerror}")


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
