"""Why something is not done, as somebody meets it on a real server: what no other test from outside comes across.

In each a command says the code with a way out, and nothing is written.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.account.guarded import Guarded, consumer, stream
from tests.support.account.wire import Json, Wire
from tests.support.daemon.command import Command
from tests.support.daemon.process import daemon
from tests.support.values.manifests import written

LATER = "2099-01-01T00:00:00Z"


@pytest.fixture
def guarded(cli: Command, wire: Wire, tmp_path: Path) -> Guarded:
    return Guarded(cli, wire, tmp_path)


async def test_what_is_left_to_others_has_to_exist(guarded: Guarded) -> None:
    said = await guarded.refused("kind: Stream\nmetadata: {name: THEIRS}\nspec: {state: unmanaged}")
    assert said["Stream/THEIRS"] == {"missing"}


async def test_a_consumer_needs_a_stream(guarded: Guarded) -> None:
    said = await guarded.refused(consumer("NOWHERE"))
    assert said["Consumer/NOWHERE/c"] == {"no-such-stream"}


async def test_what_its_manifest_prevents_is_not_done(guarded: Guarded) -> None:
    guarded.apply(stream("S"))
    kept = 'kind: Stream\nmetadata: {name: S, annotations: {"reconciler/prevent": "update"}}\nspec: {description: another}'
    said = await guarded.refused(kept)
    assert said["Stream/S"] == {"prevented"}


async def test_a_subject_that_another_stream_keeps(guarded: Guarded, wire: Wire) -> None:
    await wire.expect("STREAM.CREATE.THEIRS", {"name": "THEIRS", "subjects": ["s.a"]})
    said = await guarded.refused(stream("S", subjects=["s.>"]))
    assert said["Stream/S"] == {"subject-overlap"}


async def test_more_consumers_than_the_stream_takes(guarded: Guarded, wire: Wire) -> None:
    guarded.apply(stream("S", maxConsumers=1))
    await wire.expect("CONSUMER.CREATE.S.theirs", {"stream_name": "S", "config": {"name": "theirs", "durable_name": "theirs"}})
    said = await guarded.refused(stream("S", maxConsumers=1), consumer("S"))
    assert said["Consumer/S/c"] == {"max-consumers"}


async def test_consumers_that_swap_their_subjects(guarded: Guarded) -> None:
    def readers(first: str, second: str) -> list[str]:
        own = [("c", first), ("d", second)]
        return [stream("S", retention="workqueue"), *(consumer("S", name, filterSubjects=[f"S.{last}"]) for name, last in own)]

    guarded.apply(*readers("a", "b"))
    said = await guarded.refused(*readers("b", "a"))
    assert (said["Consumer/S/c"], said["Consumer/S/d"]) == ({"swap"}, {"swap"})


async def test_a_subject_does_not_move_to_an_interest_stream_that_nobody_reads_yet(guarded: Guarded) -> None:
    guarded.apply(stream("S", subjects=["s.a", "s.b"]))
    said = await guarded.refused(stream("S", subjects=["s.a"]), stream("T", subjects=["s.b"], retention="interest"))
    assert said["Stream/T"] == {"interest-gap"}


async def test_a_target_that_is_nothing(guarded: Guarded) -> None:
    said = await guarded.refused(stream("S"), flags=["--target", "Stream/T"])
    assert said[""] == {"unknown-target"}


async def test_what_the_targets_leave_out_is_told_in_the_status(cli: Command, tmp_path: Path) -> None:
    path = written(tmp_path, stream("S"), stream("T"))
    async with daemon(cli, tmp_path / "log", "-f", path, "--target", "Stream/S", ready=False) as running:
        await running.listening()
        document = await running.until(lambda now: bool(now["summary"]["Synced"]) and bool(now["summary"]["OutOfSync"]))
        (left,) = [one for one in document["resources"] if one["key"] == "Stream/T"]
        assert left["message"].endswith(": not-targeted: --target leaves it out")


async def test_worker_pools_are_not_called_done(guarded: Guarded) -> None:
    guarded.apply(stream("S"))
    said = await guarded.refused(stream("S"), "kind: WorkerPool\nmetadata: {name: p}\nspec: {stream: S}")
    assert said["WorkerPool/p"] == {"unsupported"}


async def test_what_a_person_paused_is_not_changed_by_a_procedure(guarded: Guarded, wire: Wire) -> None:
    guarded.apply(stream("S"), consumer("S", filterSubjects=["S.a"]))
    await wire.publish("S.b", 3)
    await wire.expect("CONSUMER.PAUSE.S.c", {"pause_until": LATER})
    said = await guarded.refused(stream("S"), consumer("S", filterSubjects=["S.a", "S.b"]))
    assert said["Consumer/S/c"] == {"paused-by-person"}


async def test_a_durable_that_was_caught_up_in_the_migration_of_a_stream_that_is_gone_runs_again(
    guarded: Guarded, wire: Wire
) -> None:
    durable = {"ackPolicy": "flow_control", "deliverSubject": "dlv.c"}
    guarded.apply(stream("S"), consumer("S", **durable))
    config: Json = (await wire.consumer_info("S", "c"))["config"]
    known = json.dumps({"stream": "Stream/GONE", "entry": None})
    journal = {"name": "migrate-source", "step": "drain", "target": "", "data": known}
    marked = config | {"metadata": config["metadata"] | {"reconciler.procedure": json.dumps(journal)}, "pause_until": LATER}
    await wire.expect("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": marked, "action": "update"})
    await wire.expect("CONSUMER.PAUSE.S.c", {"pause_until": LATER})
    file = written(guarded.directory, stream("S"), consumer("S", **durable))
    (change,) = guarded.cli("plan", "-f", file, "--format", "json").json["changes"]
    assert change["procedure"]["name"] == "let-go"
    (change,) = guarded.cli("apply", "-f", file, "--yes", "--format", "json").json["changes"]
    assert change["result"] == "applied"
    info = await wire.consumer_info("S", "c")
    assert "reconciler.procedure" not in info["config"]["metadata"]
    assert not info.get("paused")
