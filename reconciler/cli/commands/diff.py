"""`reconciler diff`."""

from __future__ import annotations

import typer
from rich.text import Text

from reconciler.cli import connecting
from reconciler.cli.flags.groups import ManifestFlags, PlanFlags, TextOrJson
from reconciler.cli.flags.options import flattened
from reconciler.cli.planning import planned
from reconciler.cli.saying.exitcodes import DIFFERENCES, ExitCode
from reconciler.cli.session import session_of
from reconciler.render.plan.diff import change_diff, plan_diff
from reconciler.render.plan.json import plan_document

app = typer.Typer(add_completion=False)
_STYLES = {"+++": "bold", "---": "bold", "@@": "cyan", "+": "green", "-": "red", "#": "dim"}


@app.command()
@flattened
def diff(ctx: typer.Context, source: ManifestFlags, flags: PlanFlags, format_: TextOrJson = "text") -> ExitCode:
    """Show the plan as a unified diff of canonical YAML; exit with 1 when there are differences."""
    session = session_of(ctx)
    plan = connecting.run(session, planned(session, source, flags)).plan
    if format_ == "json":
        document = plan_document(plan)
        for entry, change in zip(document["changes"], plan.changes, strict=True):
            entry["diff"] = "\n".join(change_diff(change))
        session.terminal.json(document)
    else:
        session.terminal.lines(Text(line, style=_style(line)) for line in plan_diff(plan))
    if plan.refused:
        return ExitCode.REFUSED
    return DIFFERENCES if plan.changes else ExitCode.OK


def _style(line: str) -> str:
    return next((style for start, style in _STYLES.items() if line.startswith(start)), "")
