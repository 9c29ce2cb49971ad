"""Passes of a daemon on a real server, one by one: what a hint may do, and what waits for a look at everything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import pytest_asyncio

from reconciler.engine import SystemClock
from reconciler.engine.assembly import make_state, tracked_ports
from reconciler.engine.declared import Manifests
from reconciler.engine.dependencies import Failures
from reconciler.engine.passes import Passes
from reconciler.engine.queue import Work
from reconciler.engine.state import DaemonOptions, State
from reconciler.manifests.loader import Loaded
from reconciler.model.identity import Key
from reconciler.observe.board import Board, Process
from reconciler.observe.controls import StatusQuery
from reconciler.observe.metrics import Metrics
from reconciler.plan.change import Action, Author, Cause, Change, Rules
from tests.engine.conftest import Engine
from tests.support.catalogues import consumer, stream, write
from tests.support.meddling import Somebody
from tests.support.servers import Server
from tests.support.telling import Lines, Sink, telemetry_of
from tests.support.wire import Json

S, A, B = Key("Stream", "S"), Key("Consumer", "a", "S"), Key("Consumer", "b", "S")
DOCUMENTS = [stream("S", "s.>"), consumer("S", "a", "s.a"), consumer("S", "b", "s.b")]
SOMEBODY = Author("a-script", "", "")


@dataclass
class Bench:
    """What a daemon is made of, with its passes in the hands of the test."""

    engine: Engine
    somebody: Somebody
    path: Path
    rules: Rules = field(default_factory=Rules)
    lines: Lines = field(default_factory=Lines)
    state: State = field(init=False)
    passes: Passes = field(init=False)

    def __post_init__(self) -> None:
        process = Process(pid=7, host="box", version="1", owner="default")
        telemetry = telemetry_of(Metrics(), Sink(), self.lines)
        self.state = make_state(DaemonOptions(), lambda _: self.rules, telemetry, Board(SystemClock().now, process))
        self.state.leading = True
        self.state.board.connection(True, self.engine.connection.url)
        near = self.engine.ports
        ports = tracked_ports(self.state, near.reader, near.writer, near.lease, lambda _: nullcontext())
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
        looked = asyncio.Event()
        await self.passes.run_once(Work(keys, 0.0), looked)
        assert looked.is_set()

    async def names(self) -> list[str]:
        """The consumers of S."""
        return sorted((await self.somebody.expect("CONSUMER.NAMES.S"))["consumers"] or ())

    def shown(self, key: Key) -> Json:
        """A resource as the status shows it."""
        found = self.state.board.document(StatusQuery(limit=100))["resources"]
        return next(resource for resource in found if resource["key"] == str(key))


@pytest_asyncio.fixture
async def somebody(server: Server) -> AsyncIterator[Somebody]:
    """Another client."""
    async with await Somebody.arrive(server.url) as arrived:
        yield arrived


@pytest_asyncio.fixture
async def bench(engine: Engine, somebody: Somebody, tmp_path: Path) -> Bench:
    """Manifests read, nothing looked at yet."""
    bench = Bench(engine, somebody, write(tmp_path / "all.yaml", DOCUMENTS))
    await bench.manifests.load()
    return bench


async def test_before_everything_was_looked_at_a_hint_neither_reads_nor_writes(bench: Bench) -> None:
    async with bench.somebody.audit() as audit:
        await bench.hint(S, A)
    assert audit.subjects(bench.engine.connection.name) == []
    await bench.full()
    assert await bench.names() == ["a", "b"]


async def test_a_hint_repairs_what_it_is_about_and_nothing_else(bench: Bench) -> None:
    await bench.full()
    for name in ("a", "b"):
        await bench.somebody.edit("S", name, max_deliver=99)
    await bench.hint(A)
    assert [(await bench.somebody.config("S", name))["max_deliver"] for name in ("a", "b")] == [-1, 99]
    assert bench.shown(A)["lastDrift"]["fields"] == ["maxDeliver"]
    await bench.full()
    assert (await bench.somebody.config("S", "b"))["max_deliver"] == -1


async def test_a_hint_never_removes_what_is_not_declared(bench: Bench) -> None:
    bench.rules = Rules(policy="sync")
    await bench.full()
    write(bench.path, DOCUMENTS[:2])
    await bench.manifests.load(full=True)
    await bench.hint(S, A, B)
    assert await bench.names() == ["a", "b"]
    await bench.full()
    assert await bench.names() == ["a"]


async def test_while_the_plan_is_refused_hints_write_nothing(bench: Bench) -> None:
    await bench.full()
    more = [*DOCUMENTS, *(consumer("S", f"c{number}", "s.c", maxDeliver=3) for number in range(9))]
    write(bench.path, more)
    await bench.manifests.load(full=True)
    await bench.full()
    write(bench.path, [{**one, "spec": {**one["spec"], "description": "other"}} for one in more])
    await bench.manifests.load(full=True)
    await bench.full()
    assert [reason.code for reason in bench.state.refused] == ["mass-change"]
    await bench.somebody.edit("S", "a", max_deliver=99)
    await bench.hint(A)
    assert (await bench.somebody.config("S", "a"))["max_deliver"] == 99
    assert bench.shown(A)["state"] == "OutOfSync"


async def test_a_server_that_does_not_answer_is_looked_at_again(bench: Bench, server: Server) -> None:
    await bench.full()
    bench.state.queue.drop_due()
    server.freeze()
    await bench.hint(A)
    await bench.full()
    server.thaw()
    assert bench.state.queue.depth == 2
    assert [line["result"] for line in bench.lines.kept if line["event"] == "pass.ended"][-2:] == ["noop", "error"]
    assert bench.shown(A)["state"] == "Unknown"


async def test_an_author_who_becomes_known_after_the_repair_is_named_once(bench: Bench) -> None:
    """The audit lags behind the advisories."""
    await bench.full()
    await bench.somebody.edit("S", "a", max_deliver=99)
    await bench.hint(A)
    assert bench.shown(A)["lastDrift"]["client"] is None
    bench.state.took_note(A, SOMEBODY)
    await bench.hint(A)
    assert bench.shown(A)["lastDrift"]["client"] == "a-script"
    await bench.somebody.edit("S", "a", max_deliver=77)
    await bench.hint(A)
    assert bench.shown(A)["lastDrift"]["client"] is None


STREAM = Change(key=S, action=Action.UPDATE, cause=Cause.DRIFT)
CONSUMER = Change(key=A, action=Action.UPDATE, cause=Cause.DRIFT)


@pytest.mark.parametrize(
    ("stuck", "other", "held"),
    [
        (STREAM.blocked(), CONSUMER, False),
        (STREAM, CONSUMER, False),
        (STREAM.blocked(), replace(CONSUMER, cause=Cause.MANIFEST), True),
        (replace(STREAM, action=Action.CREATE), CONSUMER, True),
        (replace(STREAM, action=Action.RECREATE).blocked(), CONSUMER, True),
        (replace(STREAM, action=Action.BLOCKED), CONSUMER, True),
    ],
    ids=["blocked update", "failed update", "not a repair", "missing", "made anew", "unknown"],
)
def test_a_stream_that_stands_does_not_hold_back_repairs_of_its_consumers(stuck: Change, other: Change, held: bool) -> None:
    failures = Failures()
    failures.add(stuck, "is not in place")
    assert bool(failures.hold_back(other)) is held
