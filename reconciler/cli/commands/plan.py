"""`reconciler plan`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from reconciler.cli import connecting
from reconciler.cli.flags.groups import FullFlag, ManifestFlags, PlanFlags
from reconciler.cli.flags.options import flattened
from reconciler.cli.planning import planned
from reconciler.cli.saying.exitcodes import ExitCode
from reconciler.cli.saying.github import add_summary
from reconciler.cli.session import Session, session_of
from reconciler.engine.apply.saved import save
from reconciler.engine.planning import Planned
from reconciler.errors import ReconcilerError
from reconciler.plan.change import Plan
from reconciler.render.plan.json import plan_document
from reconciler.render.plan.markdown import plan_markdown
from reconciler.render.plan.text import plan_lines

app = typer.Typer(add_completion=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    """What comes of the plan."""

    format_: Annotated[Literal["text", "json", "markdown"], typer.Option("--format", "-o", help="How to print")] = "text"
    out: Annotated[Path | None, typer.Option(help="Write the plan to a file for `apply FILE`", show_default=False)] = None
    full: FullFlag = False
    detailed_exitcode: Annotated[bool, typer.Option("--detailed-exitcode", help="Exit with 2 when anything differs")] = False


@app.command()
@flattened
def plan(ctx: typer.Context, source: ManifestFlags, flags: PlanFlags, result: _Result) -> ExitCode:
    """Show what apply would do, changing nothing."""
    session = session_of(ctx)
    made = connecting.run(session, planned(session, source, flags))
    _print(session, made.plan, result)
    add_summary(session.terminal, lambda: plan_markdown(made.plan))
    if result.out:
        _write(result.out, made)
    if made.plan.refused:
        return ExitCode.REFUSED
    return ExitCode.CHANGES if result.detailed_exitcode and made.plan.changes else ExitCode.OK


def _print(session: Session, made: Plan, result: _Result) -> None:
    if result.format_ == "json":
        session.terminal.json(plan_document(made))
    elif result.format_ == "markdown":
        session.terminal.text(plan_markdown(made))
    else:
        session.terminal.lines(plan_lines(made, full=result.full))


def _write(path: Path, made: Planned) -> None:
    try:
        path.write_bytes(save(made, plan_document(made.plan)))
    except OSError as error:
        msg = f"the plan cannot be written to {path}: {error.strerror}"
        raise ReconcilerError(msg) from error
