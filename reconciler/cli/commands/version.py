"""`reconciler version`."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed

import typer

from reconciler import __version__
from reconciler.cli.flags.groups import TextOrJson
from reconciler.cli.session import session_of
from reconciler.model.api import LATEST_LEVEL
from reconciler.model.identity import API_VERSION

app = typer.Typer(add_completion=False)


@app.command()
def version(ctx: typer.Context, format_: TextOrJson = "text") -> None:
    """Show the version of reconciler and of what it stands on."""
    terminal = session_of(ctx).terminal
    document = {
        "apiVersion": API_VERSION,
        "kind": "Version",
        "version": __version__,
        "python": platform.python_version(),
        "natsPy": _installed("nats-py"),
        "jetstreamApiLevel": LATEST_LEVEL,
    }
    if format_ == "json":
        terminal.json(document)
    else:
        python, nats = document["python"], document["natsPy"]
        terminal.text(f"reconciler {__version__} (Python {python}, nats-py {nats}, JetStream API level {LATEST_LEVEL})")


def _installed(package: str) -> str:
    try:
        return installed(package)
    except PackageNotFoundError:
        return ""
