"""`reconciler apply`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from reconciler.cli import connecting
from reconciler.cli.applying import Task, apply_task
from reconciler.cli.flags.duration import seconds
from reconciler.cli.flags.groups import FENCE, FenceFlag, FullFlag, ManifestFlags, PlanFlags, SourceFlags, TextOrJson
from reconciler.cli.flags.options import flattened
from reconciler.cli.planning import declared
from reconciler.cli.saying.confirm import must_be_able_to_ask
from reconciler.cli.saying.exitcodes import ExitCode
from reconciler.cli.session import Session, session_of
from reconciler.engine.apply.run_once import ApplyOptions
from reconciler.engine.apply.saved import SavedPlan, load_saved, replan
from reconciler.engine.planning import make_plan
from reconciler.errors import UsageError
from reconciler.manifests.files.source import STDIN, SourceFile

app = typer.Typer(add_completion=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Manner:
    """How it is done."""

    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask")] = False
    go_on: Annotated[bool, typer.Option("--continue", help="Do the rest although something is blocked")] = False
    timeout: Annotated[str, typer.Option(metavar="D", help="Longest time for everything, procedures included")] = "5m"
    fence: FenceFlag = FENCE
    full: FullFlag = False
    format_: TextOrJson = "text"


@app.command()
@flattened
def apply(
    ctx: typer.Context,
    source: SourceFlags,
    flags: PlanFlags,
    manner: _Manner,
    given: Annotated[
        list[str] | None,
        typer.Argument(metavar="plan.json|PATH", help="A plan that `plan --out` wrote, or the same as -f PATH"),
    ] = None,
) -> ExitCode:
    """Make JetStream as declared, or exactly as a saved plan says."""
    session = session_of(ctx)
    options = ApplyOptions(continue_=manner.go_on, timeout=seconds("--timeout", manner.timeout))
    saved = _saved_plan(given or [])
    if saved and (source != SourceFlags() or flags != PlanFlags()):
        msg = f"{saved} already says what to do: give either it or -f with the flags of a plan"
        raise UsageError(msg)
    must_be_able_to_ask(session, yes=manner.yes)
    manifests = ManifestFlags(files=source.files, env=source.env, paths=given or [])
    task = _of_saved(session, _read(saved)) if saved else _of_manifests(session, manifests, flags)
    task = replace(task, fence=seconds("--fence", manner.fence), full=manner.full)
    return connecting.run(session, apply_task(session, task, options, yes=manner.yes, json=manner.format_ == "json"))


def _saved_plan(given: list[str]) -> Path | None:
    """The one file that is no manifest."""
    path = Path(given[0]) if len(given) == 1 and given[0] != STDIN else None
    return None if path is None or path.is_dir() or path.suffix in (".yaml", ".yml") else path


def _of_manifests(session: Session, source: SourceFlags, flags: PlanFlags) -> Task:
    desired, rules = declared(session, source, flags)
    return Task(desired, rules, lambda reader: make_plan(desired, rules, reader), ", ".join(source.files))


def _of_saved(session: Session, saved: SavedPlan) -> Task:
    if session.owner_flag and session.owner_flag != saved.rules.owner:
        msg = f"--owner {session.owner_flag}: this plan was made for the owner {saved.rules.owner}"
        raise UsageError(msg)
    return Task(saved.desired, saved.rules, lambda reader: replan(saved, reader), "a saved plan")


def _read(path: Path) -> SavedPlan:
    return load_saved(SourceFile(str(path), str(path), (0, 0, 0)).read(), str(path))
