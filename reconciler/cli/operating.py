"""A person's command to one consumer: look, judge, tell, ask, take the lease, look and judge again, send it.

Invariant: at most one changing request, sent while the lease was held, and judged by what was there then.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from reconciler.cli.connecting import connected
from reconciler.cli.daemon_client import DaemonFlags
from reconciler.cli.pen import pen, taken, tell_fence, telling_of_daemon, through_daemon
from reconciler.cli.saying.confirm import confirm
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
from reconciler.plan.requests.pause import Command, Decision, Operated, Pause
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
        self._tell(decision, quiet=manner.quiet)
        if decision.write is None or manner.dry_run:
            return CommandResult(found, decision)
        if manner.ask and not await confirm(self._session, f"Move {self.key}?"):
            return CommandResult(found, decision, declined=True)
        with telling_of_daemon(f"{self.key} was not changed"):  # what would come of it was told, and must not be taken for done
            answer = await self._through_daemon(command, found, decision)
            if answer is None:
                found, decision, answer = await self._with_lease(command, decision, manner)
        return CommandResult(found, decision, answer, await self._info())

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
                self._tell_of_changes(again, manner)
            with self._session.terminal.working(f"changing {self.key}"):
                return found, again, await self._operator.send(self._writes, lease, command, again)

    async def _look(self, command: Command) -> Operated:
        with self._session.terminal.working(f"looking at {self.key}"):
            return await self._operator.look(command)

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

    def _tell_of_changes(self, decision: Decision, manner: CommandManner) -> None:
        """What comes of it has become another thing: a person agreed to what it was, `--yes` to whatever it is."""
        message = f"{self.key} has changed since"
        if manner.ask:
            raise Refused((f"{message}: look at it again",))
        self._session.terminal.warn(f"{message}; this is what is done")
        self._tell(decision, quiet=manner.quiet)


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
