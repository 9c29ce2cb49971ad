"""`reconciler partitions plan` and `explain`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import typer

from reconciler.cli.flags import TextOrJson
from reconciler.cli.options import flattened
from reconciler.cli.session import Session, session_of
from reconciler.errors import UsageError

app = typer.Typer(add_completion=False, help="Plan which worker gets which partition, from tables to worker manifests.")

Config = Annotated[str, typer.Option("--config", "-c", metavar="PLAN.YAML", help="The file with the PartitionPlan")]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Flags:
    """What may be done with the plan."""

    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write nothing; show the moves of each worker and the difference")] = False
    prune: Annotated[bool, typer.Option("--prune", help="Delete the files of workers that are gone")] = False
    commit: Annotated[bool, typer.Option("--commit", help="Make one git commit of the manifests; nothing is pushed")] = False
    force: Annotated[
        list[str],
        typer.Option(metavar="GATE", show_default=False, help="Do it although this gate refuses; repeats"),
    ] = field(default_factory=list)


@app.command()
@flattened
def plan(ctx: typer.Context, config: Config, flags: _Flags, format_: TextOrJson = "text") -> None:
    """Read the tables, plan with as few moves as the load makes necessary, and write the manifests in one step."""
    session = session_of(ctx)
    _needs_planner()
    from reconciler.partitions.plan_file import read_plan  # noqa: PLC0415 - only with the extra
    from reconciler.partitions.report import lines  # noqa: PLC0415 - the same
    from reconciler.partitions.run import How, make  # noqa: PLC0415 - the same

    how = How(frozenset(flags.force), dry_run=flags.dry_run, prune=flags.prune, say=_progress(session))
    with session.terminal.working("planning"):
        made = make(read_plan(config), how)
    if format_ == "json":
        session.terminal.json(made.report)
    else:
        session.terminal.lines(lines(made.report))


def _progress(session: Session):
    return session.terminal.say


def _needs_planner() -> None:
    from importlib.util import find_spec

    missing = [name for name in ("numpy", "pyarrow", "xxhash") if find_spec(name) is None]
    if missing:
        msg = f"planning partitions needs {', '.join(missing)}: pip install 'jetstream-reconciler[planner]'"
        raise UsageError(msg)


@app.callback()
def group() -> None:
    """Plan which worker gets which partition, from tables to worker manifests."""
