"""`reconciler explain`."""

from __future__ import annotations

from typing import Annotated

import typer

from reconciler.cli.flags.groups import TextOrJson
from reconciler.cli.session import session_of
from reconciler.manifests.reference.explain import explain as explanation

app = typer.Typer(add_completion=False)


@app.command()
def explain(
    ctx: typer.Context,
    field: Annotated[str, typer.Argument(metavar="KIND.FIELD", help="e.g. Consumer.ackWait, Stream.sources.consumer, or Stream")],
    format_: TextOrJson = "text",
) -> None:
    """Explain a field: what it means, its default, whether it can change, and since which server."""
    terminal = session_of(ctx).terminal
    found = explanation(field)
    if format_ == "json":
        terminal.json(found.to_json())
    else:
        terminal.text(str(found))
