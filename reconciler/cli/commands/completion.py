"""`reconciler completion`."""

from __future__ import annotations

from typing import Annotated, Literal

import typer
from typer.completion import get_completion_script  # type: ignore[attr-defined]  # imported there, not listed

from reconciler.cli.session import session_of

app = typer.Typer(add_completion=False)


@app.command()
def completion(
    ctx: typer.Context, shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(help="The shell to complete in")]
) -> None:
    """Print the completion script of a shell, e.g. for `source <(reconciler completion bash)`."""
    script = get_completion_script(prog_name="reconciler", complete_var="_RECONCILER_COMPLETE", shell=shell)
    session_of(ctx).terminal.text(script)
