"""Puts a daemon together: manifests, connection, lease, hints, telemetry, HTTP; and takes it apart again.

Invariant: whatever was started here has ended when `serve` returns.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from reconciler import __version__
from reconciler.cli.connecting import own_name, settings_of
from reconciler.cli.flags.groups import PlanFlags, SourceFlags
from reconciler.cli.flags.rules import rules_of
from reconciler.cli.loading import NOTHING_DECLARED
from reconciler.cli.pen import Pen, pen, streams_of
from reconciler.cli.running.embedded import embedded_server
from reconciler.cli.running.hangup import ends_by_hangup
from reconciler.cli.running.welcome import welcome
from reconciler.cli.saying.exitcodes import ExitCode
from reconciler.cli.session import Session
from reconciler.engine.daemon.assembly import make_state, tracked_ports
from reconciler.engine.daemon.loop import Daemon, Neighbours
from reconciler.engine.daemon.manifests import Manifests
from reconciler.engine.daemon.state import DaemonOptions, DaemonState
from reconciler.errors import Problem, UsageError
from reconciler.jetstream.clock import SystemClock
from reconciler.jetstream.domains import DomainApis
from reconciler.jetstream.hearing.hints import AuditMode, Hint, HintListener, Hints
from reconciler.jetstream.leading.holder import Holder
from reconciler.jetstream.read.reader import JetStreamReader
from reconciler.jetstream.transport.connection import Connection
from reconciler.jetstream.transport.settings import ConnectionSettings
from reconciler.manifests.files.loader import Loaded
from reconciler.model.desired import Desired
from reconciler.observe import logs
from reconciler.observe.events import Events
from reconciler.observe.http.server import HttpServer
from reconciler.observe.metrics import Metrics
from reconciler.observe.status.board import Board, Process
from reconciler.observe.telemetry import Telemetry
from reconciler.plan.change import Rules

log = structlog.get_logger(__name__)

_SAME_WISH = 0.5
"""Seconds within which a second signal is the first one once more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """How `reconciler run` was asked to run."""

    options: DaemonOptions
    embedded: Path | None
    """The data directory of a server of our own."""
    prune_delay: float
    """Seconds."""
    http: str
    http_elsewhere: bool
    """Nobody has named that port: where it is taken, another one will do."""
    http_token: str
    fence: float
    """Seconds to wait for a proof that nothing of the leader before can land any more."""
    audit: str
    for_people: bool
    """The log is text."""
    greets: bool
    """Somebody is told when it has come up, and where to look."""


@dataclass
class _News:
    """What the manifests tell, before and after there is a daemon to hear it."""

    files: tuple[str, ...]
    daemon: Daemon | None = None
    warned: set[Problem] = field(default_factory=set)
    declares: bool = True

    def problems(self, problems: tuple[Problem, ...]) -> None:
        if self.daemon is not None:
            self.daemon.manifests_refused(problems)

    def loaded(self, loaded: Loaded) -> None:
        for warning in loaded.warnings:
            if warning not in self.warned:
                log.warning("manifests.warning", file=warning.file, line=warning.line, code=warning.code, message=warning.message)
        self.warned = set(loaded.warnings)
        if self.declares and not loaded.desired.resources:
            log.warning("manifests.empty", files=list(self.files), message=NOTHING_DECLARED)
        self.declares = bool(loaded.desired.resources)
        if self.daemon is not None:
            self.daemon.manifests_loaded(loaded.desired)


