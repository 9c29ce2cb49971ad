"""`reconciler permissions`."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from reconciler.cli.connecting import settings_of
from reconciler.cli.flags.groups import ManifestFlags
from reconciler.cli.flags.options import flattened
from reconciler.cli.loading import load
from reconciler.cli.session import session_of
from reconciler.jetstream.leading.lease import bucket_name
from reconciler.jetstream.transport.settings import ConnectionSettings
from reconciler.model.api import JETSTREAM_API, JETSTREAM_EVENTS, api_prefix
from reconciler.plan.permissions import AccountNames, PermissionMode, permissions
from reconciler.render.permissions import permissions_conf, permissions_document

app = typer.Typer(add_completion=False)
_MODE_HELP = "What the user is for; repeats: daemon does not delete what is no longer declared unless sync is given, too"


@app.command(name="permissions")
@flattened
def show(
    ctx: typer.Context,
    source: ManifestFlags,
    mode: Annotated[list[PermissionMode], typer.Option(help=_MODE_HELP)],
    format_: Annotated[Literal["text", "conf", "json"], typer.Option("--format", "-o", help="How to print")] = "text",
) -> None:
    """Show the NATS permissions these manifests need, no more and no fewer."""
    session = session_of(ctx)
    desired = load(session, source).desired
    owner = session.owner(desired.governance.owner, desired.environment)
    place = _place(settings_of(session, desired), owner)
    grants = permissions(desired, frozenset(mode), place)
    if format_ == "json":
        session.terminal.json(permissions_document(grants, owner, sorted({one.value for one in mode})))
    else:
        title = f"reconciler, owner {owner}, for {', '.join(mode)} on {len(desired.resources)} declared resources"
        session.terminal.text("\n".join(permissions_conf(grants, title)))


def _place(settings: ConnectionSettings, owner: str) -> AccountNames:
    prefix = api_prefix(settings.js_domain, settings.js_api_prefix or JETSTREAM_API)
    return AccountNames(
        prefix=prefix,
        inbox=settings.inbox_prefix,
        lease_bucket=bucket_name(owner),
        event_prefix=settings.js_event_prefix or JETSTREAM_EVENTS,
    )
