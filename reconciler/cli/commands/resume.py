"""`reconciler resume`."""

from __future__ import annotations

import typer

from reconciler.cli.daemon_client import DaemonFlags
from reconciler.cli.flags.groups import TextOrJson
from reconciler.cli.flags.options import flattened
from reconciler.cli.poking import DaemonOrder, KeyArgument, key_of, poke
from reconciler.cli.session import session_of

app = typer.Typer(add_completion=False)


@app.command()
@flattened
def resume(ctx: typer.Context, daemon: DaemonFlags, key: KeyArgument, format_: TextOrJson = "text") -> None:
    """Let a running daemon take up a resource again that `reconciler suspend` made it leave alone."""
    wanted = key_of(key)
    poke(session_of(ctx), daemon, DaemonOrder("resume", wanted, f"{wanted} is taken up again"), format_)
