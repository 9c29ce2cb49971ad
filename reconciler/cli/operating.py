"""A person's command to one consumer: look, judge, tell, ask, take the lease, look and judge again, send it.

Invariant: at most one changing request, sent while the lease was held, and judged by what was there then. Before that, what
comes of it is told as what would be, or not at all.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from reconciler.cli.connecting import connected
from reconciler.cli.daemon_client import DaemonFlags
from reconciler.cli.pen import pen, taken, tell_fence, telling_of_daemon, through_daemon
from reconciler.cli.saying.confirm import confirm
from reconciler.cli.saying.terminal import Terminal
from reconciler.cli.session import Session
from reconciler.engine import operating
from reconciler.engine.operating import judged
from reconciler.engine.writing.throttle import Throttle
from reconciler.engine.writing.writes import Reply, Writes
from reconciler.errors import Refused
from reconciler.jetstream.clock import SystemClock
from reconciler.jetstream.domains import DomainApis
from reconciler.jetstream.leading.holder import Holder
from reconciler.jetstream.read.reader import JetStreamReader
from reconciler.model import units
from reconciler.model.identity import Key
from reconciler.plan.requests.pause import Command, Decision, Note, Operated, Pause
from reconciler.plan.requests.reset import Reset
from reconciler.procedures.requests import ConsumerInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandManner:
    """How a command is given."""

    ask: bool = False
    """A person has to agree first."""
    dry_run: bool = False
    quiet: bool = False
    """stdout is for the document alone."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What became of a command."""

    found: Operated
    decision: Decision
    answer: dict[str, Any] | None = None
    """The server's; None when nothing was sent."""
    after: dict[str, Any] | None = None
    """INFO after it."""
    declined: bool = False
    """A person was asked, and did not agree."""
    untold: tuple[Note, ...] = ()
    """What was not told before it was done; it is so now."""


class ConsumerCommand:
    """Somebody at work on one consumer."""

    def __init__(self, session: Session, apis: DomainApis, key: Key, owner: str, daemon: DaemonFlags) -> None:
        self.key = key
        self.owner = owner
        self._session = session
        self._apis = apis
        daemon.client()  # an address that means nothing is said at once
        self._daemon = daemon
        self._reader = JetStreamReader(apis)
        self._operator = operating.Operator(apis, self._reader, key, owner)
        source = f"a person's command to {key}"
        ours = pen(
            apis,
            owner,
            Holder(source=source),
            streams=lambda: {key.stream_key},
            tell=lambda news: tell_fence(session.terminal, news),
        )
        clock = SystemClock()
        self._lease = ours.lease
        self._writes = Writes(self._reader, ours.writer, clock, Throttle(0, clock), fence=ours.lease)

    async def carry_out(self, command: Command, manner: CommandManner) -> CommandResult:
        """Does it, unless it is refused, there is nothing to do, or the person does not agree."""
        found = await self._look(command)
        decision = judged(command, found)
        if decision.write is None:
            self._tell(decision.notes, quiet=manner.quiet)
            return CommandResult(found, decision)
        self._tell_ahead(decision, manner)
        if manner.dry_run:
            return CommandResult(found, decision)
        if manner.ask and not await confirm(self._session, f"Move {self.key}?"):
            return CommandResult(found, decision, declined=True)
        with telling_of_daemon(f"{self.key} was not changed"):
            answer = await self._through_daemon(command, found, decision)
            if answer is None:
                found, decision, answer = await self._with_lease(command, decision, manner)
        untold = () if manner.ask else tuple(note for note in decision.notes if not note.warning)
        return CommandResult(found, decision, answer, await self._info(), untold=untold)

    async def _through_daemon(self, command: Command, found: Operated, decision: Decision) -> Reply | None:
        action, asked = _asked(command, found)
        asked |= {"key": str(self.key), "agreed": ",".join(decision.gist)}
        done = await through_daemon(
            self._session.terminal,
            self._lease,
            self._daemon,
            f"change {self.key}",
            lambda daemon, holder: daemon.operate(f"consumer/{action}", {**asked, "holder": holder}),
        )
        return done.get("answer") if done else None

    async def _with_lease(
        self, command: Command, decision: Decision, manner: CommandManner
    ) -> tuple[Operated, Decision, Reply | None]:
        async with taken(self._session.terminal, self._lease) as lease:
            found = await self._look(command)
            again = judged(command, found)
            if again.gist != decision.gist:
                self._warn_of_changes(decision, again, manner)
            with self._session.terminal.working(f"changing {self.key}"):
                return found, again, await self._operator.send(self._writes, lease, command, again)

    async def _look(self, command: Command) -> Operated:
        with self._session.terminal.working(f"looking at {self.key}"):
            return await self._operator.look(command)

    async def _info(self) -> dict[str, Any] | None:
        info = await self._reader.read(ConsumerInfo(self.key))
        return info if isinstance(info, dict) else None

    def _tell_ahead(self, decision: Decision, manner: CommandManner) -> None:
        """All that would come of it, where it is not done without a further word; else what may not be wanted."""
        if manner.ask or manner.dry_run:
            would_be = Note("would-be", f"if {self.key} is changed so:")
            self._tell((would_be, *decision.notes), quiet=manner.quiet)
        else:
            self._tell(filter(_warns, decision.notes), quiet=manner.quiet)

    def _tell(self, notes: Iterable[Note], *, quiet: bool) -> None:
        tell_notes(self._session.terminal, notes, quiet=quiet)

    def _warn_of_changes(self, before: Decision, decision: Decision, manner: CommandManner) -> None:
        """What comes of it has become another thing: a person agreed to what it was, `--yes` to whatever it is."""
        message = f"{self.key} has changed since"
        if manner.ask:
            raise Refused((f"{message}: look at it again",))
        self._session.terminal.warn(f"{message}, and is judged anew")
        told = {note.code for note in before.notes}
        self._tell((note for note in decision.notes if note.warning and note.code not in told), quiet=manner.quiet)


def tell_notes(terminal: Terminal, notes: Iterable[Note], *, quiet: bool) -> None:
    """Warnings are for stderr; so is all else, where stdout is for a document."""
    for note in notes:
        if note.warning:
            terminal.warn(note.message)
        elif quiet:
            terminal.say(note.message)
        else:
            terminal.lines([note.message])


def _warns(note: Note) -> bool:
    return note.warning


@asynccontextmanager
async def operator(session: Session, key: Key, owner: str, daemon: DaemonFlags) -> AsyncIterator[ConsumerCommand]:
    """Somebody with a connection of their own."""
    async with connected(session) as apis:
        yield ConsumerCommand(session, apis, key, owner, daemon)


def _asked(command: Command, found: Operated) -> tuple[str, dict[str, str]]:
    """How a daemon is asked for it."""
    match command:
        case Pause():
            return "pause", {"until": units.format_time(command.deadline(found))}
        case Reset(seq):
            return "reset", {"seq": str(seq)} if seq is not None else {}
        case _:
            return "resume", {}
