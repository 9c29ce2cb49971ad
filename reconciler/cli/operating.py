"""A person's command to one consumer: look, judge, tell, ask, take the lease, look and judge again, send it.

Invariant: at most one changing request, sent while the lease was held, and judged by what was there then.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import orjson

from reconciler.cli.confirm import confirm
from reconciler.cli.connecting import connected
from reconciler.cli.session import Session
from reconciler.errors import AccessDenied, LeaseHeld, Refused
from reconciler.jetstream.domains import DomainApis
from reconciler.jetstream.lease import Holder, KvLease
from reconciler.jetstream.reader import JetStreamReader
from reconciler.jetstream.snapshot import server_facts
from reconciler.jetstream.writer import JetStreamWriter
from reconciler.model.flow import copied_entries, copies
from reconciler.model.identity import Key
from reconciler.model.marker import Journal, read_marker
from reconciler.model.sourcing import durable_of
from reconciler.plan.operating import Command, Decision, Operated
from reconciler.procedures.recreate_consumer import hold_key
from reconciler.procedures.requests import ConsumerInfo, StreamInfo, Write


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How a command is given."""

    ask: bool = False
    """A person has to agree first."""
    dry_run: bool = False
    quiet: bool = False
    """stdout is for the document alone."""


@dataclass(frozen=True, slots=True)
class Done:
    """What became of a command."""

    found: Operated
    decision: Decision
    answer: dict[str, Any] | None = None
    """The server's; None when nothing was sent."""
    after: dict[str, Any] | None = None
    """INFO after it."""
    declined: bool = False
    """A person was asked, and did not agree."""


class Operator:
    """Somebody at work on one consumer."""

    def __init__(self, session: Session, apis: DomainApis, key: Key, owner: str) -> None:
        self.key = key
        self.owner = owner
        self._session = session
        self._apis = apis
        self._reader = JetStreamReader(apis)
        self._writer = JetStreamWriter(apis)

    async def carry_out(self, command: Command, manner: Manner) -> Done:
        """Does it, unless it is refused, there is nothing to do, or the person does not agree."""
        found = await self._look(command)
        decision = _judged(command, found)
        self._tell(decision, quiet=manner.quiet)
        if decision.write is None or manner.dry_run:
            return Done(found, decision)
        if manner.ask and not await confirm(self._session, f"Move {self.key}?"):
            return Done(found, decision, declined=True)
        lease = KvLease(self._apis(""), self.owner, Holder(source=f"a person's command to {self.key}"))
        try:
            async with lease.take():
                found = await self._look(command)
                again = _judged(command, found)
                if again.gist != decision.gist:
                    self._tell_of_changes(again, manner)
                if again.write is None:
                    return Done(found, again)
                lease.check()
                answer = await self._write(again.write)
        except LeaseHeld as held:  # what would come of it was told, and must not be taken for done
            raise LeaseHeld((*held.reasons, f"{self.key} was not changed: stop that process first")) from None
        return Done(found, again, answer, await self._info())

    async def _look(self, command: Command) -> Operated:
        """The consumer and what the command wants to know; refused when it is not there, for RESET then gets no answer."""
        api = self._apis(self.key.domain)
        with self._session.terminal.working(f"looking at {self.key}"):
            account, stream, info, held = await asyncio.gather(
                api.account_info(),
                self._reader.read(StreamInfo(self.key.stream_key)),
                self._reader.read(ConsumerInfo(self.key)),
                self._held(),
            )
            if not isinstance(stream, dict):
                raise Refused((f"there is no {self.key.stream_key}",))
            if not isinstance(info, dict):
                raise Refused((f"there is no {self.key}",))
            found = Operated(
                key=self.key,
                owner=self.owner,
                server=server_facts(api.connection.server, account),
                stream=stream,
                info=info,
                held=held,
            )
            if found.sourcing:
                found = replace(found, readers=await self._readers(found))
            reads = command.reads(found)
            facts = await asyncio.gather(*(self._reader.read(read) for read in reads))
        return replace(found, facts=dict(zip(reads, facts, strict=True)))

    async def _held(self) -> Journal | None:
        """The journal in the hold that a procedure may have put beside the consumer."""
        hold = await self._reader.read(ConsumerInfo(hold_key(self.key)))
        return read_marker(hold["config"].get("metadata")).journal if isinstance(hold, dict) else None

    async def _readers(self, found: Operated) -> tuple[Key, ...]:
        """The streams that read through it: the one in its marker, or those that are seen from here."""
        with suppress(ValueError):  # no marker of that kind, or one that somebody damaged
            return (Key.parse(found.seen.marker.source),)
        domains = dict.fromkeys(("", self.key.domain))
        try:
            return tuple([key for domain in domains async for key in self._reading(domain)])
        except AccessDenied:  # who may not list streams gets on without their names
            return ()

    async def _reading(self, domain: str) -> AsyncIterator[Key]:
        async for page in self._apis(domain).stream_pages():
            if not copies(page):
                continue
            for stream in orjson.loads(page)["streams"] or ():
                config = stream["config"]
                if any(durable_of(entry, domain) == self.key for entry in copied_entries(config)):
                    yield Key("Stream", config["name"], "", domain).resource_key

    async def _write(self, write: Write) -> dict[str, Any]:
        with self._session.terminal.working(f"changing {self.key}"):
            return await self._writer.write(write)

    async def _info(self) -> dict[str, Any] | None:
        info = await self._reader.read(ConsumerInfo(self.key))
        return info if isinstance(info, dict) else None

    def _tell(self, decision: Decision, *, quiet: bool) -> None:
        terminal = self._session.terminal
        for note in decision.notes:
            if note.warning:
                terminal.warn(note.message)
            elif quiet:
                terminal.say(note.message)
            else:
                terminal.lines([note.message])

    def _tell_of_changes(self, decision: Decision, manner: Manner) -> None:
        """What comes of it has become another thing: a person agreed to what it was, `--yes` to whatever it is."""
        message = f"{self.key} has changed since"
        if manner.ask:
            raise Refused((f"{message}: look at it again",))
        self._session.terminal.warn(f"{message}; this is what is done")
        self._tell(decision, quiet=manner.quiet)


@asynccontextmanager
async def operator(session: Session, key: Key, owner: str) -> AsyncIterator[Operator]:
    """Somebody with a connection of their own."""
    async with connected(session) as apis:
        yield Operator(session, apis, key, owner)


def _judged(command: Command, found: Operated) -> Decision:
    """Raises Refused."""
    decision = command.decide(found)
    if decision.refusals:
        raise Refused(tuple(str(reason) for reason in decision.refusals))
    return decision
