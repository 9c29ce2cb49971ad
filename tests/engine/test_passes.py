"""Passes of a daemon on a real server, one by one: what a hint may do, and what waits for a look at everything."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.engine.dependencies import Failures
from reconciler.plan.change import Action, Author, Cause, Change, Rules
from tests.support.daemon.passes import DOCUMENTS, A, B, Bench, S
from tests.support.server.process import Server
from tests.support.values.catalogues import consumer, write

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
