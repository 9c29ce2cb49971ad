"""What the commands that poke a running daemon share.

Invariant: one line says what the daemon has been asked for, or the command fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from reconciler.cli.daemon_client import DaemonFlags
from reconciler.cli.session import Session
from reconciler.errors import UsageError
from reconciler.model.identity import API_VERSION, Key
from reconciler.render.values import printable

KeyArgument = Annotated[str, typer.Argument(metavar="KEY", show_default=False, help="The resource, e.g. Consumer/ORDERS/billing")]


@dataclass(frozen=True, slots=True)
class DaemonOrder:
    """What the daemon is to do: the path under `/-/`, the resource, and what to tell when it has taken the order."""

    action: str
    key: Key | None
    said: str


def key_of(text: str) -> Key:
    """Raises UsageError."""
    try:
        return Key.parse(text)
    except ValueError as error:
        raise UsageError(str(error)) from error


def poke(session: Session, flags: DaemonFlags, order: DaemonOrder, how: str) -> None:
    """Gives the order, and tells that the daemon has taken it."""
    client = flags.client(session.owner_flag)
    client.post(order.action, order.key)
    if how == "json":
        named = str(order.key) if order.key is not None else None
        document = {"apiVersion": API_VERSION, "kind": "Request", "action": order.action, "key": named, "daemon": client.url}
        session.terminal.json({**document, "message": order.said})
    else:
        session.terminal.text(printable(order.said))
