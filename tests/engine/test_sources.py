"""What a daemon does about its sources, look by look, with the answers in the hands of the test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from reconciler.engine.apply.outcome import No, Outcome
from reconciler.engine.apply.procedures import Supervisor
from reconciler.engine.daemon.aftermath import Aftermath
from reconciler.engine.daemon.assembly import make_state, tracked_ports
from reconciler.engine.daemon.keeper import Running
from reconciler.engine.daemon.state import DaemonOptions, DaemonState
from reconciler.engine.sources.watch import SourcesWatch
from reconciler.errors import NoResponders
from reconciler.model import units
from reconciler.model.identity import Key
from reconciler.model.kinds.common import Intent
from reconciler.observe.http.controls import StatusQuery
from reconciler.observe.metrics import Metrics
from reconciler.observe.status.board import Board, Process
from reconciler.plan.change import Action, Cause, Change, Rules
from reconciler.procedures.machine import Done
from reconciler.procedures.requests import Absent, ConsumerInfo, Fact, Read, StreamInfo, Write
from tests.support.daemon.telling import Lines, Sink, telemetry_of
from tests.support.values import build

A, S, C = Key("Stream", "A"), Key("Stream", "S"), Key("Consumer", "c", "S")
SPEC = {"sources": [{"name": "S", "consumer": {"name": "c", "deliverSubject": "d"}}]}
DURABLE = build.consumer("S", "c", {"ackPolicy": "flow_control", "deliverSubject": "d"})
BOUND = {"push_bound": True}


@dataclass
class World:
    """A server, the time, the lease, and what a keeper was given to do."""

    state: DaemonState = field(init=False)
    sources: SourcesWatch = field(init=False)
    lines: Lines = field(default_factory=Lines)
    seconds: float = 1000.0
    active: int = 10**8
    durable: dict[str, Any] | None = field(default_factory=lambda: dict(BOUND))
    reads: list[Read] = field(default_factory=list)
    begun: list[Running] = field(default_factory=list)
    owned: set[Key] = field(default_factory=set)
    room: int = 32
    asked: Callable[[Read], None] = lambda _: None
    """Called with each read; may raise what a request raises."""

    def __post_init__(self) -> None:
        process = Process(pid=7, host="box", version="1", owner="default")
        telemetry = telemetry_of(Metrics(), Sink(), self.lines)
        self.state = make_state(DaemonOptions(), lambda _: Rules(), telemetry, Board(self.now, process))
        self.state.keeper = self  # type: ignore[assignment]  # the part of a keeper that is used here
        self.state.leading = self.state.trusted = self.state.passed = True
        self.state.board.connection(True, "nats://box")
        self.state.live = build.live()
        self.declare(build.stream("A", SPEC), DURABLE)
        self.sources = SourcesWatch(
            self.state, replace(tracked_ports(self.state, self, self, self, lambda _: nullcontext()), clock=self)
        )

    def fits(self, write: Any, level: int = 0) -> None:
        """It takes everything."""

    def declare(self, *resources: Any) -> None:
        """Other manifests."""
        self.state.declared = build.desired(*resources)

    def owns(self, key: Key) -> bool:
        """As a keeper: whether a procedure works on it."""
        return key in self.owned

    def owns_any(self, keys: Iterable[Key]) -> bool:
        """As a keeper: whether one works on any of them."""
        return not self.owned.isdisjoint(keys)

    def of(self, key: Key) -> Running | None:
        """As a keeper: what works on it, as far as it was begun here."""
        return next((running for running in self.begun if key in running.keys & self.owned), None)

    def begin(self, running: Running, _: Supervisor) -> None:
        """As a keeper: it never ends."""
        self.begun.append(running)

    def now(self) -> int:
        """As a clock."""
        return int(self.seconds * units.SECOND)

    def monotonic(self) -> float:
        """As a clock."""
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        """As a clock."""
        self.seconds += seconds
        await asyncio.sleep(0)

    async def read(self, read: Read) -> Fact:
        """As a server: what the test has made of it."""
        self.reads.append(read)
        self.asked(read)
        if read == StreamInfo(A):
            told = {"name": "S", "active": self.active, "lag": 0}
            return build.stream_info(build.stream("A", SPEC).config) | {"sources": [told]}
        if read == ConsumerInfo(C):
            return build.consumer_info("S", DURABLE.config, **self.durable) if self.durable is not None else Absent()
        assert read == StreamInfo(S)
        return build.stream_info({"name": "S"})

    async def snapshot(self, _: Any) -> Any:
        """Never asked for."""
        raise NotImplementedError

    async def changed(self, *_: Any) -> Any:
        """Nor this."""
        raise NotImplementedError

    async def refresh(self, *_: Any) -> Any:
        """Never asked for."""
        raise NotImplementedError

    async def write(self, _: Write, level: int = 0) -> dict[str, Any]:
        """Never sent: what is begun ends in the hands of the keeper."""
        raise NotImplementedError

    def check(self) -> None:
        """The lease is held."""

    async def looks(self, seconds: float) -> None:
        """Looks every three seconds; a source that is not heard is silent for longer and longer."""
        for _ in range(int(seconds / 3)):
            self.seconds += 3
            if self.active > 2 * units.SECOND:
                self.active += 3 * units.SECOND
            await self.sources.look()

    def shown(self) -> Mapping[str, Any]:
        """The source in the status."""
        (source,) = self.state.board.document(StatusQuery())["sources"]
        found: Mapping[str, Any] = source
        return found

    def told(self) -> list[str]:
        """The log lines about sources."""
        return [line["event"] for line in self.lines.kept if line["event"].startswith("source.")]

    def metric(self, name: str) -> float:
        """One metric with its labels."""
        lines = self.state.telemetry.render().decode().splitlines()
        return next(float(line.split()[-1]) for line in lines if line.startswith(f"{name} "))

    async def watched(self, seconds: float) -> None:
        """As the daemon has it looked at, for so long."""
        watch, until = asyncio.create_task(self.sources.watch()), self.seconds + seconds
        while self.seconds < until:  # noqa: ASYNC110 - time passes only while it is watched
            await asyncio.sleep(0)
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)

    def detach(self) -> None:
        """The server does not get through any more."""
        self.durable, self.active = {}, 2 * units.SECOND + 1


@pytest.fixture
def world() -> World:
    """One source that flows."""
    return World()


async def test_nothing_is_read_where_there_are_no_sources(world: World) -> None:
    world.declare(build.stream("S"))
    await world.looks(9)
    assert not world.reads


async def test_what_flows_costs_two_reads_a_look(world: World) -> None:
    await world.looks(3)
    world.reads.clear()
    await world.looks(30)
    assert len(world.reads) == 20
    assert not world.told()
    assert world.shown()["state"] == "Flowing"


async def test_a_stall_is_told_once_and_so_is_its_end(world: World) -> None:
    await world.looks(6)
    world.durable, world.active = None, 2 * units.SECOND + 1
    await world.looks(30)
    assert world.told() == ["source.stalled"]
    world.durable, world.active = dict(BOUND), 0
    await world.looks(12)
    assert world.told() == ["source.stalled", "source.recovered"]


async def test_who_does_not_lead_shows_a_stall_and_tells_nobody(world: World) -> None:
    world.state.leading = False
    await world.looks(6)
    world.detach()
    await world.looks(30)
    assert world.shown()["cause"] == "not-bound"
    assert not world.told()
    assert not world.begun


async def test_it_is_kicked_three_times_and_then_given_up_until_it_flows(world: World) -> None:
    await world.looks(6)
    world.detach()
    await world.looks(60)
    assert [running.change.key for running in world.begun] == [A, A]
    assert world.begun[0].keys == {A, C}
    assert world.begun[0].change.machine is not None
    assert world.begun[0].change.machine.name == "kick-source"
    await world.looks(300)
    assert len(world.begun) == 3
    assert world.told() == ["source.stalled", *["source.kicked"] * 3, "source.given_up"]
    assert world.shown()["state"] == "Stalled"
    world.durable, world.active = dict(BOUND), 0
    await world.looks(12)
    world.detach()
    await world.looks(15)
    assert len(world.begun) == 4


@pytest.mark.parametrize(
    "why", ["not leading", "report", "busy", "owned", "suspended", "other entry", "somebody else's", "dry run"]
)
async def test_it_is_not_kicked(world: World, why: str) -> None:
    state, other = world.state, {"sources": [{"name": "S", "consumer": {"name": "c", "deliverSubject": "other"}}]}
    match why:
        case "not leading":
            state.leading = False
        case "report":
            state.options = replace(state.options, repair_drift=False)
        case "dry run":
            state.options = replace(state.options, dry_run=True)
        case "busy":
            state.busy = {C}
        case "owned":
            world.owned = {A}
        case "suspended":
            world.declare(build.stream("A", SPEC, Intent(suspend=True)), DURABLE)
        case "other entry":
            world.declare(build.stream("A", other), DURABLE)
        case _:
            world.declare(build.stream("A", SPEC))
    await world.looks(6)
    world.detach()
    await world.looks(60)
    assert not world.begun


async def test_a_durable_that_is_not_there_is_looked_at_by_a_pass_and_not_kicked(world: World) -> None:
    await world.looks(6)
    world.durable, world.active = None, 2 * units.SECOND + 1
    await world.looks(12)
    work = await world.state.agenda.take()
    assert work.keys == {C}
    assert world.shown()["cause"] == "consumer-missing"
    assert not world.begun


async def test_a_kick_under_way_is_no_pause_and_does_not_end_the_stall(world: World) -> None:
    await world.looks(6)
    world.detach()
    await world.looks(15)
    (kick,) = world.begun
    began = world.shown()["stalledSince"]
    world.owned = set(kick.keys)
    await world.looks(6)
    assert (world.shown()["state"], world.shown()["pausedBy"]) == ("Stalled", None)
    world.owned.clear()
    await world.looks(6)
    assert world.shown()["stalledSince"] == began
    assert world.told() == ["source.stalled", "source.kicked"]


async def test_a_stall_is_not_over_because_nobody_could_see_it_for_a_while(world: World) -> None:
    await world.looks(6)
    world.durable, world.active = None, 2 * units.SECOND + 1
    await world.looks(12)
    began = world.shown()["stalledSince"]

    def silent(asked: Read) -> None:
        raise NoResponders(str(asked))

    world.asked = silent
    await world.looks(6)
    assert (world.shown()["state"], world.shown()["stalledSince"]) == ("Unknown", began)
    assert world.metric('reconciler_sources{health="unknown"}') == 1
    world.asked = lambda _: None
    await world.looks(6)
    assert (world.shown()["state"], world.shown()["stalledSince"]) == ("Stalled", began)
    assert world.told() == ["source.stalled"]
    world.asked = silent
    await world.looks(6)
    world.asked, world.durable, world.active = lambda _: None, dict(BOUND), 0
    await world.looks(6)
    assert world.told() == ["source.stalled", "source.recovered"]


async def test_other_manifests_while_it_looks_make_the_look_worth_nothing(world: World) -> None:
    world.asked = lambda _: world.declare(build.stream("A", SPEC), DURABLE)
    await world.looks(3)
    assert not world.state.board.document(StatusQuery())["sources"]


async def test_silence_is_waiting_and_without_a_connection_nothing_is_known(world: World) -> None:
    await world.looks(6)

    def silent(asked: Read) -> None:
        if asked != StreamInfo(A):
            raise NoResponders(str(asked))

    world.asked = silent
    world.active = 2 * units.SECOND + 1
    await world.looks(15)
    assert (world.shown()["state"], world.shown()["cause"]) == ("Waiting", "domain")
    assert world.metric('reconciler_source_stalled{cause="domain"}') == 1
    work = await world.state.agenda.take()
    assert work.keys == {S, C}, "what is not seen any more is not called Synced for long"
    world.state.agenda.done(work)
    await world.looks(15)
    assert not world.state.agenda.depth, "once is enough"
    world.state.board.connection(False, "")
    assert (world.shown()["state"], world.shown()["cause"]) == ("Unknown", None)
    await world.watched(6)
    assert world.metric('reconciler_source_stalled{cause="domain"}') == 0
    assert world.metric('reconciler_sources{health="unknown"}') == 1


async def test_whose_durable_is_silent_is_not_asked_for_the_origin_as_well(world: World) -> None:
    await world.looks(6)

    def silent(asked: Read) -> None:
        if asked == ConsumerInfo(C):
            raise NoResponders(str(asked))

    world.asked, world.active = silent, 2 * units.SECOND + 1
    world.reads.clear()
    await world.looks(30)
    assert StreamInfo(S) not in world.reads
    assert world.shown()["cause"] == "domain"


async def test_a_look_that_crashes_leaves_nobody_with_what_was_seen_before(world: World) -> None:
    await world.watched(6)
    assert world.shown()["state"] == "Flowing"

    def crash(_: Read) -> None:
        msg = "a bug"
        raise ZeroDivisionError(msg)

    world.asked = crash
    await world.watched(6)
    assert (world.shown()["state"], world.shown()["message"]) == ("Unknown", "the last look crashed; the log says more")
    assert world.metric('reconciler_sources{health="flowing"}') == 0
    world.asked = lambda _: None
    await world.watched(6)
    assert world.shown()["state"] == "Flowing"


async def test_a_kick_that_ends_settles_nothing_that_was_planned(world: World) -> None:
    await world.looks(6)
    world.detach()
    await world.looks(15)
    (kick,) = world.begun
    blocked = Change(key=A, action=Action.BLOCKED, cause=Cause.MANIFEST)
    world.state.open[A] = blocked
    aftermath = Aftermath(world.state)
    for result in (Done(), No("it says")):
        aftermath.procedure_ended(kick, Outcome(kick.change, result, 1.0))
        assert world.state.open == {A: blocked}
        assert not world.state.agenda.counts()
        looked_at = await world.state.agenda.take()
        assert looked_at.keys <= {A, C}
        world.state.agenda.done(looked_at)
