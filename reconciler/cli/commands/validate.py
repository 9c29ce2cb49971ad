"""`reconciler validate`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from reconciler.cli.flags.groups import ManifestFlags
from reconciler.cli.flags.options import flattened
from reconciler.cli.loading import read
from reconciler.cli.saying.exitcodes import ExitCode
from reconciler.cli.saying.github import in_github
from reconciler.cli.saying.problems import problem_lines, total
from reconciler.cli.session import Session, session_of
from reconciler.errors import InvalidInput, Problem
from reconciler.model.identity import API_VERSION
from reconciler.render.values import counted

app = typer.Typer(add_completion=False)


@app.command()
@flattened
def validate(
    ctx: typer.Context,
    source: ManifestFlags,
    format_: Annotated[Literal["text", "json", "github"], typer.Option("--format", "-o", help="How to print")] = "text",
) -> ExitCode:
    """Check manifests without a server; every problem as file:line:column: code: message."""
    session = session_of(ctx)
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    count = 0
    try:
        loaded = read(session, source)
        warnings, count = tuple(loaded.warnings), len(loaded.desired.resources)
    except InvalidInput as error:
        problems = error.problems
    _report(session, format_, problems, warnings, count)
    return ExitCode.INVALID if problems else ExitCode.OK


def _report(session: Session, how: str, problems: tuple[Problem, ...], warnings: tuple[Problem, ...], count: int) -> None:
    terminal = session.terminal
    if how == "json":
        terminal.json(_document(problems, warnings, count))
    elif how == "github" or (how == "text" and in_github(session.environ)):
        terminal.lines(problem_lines((*problems, *warnings), github=True))
    else:
        terminal.lines(problem_lines(problems, github=False))
        for line in problem_lines(warnings, github=False):
            terminal.say(line)
    if how == "text" and problems:
        terminal.fail(total(problems))
    elif how == "text":
        terminal.text(f"{counted(count, 'resource')} declared, all valid")


def _document(problems: tuple[Problem, ...], warnings: tuple[Problem, ...], count: int) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "Validation",
        "valid": not problems,
        "resources": count,
        "problems": [_problem(problem) for problem in (*problems, *warnings)],
    }


def _problem(problem: Problem) -> dict[str, Any]:
    return {
        "file": problem.file,
        "line": problem.line,
        "column": problem.column,
        "code": problem.code,
        "message": problem.message,
        "field": problem.field,
        "severity": problem.severity,
    }
