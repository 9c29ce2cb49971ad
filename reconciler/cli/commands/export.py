"""`reconciler export`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, Literal

import typer

from reconciler.cli import connecting
from reconciler.cli.session import Session, session_of
from reconciler.errors import ReconcilerError
from reconciler.jetstream.read.reader import JetStreamReader
from reconciler.manifests.export.documents import HEADER
from reconciler.manifests.export.documents import export as exported
from reconciler.manifests.export.sources import read_through
from reconciler.model.identity import API_VERSION, Key
from reconciler.model.seen.live import Live
from reconciler.model.seen.wanted import EVERYTHING, Wanted
from reconciler.render.yaml import dump

app = typer.Typer(add_completion=False)


@app.command()
def export(
    ctx: typer.Context,
    stream: Annotated[
        str | None, typer.Option(metavar="S", show_default=False, help="Only this stream and its consumers")
    ] = None,
    format_: Annotated[Literal["yaml", "nack", "json"], typer.Option("--format", "-o", help="How to print")] = "yaml",
) -> None:
    """Print what is live as manifests: the same text for the same state."""
    session = session_of(ctx)
    live = connecting.run(session, _look(session, stream))
    if stream is not None and not any(key.name == stream for key in live.streams):
        msg = f"there is no stream {stream}"
        raise ReconcilerError(msg)
    found = exported(live, stream, "nack" if format_ == "nack" else "yaml")
    for note in found.notes:
        session.terminal.warn(note)
    if format_ == "json":
        session.terminal.json({"apiVersion": API_VERSION, "kind": "List", "items": found.documents})
    else:
        session.terminal.text("".join(_texts(found.documents, header=HEADER if format_ == "yaml" else "")))


async def _look(session: Session, stream: str | None) -> Live:
    wanted = EVERYTHING if stream is None else Wanted(streams=frozenset({Key("Stream", stream)}))
    async with connecting.connected(session) as apis:
        with session.terminal.working("looking at JetStream"):
            reader = JetStreamReader(apis)
            live = await reader.snapshot(wanted)
            origins = frozenset(read_through(live, stream)) if stream is not None else frozenset()
            # What its entries select is in the durables that they read through.
            return await reader.snapshot(replace(wanted, streams=wanted.streams | origins)) if origins else live


def _texts(documents: tuple[dict[str, Any], ...], header: str) -> Iterator[str]:
    """One after the other, each behind a document mark."""
    yield header
    for document in documents:
        yield "---\n"
        yield dump(document)
