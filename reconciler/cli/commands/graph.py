"""`reconciler graph`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import typer

from reconciler.cli import connecting
from reconciler.cli.daemon_client import DaemonFlags, asks_daemon
from reconciler.cli.flags.groups import SourceFlags
from reconciler.cli.flags.options import flattened
from reconciler.cli.loading import load
from reconciler.cli.session import Session, session_of
from reconciler.errors import ReconcilerError
from reconciler.jetstream.read.reader import JetStreamReader
from reconciler.model.seen.live import EVERY_STREAM
from reconciler.model.seen.wanted import Wanted
from reconciler.render.graph.dot import dot
from reconciler.render.graph.mermaid import mermaid, too_large
from reconciler.render.graph.svg import svg
from reconciler.render.graph.words import EMPTY
from reconciler.sources.graph.live import live_topology, needed
from reconciler.sources.graph.topology import Topology
from reconciler.sources.graph.views import declared_topology, told_topology

app = typer.Typer(add_completion=False)

_FORMATS: dict[str, Callable[[Topology], str]] = {"mermaid": mermaid, "dot": dot, "svg": svg}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Picture:
    """What is drawn, and how."""

    format_: Annotated[Literal["mermaid", "dot", "svg"], typer.Option("--format", "-o", help="How to draw")] = "mermaid"
    stream: Annotated[
        str | None,
        typer.Option(metavar="S", show_default=False, help="Only what is connected with this stream (NAME or DOMAIN:NAME)"),
    ] = None
    consumers: Annotated[bool, typer.Option("--consumers", help="Draw the ordinary consumers of the streams as well")] = False
    all_: Annotated[bool, typer.Option("--all", help="Draw the streams that copy nothing and are not copied as well")] = False
    domain: Annotated[
        list[str],
        typer.Option(metavar="D", show_default=False, help="Look at this JetStream domain as well; repeats"),
    ] = field(default_factory=list)
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="Write to a file", show_default=False)] = None


@app.command()
@flattened
def graph(ctx: typer.Context, source: SourceFlags, daemon: DaemonFlags, picture: _Picture) -> None:
    """Draw which streams are filled from which: as declared with -f, as a daemon tells it, else as NATS shows it."""
    session = session_of(ctx)
    if asks_daemon(ctx, source, daemon):
        found = told_topology(daemon.client(session.owner_flag).status().get("sources", ()))
    elif source.files:
        found = declared_topology(load(session, source).desired)
    else:
        found = connecting.run(session, _look(session, picture))
    _print(session, _chosen(found, picture), picture)


def _chosen(found: Topology, picture: _Picture) -> Topology:
    """The part that is drawn."""
    if picture.stream is not None:
        found = found.around(picture.stream)
        if not found.nodes:
            msg = f"there is no stream {picture.stream}"
            raise ReconcilerError(msg)
    elif not picture.all_:
        found = found.sourcing()
    return found if picture.consumers else found.without_readers()


async def _look(session: Session, picture: _Picture) -> Topology:
    """Looks until nothing more is named that was not looked at: an entry may lead to another domain."""
    async with connecting.connected(session) as apis:
        reader = JetStreamReader(apis)
        wanted = Wanted(domains=frozenset({"", *picture.domain}), everything=picture.consumers)
        with session.terminal.working("looking at JetStream"):
            while True:
                live = await reader.snapshot(wanted)
                more = needed(live, wanted)
                if more == wanted:
                    break
                wanted = more
    for key, reason in sorted(live.unknown.items()):
        what = f"domain {key.domain}" if key.name == EVERY_STREAM else str(key)
        session.terminal.warn(f"{what} is not known: {reason}")
    return live_topology(live, wanted.domains)


def _print(session: Session, found: Topology, picture: _Picture) -> None:
    text = _FORMATS[picture.format_](found)
    if not found.nodes:
        session.terminal.say(EMPTY)
    if picture.format_ == "mermaid" and too_large(found, text):
        session.terminal.warn("this is more than Mermaid draws unless maxEdges and maxTextSize are raised: try --format svg")
    if picture.output is None:
        session.terminal.text(text)
        return
    try:
        picture.output.write_text(text, encoding="utf-8")
    except OSError as error:
        msg = f"the graph cannot be written to {picture.output}: {error.strerror}"
        raise ReconcilerError(msg) from error
