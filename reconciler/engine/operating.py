"""A person's command to one consumer: look, judge, and send it the way that every write goes.

Invariant: at most one changing request, judged by what is there just before it is sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, replace

import orjson

from reconciler.engine.ports import LiveReader
from reconciler.engine.writing.turns import Rank
from reconciler.engine.writing.writes import Order, Permit, Reply, Writes
from reconciler.errors import AccessDenied, Refused
from reconciler.jetstream.domains import DomainApis
from reconciler.jetstream.read.snapshot import server_facts
from reconciler.model.flow import copied_entries, copies
from reconciler.model.identity import Key
from reconciler.model.marker import Journal, read_marker
from reconciler.model.normal import Config
from reconciler.model.sourcing import durable_of
from reconciler.plan.requests.pause import Command, Decision, Operated
from reconciler.procedures.holds import hold_key
from reconciler.procedures.requests import ConsumerInfo, StreamInfo, Write


class Operator:
    """Somebody at work on one consumer."""

    def __init__(self, apis: DomainApis, reader: LiveReader, key: Key, owner: str) -> None:
        self.key = key
        self.owner = owner
        self._apis = apis
        self._reader = reader

    async def look(self, command: Command) -> Operated:
        """The consumer and what the command wants to know; refused when it is not there, for RESET then gets no answer."""
        api = self._apis(self.key.domain)
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
        return read_marker(hold["config"].get("metadata"), hold_key(self.key).mark).journal if isinstance(hold, dict) else None

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

    async def send(self, writes: Writes, permit: Permit, command: Command, decision: Decision) -> Reply | None:
        """The server's answer, once the command was found to be still what it was decided to be."""
        if decision.write is None:
            return None
        order = Order(permit=permit, judge=_Still(self, command, decision.gist), normal=_as_it_is, rank=Rank.REPAIR)
        return await writes.send(decision.write, order)


@dataclass(frozen=True, slots=True)
class _Still:
    """Decides once more on a fresh look: the numbers may have moved, what was agreed to may not."""

    operator: Operator
    command: Command
    agreed: tuple[str, ...]

    async def judged(self, write: Write) -> Write | None:
        """What comes of the command by now; raises Refused when that is another thing."""
        del write
        again = judged(self.command, await self.operator.look(self.command))
        still_agreed(self.operator.key, again, self.agreed)
        return again.write


def judged(command: Command, found: Operated) -> Decision:
    """Raises Refused."""
    decision = command.decide(found)
    if decision.refusals:
        raise Refused(tuple(str(reason) for reason in decision.refusals))
    return decision


def still_agreed(key: Key, decision: Decision, agreed: tuple[str, ...]) -> None:
    """Raises Refused when something else would come of it than what somebody said yes to."""
    if decision.gist != agreed:
        raise Refused((f"{key} has changed since: look at it again",))


def _as_it_is(_key: Key, config: Config) -> Config:
    """No command writes configurations."""
    return config
