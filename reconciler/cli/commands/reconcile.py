"""`reconciler reconcile`."""

from __future__ import annotations

from typing import Annotated

import typer

from reconciler.cli.daemon_client import DaemonFlags
from reconciler.cli.flags.groups import TextOrJson
from reconciler.cli.flags.options import flattened
from reconciler.cli.poking import DaemonOrder, key_of, poke
from reconciler.cli.session import session_of

app = typer.Typer(add_completion=False)


@app.command()
@flattened
def reconcile(
    ctx: typer.Context,
    daemon: DaemonFlags,
    key: Annotated[str, typer.Argument(metavar="[KEY]", show_default=False, help="Only this resource, e.g. Stream/ORDERS")] = "",
    format_: TextOrJson = "text",
) -> None:
    """Let a running daemon look at everything, or at one resource, now; waiting for a retry ends with it."""
    wanted = key_of(key) if key else None
    said = f"{wanted or 'everything'} is looked at now; see `reconciler status --daemon {daemon.client().url}`"
    poke(session_of(ctx), daemon, DaemonOrder("reconcile", wanted, said), format_)
