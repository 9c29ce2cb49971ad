"""`reconciler schema`."""

from __future__ import annotations

from typing import Annotated

import typer

from reconciler.cli.flags.groups import TextOrJson
from reconciler.cli.session import session_of
from reconciler.manifests.reference.schema import schema as schema_of

app = typer.Typer(add_completion=False)


@app.command()
def schema(
    ctx: typer.Context,
    kind: Annotated[
        str | None, typer.Argument(metavar="[KIND]", show_default=False, help="e.g. Stream; without it, any document")
    ] = None,
    format_: TextOrJson = "json",
) -> None:
    """Print the JSON Schema (draft-07) of a kind, for editors."""
    del format_  # a schema is JSON, however it is asked for
    session_of(ctx).terminal.json(schema_of(kind))
