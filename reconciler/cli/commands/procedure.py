"""`reconciler procedure list`, `abort` and `retry`."""

from __future__ import annotations

import time

import typer

from reconciler.cli.daemon_client import DaemonFlags
from reconciler.cli.flags.groups import TextOrJson
from reconciler.cli.flags.options import flattened
from reconciler.cli.poking import DaemonOrder, KeyArgument, key_of, poke
from reconciler.cli.session import session_of
from reconciler.model.identity import API_VERSION
from reconciler.render.status.text import procedure_lines

app = typer.Typer(add_completion=False, help="Show, stop or repeat the procedures of a running daemon.")


@app.command("list")
@flattened
def list_(ctx: typer.Context, daemon: DaemonFlags, format_: TextOrJson = "text") -> None:
    """Show what runs, and what stopped before its end."""
    session = session_of(ctx)
    document = daemon.client(session.owner_flag).head()
    terminal = session.terminal
    if format_ == "json":
        terminal.json({"apiVersion": API_VERSION, "kind": "Procedures", "procedures": document["procedures"]})
    else:
        terminal.lines(procedure_lines(document, time.time_ns()))


@app.command()
@flattened
def abort(ctx: typer.Context, daemon: DaemonFlags, key: KeyArgument, format_: TextOrJson = "text") -> None:
    """Let the procedure of a resource take back what it can, and stop."""
    wanted = key_of(key)
    said = f"the procedure of {wanted} takes back what it can and stops; `reconciler procedure retry {wanted}` begins it again"
    poke(session_of(ctx), daemon, DaemonOrder("procedure/abort", wanted, said), format_)


@app.command()
@flattened
def retry(ctx: typer.Context, daemon: DaemonFlags, key: KeyArgument, format_: TextOrJson = "text") -> None:
    """Let a stopped or failed procedure of a resource begin again."""
    wanted = key_of(key)
    order = DaemonOrder("procedure/retry", wanted, f"the procedure of {wanted} begins again")
    poke(session_of(ctx), daemon, order, format_)
