"""`reconciler status`."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from shlex import quote
from typing import Annotated, Any

import typer
from rich.text import Text

from reconciler.cli import connecting
from reconciler.cli.daemon_client import DaemonClient, DaemonFlags, asks_daemon
from reconciler.cli.flags.duration import seconds
from reconciler.cli.flags.groups import SourceFlags
from reconciler.cli.flags.options import flattened
from reconciler.cli.loading import load
from reconciler.cli.saying.exitcodes import ExitCode
from reconciler.cli.saying.watching import Sight, WatchManner, look
from reconciler.cli.session import Session, session_of
from reconciler.engine.planning import make_plan
from reconciler.engine.sources.once import owned, sources_now
from reconciler.errors import NatsError, ReconcilerError, UsageError
from reconciler.jetstream.domains import DomainApis
from reconciler.jetstream.leading.lease import KvLease
from reconciler.jetstream.read.reader import JetStreamReader
from reconciler.manifests.suggest import suggest
from reconciler.model.desired import Desired
from reconciler.model.identity import KINDS, Key
from reconciler.model.seen.wanted import EVERYTHING
from reconciler.plan.change import Plan, Rules
from reconciler.render.status.judged import Condition, StatusView, remembered, status_document, statuses
from reconciler.render.status.sources import source_row
from reconciler.render.status.text import daemon_lines, owner_line, status_lines, writer_line

app = typer.Typer(add_completion=False)

Json = Mapping[str, Any]
_STATES = [condition.value for condition in Condition]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """Which resources are shown."""

    keys: Annotated[
        list[str] | None, typer.Argument(metavar="KEY", show_default=False, help="Only these (e.g. Stream/ORDERS)")
    ] = None
    state: Annotated[
        list[str], typer.Option(metavar="S", show_default=False, help=f"Only what is {', '.join(_STATES)}; repeats")
    ] = field(default_factory=list)
    kind: Annotated[list[str], typer.Option(metavar="K", show_default=False, help="Only Stream, Consumer, …; repeats")] = field(
        default_factory=list
    )

    def __post_init__(self) -> None:
        """Raises UsageError for what can choose nothing."""
        for option, given, known in (("--state", self.state, _STATES), ("--kind", self.kind, KINDS)):
            for one in given:
                if one not in known:
                    msg = f"{option} {one}: one of {', '.join(known)}{suggest(one, known)}"
                    raise UsageError(msg)

    def of(self, document: Json) -> dict[str, Any]:
        """The document with these alone; raises ReconcilerError for a key that nothing is known of."""
        if not (self.keys or self.state or self.kind):
            return dict(document)
        known = {row["key"] for row in document["resources"]}
        for key in self.keys or ():
            if key not in known:
                msg = f"nothing is known of {key}: a key is as the status shows it{suggest(key, known)}"
                raise ReconcilerError(msg)
        rows = [row for row in document["resources"] if self._is_chosen(row)]
        counts = Counter(row["state"] for row in rows)
        return {**document, "resources": rows, "summary": {state: counts[state] for state in document["summary"]}}

    def _is_chosen(self, row: Json) -> bool:
        return (
            (not self.keys or row["key"] in self.keys)
            and (not self.state or row["state"] in self.state)
            and (not self.kind or Key.parse(row["key"]).kind in self.kind)
        )


@app.command()
@flattened
def status(ctx: typer.Context, choice: _Choice, source: SourceFlags, daemon: DaemonFlags, manner: WatchManner) -> ExitCode:
    """Show the state of every resource, read from NATS or from a running daemon.

    Without manifests and daemon: of everything that carries our marker, compared with what was last applied.
    """
    session = session_of(ctx)
    limit = seconds("--timeout", manner.timeout)
    if asks_daemon(ctx, source, daemon):
        client = daemon.client(session.owner_flag)
        return connecting.run(session, look(session, lambda: _told(client, choice), manner, limit))
    desired = load(session, source).desired if source.files else None
    if desired is None:
        owner = session.owner(environment=source.env or "")
    else:
        owner = session.owner(desired.governance.owner, desired.environment)
    return connecting.run(session, _read(session, _Question(session, desired, owner, choice), manner, limit))


async def _told(client: DaemonClient, choice: _Choice) -> Sight:
    """What the daemon says."""
    document = choice.of(await asyncio.to_thread(client.status))

    def lines(before: Json | None) -> list[Text]:
        now = time.time_ns()
        around = ("ready", "leader", "manifests", "refused", "mode", "fence")
        again = before is None or any(document.get(part) != before.get(part) for part in around)
        return [*(daemon_lines(document, now) if again else ()), *status_lines(document, now, before)]

    return Sight(document, lines)


async def _read(session: Session, question: _Question, manner: WatchManner, limit: float) -> ExitCode:
    """What NATS shows."""
    async with connecting.connected(session, question.desired) as apis:
        return await look(session, lambda: question.answer(apis), manner, limit)


@dataclass(frozen=True, slots=True)
class _Question:
    """Whose resources are looked at, and what they should be."""

    session: Session
    desired: Desired | None
    owner: str
    choice: _Choice

    async def answer(self, apis: DomainApis) -> Sight:
        """What is live now."""
        view = await self._view(apis)
        document = status_document(view, *await _leader(apis, self.owner))
        desired = self.desired or owned(view.live, self.owner)
        found = await sources_now(JetStreamReader(apis), desired, view.live)
        document["sources"] = [source_row(one.entrance, one.history.health) for one in found if one.history.health]
        document = self.choice.of(document)

        def lines(before: Json | None) -> list[Text]:
            if before is not None:
                return list(status_lines(document, time.time_ns(), before))
            for line in _elsewhere(view):
                self.session.terminal.say(line)
            return [writer_line(document), owner_line(document), Text(), *status_lines(document, time.time_ns())]

        return Sight(document, lines)

    async def _view(self, apis: DomainApis) -> StatusView:
        reader, rules = JetStreamReader(apis), Rules(owner=self.owner)
        if self.desired is None:
            live = await reader.snapshot(EVERYTHING)
            found = remembered(live, self.owner)
            unchanged = sum(status.condition is Condition.SYNCED for status in found)
            return StatusView(found, live, Plan(changes=(), unchanged=unchanged, server=live.server, rules=rules))
        planned = await make_plan(self.desired, rules, reader)
        return StatusView(statuses(self.desired, planned.live, planned.plan), planned.live, planned.plan, self.desired.revision)


def _elsewhere(view: StatusView) -> Iterator[str]:
    """Where the resources are that somebody may have looked for."""
    if view.found:
        return
    consumers = (consumer for named in view.live.consumers.values() for consumer in named.values())
    owners = Counter(seen.owner for seen in (*view.live.streams.values(), *consumers) if seen.owner)
    for owner, count in sorted(owners.items()):
        yield f"{count:,} resources here belong to {owner}: `reconciler --owner {quote(owner)} status` shows them"


async def _leader(apis: DomainApis, owner: str) -> tuple[str | None, str]:
    """Who holds the lease, and why that is not known; a user who may only read need not be allowed to see it."""
    try:
        state = await KvLease(apis(""), owner).show()
    except NatsError as error:
        return None, str(error)
    return (str(state.holder) if state else None), ""
