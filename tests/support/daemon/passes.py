"""A daemon taken apart: its state and its passes in the hands of the test, on a real server."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from reconciler.engine.daemon.assembly import make_state, tracked_ports
from reconciler.engine.daemon.manifests import Manifests
from reconciler.engine.daemon.passes import Passes
from reconciler.engine.daemon.queue import Work
from reconciler.engine.daemon.state import DaemonOptions, DaemonState
from reconciler.jetstream.clock import SystemClock
from reconciler.manifests.files.loader import Loaded
from reconciler.model.identity import Key
from reconciler.observe.http.controls import StatusQuery
from reconciler.observe.metrics import Metrics
from reconciler.observe.status.board import Board, Process
from reconciler.plan.change import Rules
from tests.support.account.meddling import Somebody
from tests.support.account.wire import Json
from tests.support.daemon.engine import Engine
from tests.support.daemon.telling import Lines, Sink, telemetry_of
from tests.support.values.catalogues import consumer, stream

S, A, B = Key("Stream", "S"), Key("Consumer", "a", "S"), Key("Consumer", "b", "S")
DOCUMENTS = [stream("S", "s.>"), consumer("S", "a", "s.a"), consumer("S", "b", "s.b")]


@dataclass
class Bench:
    """What a daemon is made of, with its passes in the hands of the test."""

    engine: Engine
    somebody: Somebody
    path: Path
    rules: Rules = field(default_factory=Rules)
    lines: Lines = field(default_factory=Lines)
    state: DaemonState = field(init=False)
    passes: Passes = field(init=False)

    def __post_init__(self) -> None:
        process = Process(pid=7, host="box", version="1", owner="default")
        telemetry = telemetry_of(Metrics(), Sink(), self.lines)
        self.state = make_state(DaemonOptions(), lambda _: self.rules, telemetry, Board(SystemClock().now, process))
        self.state.leading = True
        self.state.board.connection(True, self.engine.connection.url)
        near = self.engine.ports
        ports = tracked_ports(self.state, near.reader, self.engine.writer, near.lease, lambda _: nullcontext())
        manifests = Manifests([str(self.path)], None, SystemClock(), on_problems=lambda _: None, on_loaded=self._loaded)
        self.manifests, self.passes = manifests, Passes(self.state, ports, manifests)

    def _loaded(self, loaded: Loaded) -> None:
        self.state.declared = loaded.desired

    async def full(self) -> None:
        """A pass over everything."""
        await self._run(frozenset())

    async def hint(self, *keys: Key) -> None:
        """A pass over these keys."""
        await self._run(frozenset(keys))

    async def _run(self, keys: frozenset[Key]) -> None:
        await self.passes.run_once(Work(keys, 0.0))

    async def names(self) -> list[str]:
        """The consumers of S."""
        return sorted((await self.somebody.expect("CONSUMER.NAMES.S"))["consumers"] or ())

    def shown(self, key: Key) -> Json:
        """A resource as the status shows it."""
        found = self.state.board.document(StatusQuery(limit=100))["resources"]
        return next(resource for resource in found if resource["key"] == str(key))
