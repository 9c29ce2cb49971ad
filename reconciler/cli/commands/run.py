"""`reconciler run`."""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from reconciler.cli import connecting
from reconciler.cli.flags.duration import seconds
from reconciler.cli.flags.groups import FENCE, FenceFlag, ManifestFlags, PlanFlags
from reconciler.cli.flags.options import flattened
from reconciler.cli.running.daemon import Serving, serve
from reconciler.cli.running.embedded import DEFAULT_DATA
from reconciler.cli.saying.exitcodes import ExitCode
from reconciler.cli.session import session_of
from reconciler.engine.daemon.state import DaemonOptions
from reconciler.errors import UsageError
from reconciler.observe import logs

app = typer.Typer(add_completion=False)
_SHORTEST = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Manner:
    """How the process behaves."""

    dry_run: Annotated[bool, typer.Option("--dry-run", help="Look, plan and show; write nothing")] = False
    embedded: Annotated[bool, typer.Option("--embedded", help="Start a nats-server of our own (needs the extra: embedded)")] = (
        False
    )
    data: Annotated[Path, typer.Option(metavar="DIR", help="Where the embedded server keeps its data")] = DEFAULT_DATA
    http: Annotated[
        str, typer.Option(metavar="HOST:PORT", envvar="RECONCILER_HTTP", help="Where to serve status, metrics and probes")
    ] = "127.0.0.1:8080"
    http_token: Annotated[
        str | None,
        typer.Option(envvar="RECONCILER_HTTP_TOKEN", show_default=False, help="What POST requests have to bear; else loopback"),
    ] = None
    interval: Annotated[
        str, typer.Option(metavar="D", envvar="RECONCILER_INTERVAL", help="Look at everything this often, ±10 %")
    ] = "60s"
    prune_delay: Annotated[
        str,
        typer.Option(
            metavar="D",
            envvar="RECONCILER_PRUNE_DELAY",
            help="Prune only when the manifests have been the same for so long; 0, or where a link swaps them: at once",
        ),
    ] = "30s"
    drift: Annotated[
        Literal["repair", "report"], typer.Option(envvar="RECONCILER_DRIFT", help="What to do about what others changed")
    ] = "repair"
    fence: FenceFlag = FENCE
    audit: Annotated[
        Literal["auto", "on", "off"],
        typer.Option(envvar="RECONCILER_AUDIT", help="Listen who changes what; auto: only as long as it is cheap"),
    ] = "auto"
    max_requests_per_second: Annotated[
        float, typer.Option(min=0, envvar="RECONCILER_MAX_REQUESTS_PER_SECOND", help="Most writes per second; 0: no limit")
    ] = 0.0
    log_format: Annotated[
        Literal["auto", "json", "text"],
        typer.Option(envvar="RECONCILER_LOG_FORMAT", help="auto: text on a terminal, JSON elsewhere"),
    ] = "auto"


@app.command()
@flattened
def run(ctx: typer.Context, source: ManifestFlags, flags: PlanFlags, manner: _Manner) -> ExitCode:
    """Keep JetStream as declared: repair what others change, follow the manifests, serve status and metrics."""
    session = session_of(ctx)
    text = manner.log_format == "text" or (manner.log_format == "auto" and sys.stderr.isatty())
    logs.configure(sys.stderr, json=not text, level=logging.DEBUG if session.terminal.debug else logging.INFO)
    session.terminal.is_log = not text
    interval = seconds("--interval", manner.interval)
    if interval < _SHORTEST:
        msg = f"--interval {manner.interval}: the shortest is 1s (drift is repaired at once anyway)"
        raise UsageError(msg)
    options = DaemonOptions(
        dry_run=manner.dry_run,
        repair_drift=manner.drift == "repair",
        interval=interval,
        requests_per_second=manner.max_requests_per_second,
    )
    serving = Serving(
        options=options,
        prune_delay=seconds("--prune-delay", manner.prune_delay),
        embedded=manner.data if manner.embedded else None,
        http=manner.http,
        http_elsewhere=_is_default(ctx, "http"),
        http_token=manner.http_token or "",
        fence=seconds("--fence", manner.fence),
        audit=manner.audit,
        for_people=text,
        greets=text or (manner.embedded and manner.log_format == "auto"),
    )
    return connecting.run_to_end(serve(session, source, flags, serving))


def _is_default(ctx: typer.Context, name: str) -> bool:
    """Whether nobody has named it."""
    return getattr(ctx.get_parameter_source(name), "name", "") == "DEFAULT"
