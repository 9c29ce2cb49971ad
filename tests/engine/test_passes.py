"""Passes of a daemon on a real server, one by one: what a hint may do, and what waits for a look at everything."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from reconciler.engine.apply.dependencies import Failures
from reconciler.engine.daemon.fights import TIMES
from reconciler.engine.ports import LiveWriter
from reconciler.model.identity import Key
from reconciler.model.seen.live import Live
from reconciler.model.seen.wanted import Wanted
from reconciler.plan.change import Action, Author, Cause, Change, Mass, Rules
from reconciler.procedures.requests import CreateConsumer, Write
from tests.support.account.meddling import Somebody
from tests.support.account.wire import Json
from tests.support.daemon.engine import Engine
from tests.support.daemon.passes import DOCUMENTS, A, B, Bench, S
from tests.support.server.process import Server
from tests.support.values.catalogues import consumer, stream, write

SOMEBODY = Author("a-script", "", "")


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
    assert bench.shown(A)["lastDrift"]["changes"] == [{"field": "maxDeliver", "declared": -1, "live": 99}]
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


async def test_while_too_much_is_wanted_hints_repair_and_do_nothing_of_it(bench: Bench) -> None:
    await bench.full()
    more = [*DOCUMENTS, *(consumer("S", f"c{number}", "s.c", maxDeliver=3) for number in range(9))]
    write(bench.path, more)
    await bench.manifests.load(full=True)
    await bench.full()
    other = [{**one, "spec": {**one["spec"], "description": "other"}} for one in more[2:]]
    write(bench.path, [*more[:2], *other])
    await bench.manifests.load(full=True)
    await bench.full()
    assert list(bench.state.stopped) == [Mass.UPDATED]
    for name in ("a", "b"):
        await bench.somebody.edit("S", name, max_deliver=99)
    await bench.hint(A, B)
    assert [(await bench.somebody.config("S", name))["max_deliver"] for name in ("a", "b")] == [-1, 99]
    assert [bench.shown(key)["state"] for key in (A, B)] == ["Synced", "OutOfSync"]


async def test_what_is_removed_bit_by_bit_within_an_hour_is_counted_together(bench: Bench) -> None:
    bench.rules = Rules(policy="sync")
    everything = [*DOCUMENTS, *(consumer("S", f"c{number}", "s.c") for number in range(17))]
    for less, left in ((0, 19), (4, 15), (8, 15)):
        write(bench.path, everything[: len(everything) - less])
        await bench.manifests.load(full=True)
        if less:
            await bench.somebody.edit("S", "a", max_deliver=99)
        await bench.full()
        assert len(await bench.names()) == left
        assert (await bench.somebody.config("S", "a"))["max_deliver"] == -1, "that is drift, and repaired"
    assert list(bench.state.stopped) == [Mass.REMOVED]
    bench.state.recollection._monotonic = lambda: math.inf
    await bench.full()
    await bench.full()
    assert len(await bench.names()) == 11


async def test_a_server_that_does_not_answer_is_looked_at_again(bench: Bench, server: Server) -> None:
    await bench.full()
    bench.state.agenda._queue.drop_due()
    server.freeze()
    await bench.hint(A)
    await bench.full()
    server.thaw()
    assert bench.state.agenda.depth == 2
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


async def test_a_fight_names_who_became_known_after_an_earlier_repair(bench: Bench) -> None:
    await bench.full()
    for number in range(TIMES + 1):
        await bench.somebody.edit("S", "a", max_deliver=99)
        await bench.hint(A)
        if number == 0:
            bench.state.took_note(A, SOMEBODY)
            await bench.hint(A)
    (line,) = (line for line in bench.lines.kept if line["event"] == "drift.fighting")
    assert (line["field"], line["client"]) == ("maxDeliver", "a-script")
    assert bench.shown(A)["fight"]["client"] == "a-script"
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


async def test_a_hint_is_repaired_while_a_look_at_everything_waits_for_an_answer(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.full()
    looking, answered, reader = asyncio.Event(), asyncio.Event(), bench.engine.ports.reader
    snapshot = reader.snapshot

    async def late(wanted: Wanted) -> Live:
        live = await snapshot(wanted)
        looking.set()
        await answered.wait()
        return live

    monkeypatch.setattr(reader, "snapshot", late)
    full = asyncio.create_task(bench.full())
    await looking.wait()
    await bench.somebody.edit("S", "a", max_deliver=99)  # after it was looked at
    await asyncio.wait_for(bench.hint(A), 10)
    assert (await bench.somebody.config("S", "a"))["max_deliver"] == -1
    async with bench.somebody.audit() as audit:
        answered.set()
        await full
    assert audit.writes("reconciler") == [], "what was repaired meanwhile is known"


async def test_before_other_manifests_were_held_against_everything_a_hint_waits(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.full()
    looking, answered, reader = asyncio.Event(), asyncio.Event(), bench.engine.ports.reader
    snapshot = reader.snapshot

    async def late(wanted: Wanted) -> Live:
        looking.set()
        await answered.wait()
        return await snapshot(wanted)

    monkeypatch.setattr(reader, "snapshot", late)
    write(bench.path, [*DOCUMENTS, consumer("S", "c", "s.c")])
    await bench.manifests.load(full=True)
    full = asyncio.create_task(bench.full())
    await looking.wait()
    await bench.somebody.edit("S", "a", max_deliver=99)
    hint = asyncio.create_task(bench.hint(A))
    done, _ = await asyncio.wait([hint], timeout=0.3)
    assert not done
    answered.set()
    await asyncio.gather(full, hint)
    assert (await bench.somebody.config("S", "a"))["max_deliver"] == -1
    assert await bench.names() == ["a", "b", "c"]


@dataclass
class Committing:
    """A writer whose writes of consumers wait until somebody has committed something else."""

    writer: LiveWriter
    commit: Callable[[], Awaitable[object]]
    begun: bool = False
    done: asyncio.Event = field(default_factory=asyncio.Event)

    def fits(self, write: Write, level: int = 0) -> None:
        """As the writer says."""
        self.writer.fits(write, level)

    async def write(self, write: Write, level: int = 0) -> Json:
        """The server's answer."""
        if isinstance(write, CreateConsumer) and not self.begun:
            self.begun = True
            await self.commit()
            self.done.set()
        if isinstance(write, CreateConsumer):
            await self.done.wait()
        return await self.writer.write(write, level)


async def test_a_commit_about_something_else_refuses_nothing_that_is_still_to_be_sent(
    engine: Engine, somebody: Somebody, tmp_path: Path
) -> None:
    before = [DOCUMENTS[0], *(consumer("S", f"c{number:02}", "s.c") for number in range(80))]

    async def commit() -> None:
        write(bench.path, [*before, stream("T", "t.>")])
        assert await bench.manifests.load(full=True), "other manifests are in force"

    engine.writer = Committing(engine.writer, commit)
    bench = Bench(engine, somebody, write(tmp_path / "all.yaml", before))
    await bench.manifests.load()
    await bench.full()
    assert len(await bench.names()) == 80
    await bench.full()
    assert bench.shown(Key("Stream", "T"))["state"] == "Synced"
