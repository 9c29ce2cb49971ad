"""`reconciler suspend`."""

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
def suspend(ctx: typer.Context, daemon: DaemonFlags, key: KeyArgument, format_: TextOrJson = "text") -> None:
    """Let a running daemon leave a resource alone until it is resumed; a restart of the daemon forgets it.

    For good: annotate the manifest with `reconciler/suspend: "true"`.
    """
    wanted = key_of(key)
    said = f"{wanted} is left alone until `reconciler resume {wanted} --daemon {daemon.client().url}`, or until the daemon ends"
    poke(session_of(ctx), daemon, DaemonOrder("suspend", wanted, said), format_)
