"""`reconciler status`."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.text import Text

from reconciler.cli import connecting
from reconciler.cli.duration import seconds
from reconciler.cli.exitcodes import ExitCode
from reconciler.cli.flags import SourceFlags, TextOrJson
from reconciler.cli.loading import load
from reconciler.cli.options import flattened
from reconciler.cli.session import Session, session_of
from reconciler.engine import make_plan
from reconciler.errors import AccessDenied
from reconciler.jetstream.domains import DomainApis
from reconciler.jetstream.lease import KvLease
from reconciler.jetstream.reader import JetStreamReader
from reconciler.model.desired import Desired
from reconciler.model.wanted import EVERYTHING
from reconciler.plan.change import Plan, Rules
from reconciler.render.status import SETTLED, View, remembered, status_document, status_lines, statuses

app = typer.Typer(add_completion=False)
POLL_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Manner:
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on, and print whenever something has changed")] = False
    wait: Annotated[bool, typer.Option("--wait", help="Return when all is in place; exit with 1 when that takes too long")] = (
        False
    )
    timeout: Annotated[str, typer.Option(metavar="D", help="How long --wait waits")] = "5m"
    format_: TextOrJson = "text"


@app.command()
@flattened
def status(ctx: typer.Context, source: SourceFlags, manner: _Manner) -> ExitCode:
    """Show the state of every resource, read from NATS.

    Without manifests: of everything that carries our marker, compared with what was last applied.
    """
    session = session_of(ctx)
    limit = seconds("--timeout", manner.timeout)
    desired = load(session, source).desired if source.files else None
    if desired is None:
        owner = session.owner(environment=source.env or "")
    else:
        owner = session.owner(desired.governance.owner, desired.environment)
    return connecting.run(session, _status(session, _Question(desired, owner), manner, limit))


@dataclass(frozen=True, slots=True)
class _Question:
    """Whose resources are looked at, and what they should be."""

    desired: Desired | None
    owner: str

    async def answer(self, apis: DomainApis) -> View:
        """What is live now."""
        reader, rules = JetStreamReader(apis), Rules(owner=self.owner, policy="sync")
        if self.desired is None:
            live = await reader.snapshot(EVERYTHING)
            found = remembered(live, self.owner)
            return View(found, live, Plan(changes=(), unchanged=len(found), server=live.server, rules=rules))
        planned = await make_plan(self.desired, rules, reader)
        return View(statuses(self.desired, planned.live, planned.plan), planned.live, planned.plan, self.desired.revision)


async def _status(session: Session, question: _Question, manner: _Manner, limit: float) -> ExitCode:
    """Looks once, or again and again; --wait alone prints only its last look."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + limit
    shown = None
    async with connecting.connected(session, question.desired) as apis:
        while True:
            with session.terminal.working("looking at JetStream"):
                view = await question.answer(apis)
            settled = all(one.condition in SETTLED for one in view.found)
            late = clock() + POLL_SECONDS > deadline
            done = settled or late if manner.wait else not manner.watch
            if view.found != shown and (done or manner.watch):
                _show(session, view, await _leader(apis, question.owner), manner.format_)
                shown = view.found
            if done:
                return ExitCode.FAILED if manner.wait and not settled else ExitCode.OK
            await asyncio.sleep(POLL_SECONDS)


def _show(session: Session, view: View, leader: str | None, how: str) -> None:
    if how == "json":
        session.terminal.json(status_document(view, leader))
        return
    session.terminal.lines([Text(f"Writer: {leader or 'nobody holds the lease'}", style="dim"), Text()])
    session.terminal.lines(status_lines(view.found))
    if not view.found:
        for line in _elsewhere(view):
            session.terminal.say(line)


def _elsewhere(view: View) -> Iterator[str]:
    """Where the resources are that somebody may have looked for."""
    consumers = (consumer for named in view.live.consumers.values() for consumer in named.values())
    owners = Counter(seen.owner for seen in (*view.live.streams.values(), *consumers) if seen.owner)
    for owner, count in sorted(owners.items()):
        yield f"{count:,} resources here belong to {owner}: reconciler --owner {owner} status"


async def _leader(apis: DomainApis, owner: str) -> str | None:
    """Who holds the lease; a user who may only read need not be allowed to see that."""
    try:
        state = await KvLease(apis(""), owner).show()
    except AccessDenied:
        return None
    return str(state.holder) if state else None
