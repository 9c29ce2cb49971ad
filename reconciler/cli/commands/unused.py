"""`reconciler unused`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from reconciler.cli import connecting
from reconciler.cli.flags.groups import ManifestFlags, TextOrJson
from reconciler.cli.flags.options import flattened
from reconciler.cli.loading import load
from reconciler.cli.session import Session, session_of
from reconciler.errors import UsageError
from reconciler.jetstream.clock import SystemClock
from reconciler.jetstream.read.reader import JetStreamReader
from reconciler.model import units
from reconciler.model.identity import API_VERSION
from reconciler.model.seen.live import EVERY_STREAM, Live
from reconciler.model.seen.unused import Unused, unused
from reconciler.model.seen.wanted import EVERYTHING
from reconciler.render.values import ago, printable

app = typer.Typer(add_completion=False)
_USUALLY = 30 * 24 * 3600 * units.SECOND

Json = dict[str, Any]


@app.command(name="unused")
@flattened
def show(
    ctx: typer.Context,
    source: ManifestFlags,
    for_: Annotated[
        str | None,
        typer.Option("--for", metavar="DURATION", show_default=False, help="For so long (default 30d, or as the Policy says)"),
    ] = None,
    format_: TextOrJson = "text",
) -> None:
    """List durable consumers that nobody has used for long, whoever owns them.

    Used: something was delivered or acknowledged, or somebody waits for messages. With -f, the Policy among the manifests says
    how long that is (`unusedAfter`). Nothing is deleted.
    """
    session = session_of(ctx)
    least = _least(session, source, for_)
    live, now = connecting.run(session, _look(session)), SystemClock().now()
    found = unused(live, now, least)
    for key, reason in sorted(live.unknown.items()):
        session.terminal.warn(f"{'everything' if key.name == EVERY_STREAM else key} is not known: {reason}")
    if format_ == "json":
        session.terminal.json(_document(found, least))
    else:
        for line in _lines(found, least, now):
            session.terminal.text(line)


def _least(session: Session, source: ManifestFlags, said: str | None) -> int:
    if said is not None:
        try:
            return units.parse_duration(said)
        except ValueError as error:
            msg = f"--for: {error}"
            raise UsageError(msg) from error
    return (load(session, source).desired.governance.unused_after if source.files else 0) or _USUALLY


async def _look(session: Session) -> Live:
    async with connecting.connected(session) as apis:
        with session.terminal.working("looking at JetStream"):
            return await JetStreamReader(apis).snapshot(EVERYTHING)


def _lines(found: tuple[Unused, ...], least: int, now: int) -> Iterator[str]:
    width = max((len(printable(str(one.key))) for one in found), default=0)
    for one in found:
        whose = f"owner {printable(one.owner)}" if one.owner else "nobody's"
        waits = f"{one.pending:,} messages wait for it" + (", which its stream keeps for it" if one.holds and one.pending else "")
        yield f"{printable(str(one.key)):<{width}}  {_last(one, now)}, {whose}, acknowledged to {one.floor:,}, {waits}"
    yield f"{len(found)} unused for {units.format_duration(least)} or longer"
    if found:
        nobodys = "" if all(one.owner for one in found) else " (with `--adopt` where it is nobody's)"
        yield f"To delete one, declare it with `state: absent` and apply that{nobodys}."


def _last(one: Unused, now: int) -> str:
    since = ago(units.format_time(one.since), now)
    if one.known:
        return f"used {since}"
    return f"{'used before its server was started last' if one.delivered else 'never used'}, made {since}"


def _document(found: tuple[Unused, ...], least: int) -> Json:
    rows = [
        {
            "key": str(one.key),
            "owner": one.owner or None,
            "lastUsed": units.format_time(one.since) if one.known else None,
            "delivered": one.delivered,
            "since": units.format_time(one.since),
            "ackFloor": one.floor,
            "pending": one.pending,
            "keepsMessages": one.holds,
        }
        for one in found
    ]
    return {"apiVersion": API_VERSION, "kind": "Unused", "for": units.format_duration(least), "consumers": rows}
