"""An engine in this process, on a real server: its ports, what it tells its observer, and a lease that can be lost.

Invariant: every connection is closed when the block of `engines` is over.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from reconciler.engine.apply.outcome import Outcome
from reconciler.engine.apply.procedures import Supervisor
from reconciler.engine.apply.run_once import Applied, ApplyOptions, apply_plan
from reconciler.engine.planning import Planned, make_plan
from reconciler.engine.ports import Lease, LiveReader, LiveWriter, Observer, Ports
from reconciler.engine.writing.judging import StepJudge
from reconciler.engine.writing.throttle import Throttle
from reconciler.engine.writing.writes import Order, Writes
from reconciler.errors import LeaseLost
from reconciler.jetstream.clock import SystemClock
from reconciler.jetstream.domains import DomainApis
from reconciler.jetstream.read.reader import JetStreamReader
from reconciler.jetstream.transport.connection import Connection
from reconciler.jetstream.transport.settings import ConnectionSettings
from reconciler.jetstream.writer import JetStreamWriter
from reconciler.model.desired import Declared
from reconciler.model.identity import Key
from reconciler.model.normal import Config, normal_consumer, normal_stream
from reconciler.plan.change import Rules
from tests.support.promises import saw_outcomes, saw_plan
from tests.support.server.process import Server
from tests.support.values.build import desired


@dataclass
class Watcher:
    """Keeps what the engine tells."""

    outcomes: list[Outcome] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    then: Callable[[Outcome], None] = lambda _: None

    def stepped(self, key: Key, title: str) -> None:
        """A procedure took a step."""
        self.steps.append(f"{key}: {title}")

    def finished(self, outcome: Outcome) -> None:
        """A change came to its end."""
        self.outcomes.append(outcome)
        self.then(outcome)


@dataclass
class Right:
    """A lease in the hands of the test."""

    held: bool = True
    checks: int = 0

    def check(self) -> None:
        """Raises when the test has taken it away."""
        self.checks += 1
        if not self.held:
            msg = "the write lease is no longer ours"
            raise LeaseLost(msg)


@dataclass
class Engine:
    """One engine with its own connection."""

    connection: Connection
    ports: Ports
    writer: LiveWriter
    watcher: Watcher
    lease: Right
    answers: list[Callable[[str], None]] = field(default_factory=list)
    """Told of each answer of the server: `ok`, or the code of the error."""

    async def plan(self, *resources: Declared, **rules: object) -> Planned:
        """What would be done for these manifests."""
        planned = await make_plan(desired(*resources), Rules(**rules), self.ports.reader)  # type: ignore[arg-type]  # the test names them
        saw_plan(planned.plan)
        return planned

    async def apply(self, *resources: Declared, rules: Rules | None = None, **options: object) -> Applied:
        """Plan and apply these manifests."""
        planned = await make_plan(desired(*resources), rules or Rules(), self.ports.reader)
        saw_plan(planned.plan)
        applied = await apply_plan(planned, self.ports, ApplyOptions(**{"timeout": 20.0, **options}))  # type: ignore[arg-type]
        saw_outcomes(applied.outcomes)
        return applied

    def through(self, writer: LiveWriter) -> Ports:
        """Its ports, with another writer."""
        return ports_on(self.ports.reader, writer, self.lease, self.watcher)


def ports_on(reader: LiveReader, writer: LiveWriter, lease: Lease, watcher: Observer) -> Ports:
    """What an engine runs on."""
    clock = SystemClock()
    return Ports(reader, Writes(reader, writer, clock, Throttle(0, clock)), lease, clock, watcher)


def order_of(ports: Ports) -> Order:
    """An order that nothing stands behind but the lease."""
    return Order(permit=ports.lease, judge=StepJudge(ports.reader, {}), normal=plain)


def supervisor_on(ports: Ports) -> Supervisor:
    """Runs procedures, with nothing but the lease as a right."""
    return Supervisor(ports, plain, lambda _: ports.lease)


Start = Callable[..., Awaitable[Engine]]


def plain(key: Key, config: Config) -> Config:
    """Normal forms of streams and consumers without consumer limits."""
    return normal_consumer(config) if key.kind == "Consumer" else normal_stream(config, key.stream_name)


@asynccontextmanager
async def engines() -> AsyncIterator[Start]:
    """Makes engines on servers of the test's choice."""
    async with AsyncExitStack() as stack:

        async def started(server: Server, timeout: float = 2.0) -> Engine:  # noqa: ASYNC109 - a setting
            connection = await stack.enter_async_context(
                await Connection.open(ConnectionSettings(servers=(server.url,), timeout=timeout))
            )
            listeners: list[Callable[[str], None]] = []

            def answered(_operation: str, code: str, _seconds: float) -> None:
                for listener in listeners:
                    listener(code)

            apis = DomainApis(connection, on_answer=answered)
            watcher, lease = Watcher(), Right()
            ports = ports_on(JetStreamReader(apis), JetStreamWriter(apis), lease, watcher)
            return Engine(connection, ports, JetStreamWriter(apis), watcher, lease, listeners)

        yield started