async def serve(session: Session, source: SourceFlags, flags: PlanFlags, serving: Serving) -> ExitCode:
    """Runs until a signal ends it."""
    if not source.files:
        msg = "which manifests? Give a file or directory with -f PATH (or RECONCILER_FILE)"
        raise UsageError(msg)
    address = _address(serving.http)
    news = _News(tuple(source.files))
    session.owner()  # one that was given badly is no fault of the manifests
    manifests = Manifests(
        source.files,
        source.env,
        SystemClock(),
        prune_delay=serving.prune_delay,
        owner=session.owner,
        on_problems=news.problems,
        on_loaded=news.loaded,
    )
    await manifests.load()
    async with AsyncExitStack() as stack:
        if serving.greets and serving.for_people:
            logs.hush()
            stack.callback(logs.speak)
        settings = await _settings(session, manifests.desired, serving, stack)
        connection = await stack.enter_async_context(await Connection.start(settings, own_name()))
        state, apis = _state(session, flags, serving, manifests.desired, connection)
        holder = Holder(source=", ".join(source.files), revision=manifests.desired.revision)
        ours = pen(
            apis,
            state.board.process.owner,
            holder,
            patience=serving.fence,
            streams=lambda: streams_of(state.desired),
            tell=state.fenced,
        )
        hints, daemon = _joined(state, apis, ours, manifests, AuditMode(serving.audit))
        _obey_signals(daemon, ends_by_hangup(embedded=serving.embedded is not None))
        http = HttpServer(daemon.control, state.telemetry.render, token=serving.http_token)
        await http.start(*address, elsewhere=serving.http_elsewhere)
        stack.push_async_callback(http.stop)
        log.info("http.listening", url=http.url)
        news.daemon = daemon
        daemon.manifests_loaded(manifests.desired)
        await hints.start()
        stack.push_async_callback(hints.stop)
        if serving.greets:
            greeting = welcome(session.terminal, daemon.control, settings.servers[0], http.url)
            stack.callback(asyncio.create_task(greeting).cancel)
        await daemon.run()
        log.info("process.stopped")
    return ExitCode.OK


async def _settings(session: Session, desired: Desired, serving: Serving, stack: AsyncExitStack) -> ConnectionSettings:
    if serving.embedded is None:
        return settings_of(session, desired)
    if session.connection.server or session.connection.context:
        msg = "--embedded is a server of our own: give either it or --server/--context"
        raise UsageError(msg)

    def died(why: str) -> None:
        log.error("embedded.died", error=why, way_out="end this process and start it again: the data stays")

    url = await stack.enter_async_context(embedded_server(serving.embedded, died))
    return ConnectionSettings(servers=(url,))


def _state(
    session: Session, flags: PlanFlags, serving: Serving, desired: Desired, connection: Connection
) -> tuple[DaemonState, DomainApis]:
    """What the daemon knows and tells, and what it asks JetStream through."""

    def rules(desired: Desired) -> Rules:
        return rules_of(flags, session.owner(desired.governance.owner, desired.environment))

    owner = rules(desired).owner
    metrics = Metrics()
    telemetry = Telemetry(metrics, structlog.get_logger("reconciler"), Events(owner, connection.publish, metrics))
    process = Process(pid=os.getpid(), host=socket.gethostname(), version=__version__, owner=owner)
    board = Board(SystemClock().now, process)
    return make_state(serving.options, rules, telemetry, board), DomainApis(connection, on_answer=telemetry.api_answered)


def _joined(state: DaemonState, apis: DomainApis, ours: Pen, manifests: Manifests, audit: AuditMode) -> tuple[Hints, Daemon]:
    """The daemon, and the hints that it is told: each knows the other."""

    def on_hint(hint: Hint) -> None:
        daemon.hint(hint.key, hint.author)

    def on_lost(why: str) -> None:
        daemon.hints_lost(why)

    listener = HintListener(on_hint=on_hint, on_lost=on_lost, on_audit=state.audited, wants=state.concerns)
    hints = Hints(apis.connection, listener, audit)
    ports = tracked_ports(state, JetStreamReader(apis), ours.writer, ours.lease, hints.expecting, fence=ours.lease)
    daemon = Daemon(state, Neighbours(ports=ports, link=apis.connection, lease=ours.lease, manifests=manifests, apis=apis))
    return hints, daemon


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal():
        msg = f"--http {text}: expected HOST:PORT, e.g. 127.0.0.1:8080 (port 0: any free one)"
        raise UsageError(msg)
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104 - `:8080` asks for it


def _obey_signals(daemon: Daemon, ends_by_hangup: Callable[[], bool]) -> None:
    loop = asyncio.get_running_loop()
    asked: list[float] = []

    def end(number: int) -> None:
        if asked and loop.time() - asked[0] < _SAME_WISH:
            return  # sent to the process and to its group
        if asked:
            log.warning("process.killed", signal=signal.Signals(number).name)
            os._exit(ExitCode.INTERRUPTED)
        asked.append(loop.time())
        log.info("process.stopping", signal=signal.Signals(number).name)
        daemon.stop()

    def hung_up() -> None:
        if ends_by_hangup():
            end(signal.SIGHUP)
        else:
            daemon.control.reload()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end, number)
    loop.add_signal_handler(signal.SIGHUP, hung_up)
