"""Ways out about whose a resource is, and what its manifests and the flags let be done about it.

Each is printed, then taken, and leads where somebody wanted to go.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.account.following import annotated, flags, left_as_it_is, quoted, streams
from tests.support.account.guarded import Guarded, consumer, count, gone, pull, stream
from tests.support.account.wire import Json, Wire
from tests.support.clock.until import until
from tests.support.daemon.command import Command
from tests.support.daemon.process import daemon, settled
from tests.support.promises import tried
from tests.support.values.manifests import written

OWNER = "reconciler.owner"
LATER = "2099-01-01T00:00:00.000271828Z"
"""Until when no person would pause anything: so end the pauses of procedures."""


def by_somebody(guarded: Guarded, *documents: str) -> None:
    """Another owner applies these manifests."""
    file = written(guarded.directory, *documents, name="theirs.yaml")
    guarded.cli("--owner", "somebody", "apply", "-f", file, "--yes")
    file.unlink()


async def owner_of(wire: Wire, on: str, name: str = "") -> str:
    """Whose a stream or a consumer is."""
    info = await (wire.consumer_info(on, name) if name else wire.stream_info(on))
    return str((info["config"].get("metadata") or {}).get(OWNER, ""))


async def marked(wire: Wire, on: str, name: str = "", *, without: tuple[str, ...] = (), **marks: str) -> None:
    """Somebody writes into the metadata of a stream or a consumer, or takes entries out of it."""
    config: Json = (await (wire.consumer_info(on, name) if name else wire.stream_info(on)))["config"]
    metadata = config["metadata"] | {f"reconciler.{entry}": text for entry, text in marks.items()}
    config["metadata"] = {entry: text for entry, text in metadata.items() if entry not in without}
    body: Json = {"stream_name": on, "config": config, "action": "update"}
    await wire.expect(*((f"CONSUMER.CREATE.{on}.{name}", body) if name else (f"STREAM.UPDATE.{on}", config)))


async def test_pruning_what_is_no_longer_declared(guarded: Guarded, wire: Wire) -> None:
    guarded.apply(stream("KEPT"), stream("S"))
    way = left_as_it_is(guarded, "Stream/S", stream("KEPT"))
    assert way == "`--prune` deletes it"
    guarded.apply(stream("KEPT"), flags=flags(way))
    assert await streams(wire) == {"KEPT"}
    tried(way)


async def test_pruning_what_would_take_messages_along(guarded: Guarded, wire: Wire) -> None:
    guarded.apply(stream("KEPT"), stream("S"))
    await wire.publish("S.a", 3)
    way = left_as_it_is(guarded, "Stream/S", stream("KEPT"))
    ((shows, prune),) = (text.split() for text in quoted(way))
    document = guarded.cli(shows, prune, "-f", written(guarded.directory, stream("KEPT")), "--format", "json").json
    (explained,) = (reason for change in document["changes"] for reason in change["explanations"])
    assert explained["code"] == "data-loss"
    guarded.apply(stream("KEPT"), flags=[prune, *flags(explained["wayOut"])])
    assert await streams(wire) == {"KEPT"}
    tried(way)


async def test_a_tombstone_for_what_an_earlier_version_marked(guarded: Guarded, wire: Wire) -> None:
    guarded.apply(stream("KEPT"), consumer("KEPT"), stream("S"))
    await marked(wire, "S", without=("reconciler.key",))
    await marked(wire, "KEPT", "c", without=("reconciler.key",))
    guarded.apply(stream("KEPT"), flags=["--prune"])
    ways = [left_as_it_is(guarded, key, stream("KEPT")) for key in ("Stream/S", "Consumer/KEPT/c")]
    assert [quoted(way) for way in ways] == [["state: absent"]] * 2
    guarded.apply(stream("KEPT"), gone("Stream", "S"), gone("Consumer", "c", stream="KEPT"))
    assert await streams(wire) == {"KEPT"}
    assert "error" in await wire.call("CONSUMER.INFO.KEPT.c")
    tried(ways[0])


async def test_another_policy(cli: Command, wire: Wire, guarded: Guarded, tmp_path: Path) -> None:
    guarded.apply(stream("S"))
    file = written(tmp_path, stream("S", description="another"))
    async with daemon(cli, tmp_path / "log", "-f", file, "--policy", "create-only") as running:
        (row,) = (await running.until(lambda now: bool(now["summary"]["OutOfSync"])))["resources"]
        await running.stop()
    way = str(row["message"]).rpartition("; ")[2]
    cli("apply", "-f", file, "--yes", *flags(way))
    assert (await wire.stream_info("S"))["config"]["description"] == "another"
    tried(way)


@pytest.mark.parametrize("how", ["flag", "annotation"])
async def test_taking_over_what_nobody_owns(guarded: Guarded, wire: Wire, how: str) -> None:
    await wire.expect("STREAM.CREATE.S", {"name": "S", "subjects": ["S.>"]})
    await wire.publish("S.1", 3)
    declared = stream("S", maxMsgs=10)
    way = (await guarded.offered(declared))["Stream/S"]["not-owned"]
    assert "with --adopt or" in way
    if how == "flag":
        guarded.apply(declared, flags=["--adopt"])
    else:
        guarded.apply(annotated(declared, *quoted(way)))
    assert (await owner_of(wire, "S"), await count(wire, "S")) == ("default", 3)
    tried(way)


@pytest.mark.parametrize("side", ["here", "there"])
async def test_what_two_owners_declare(guarded: Guarded, wire: Wire, side: str) -> None:
    by_somebody(guarded, stream("S", maxMsgs=10))
    await wire.publish("S.1", 3)
    way = (await guarded.offered(stream("S", maxMsgs=20), stream("OURS")))["Stream/S"]["other-owner"]
    if side == "here":
        guarded.apply(stream("OURS"))
        assert (await owner_of(wire, "S"), await owner_of(wire, "OURS")) == ("somebody", "default")
    else:
        by_somebody(guarded, stream("THEIRS"))
        guarded.apply(stream("S", maxMsgs=20), stream("OURS"), flags=flags(way))
        guarded.apply(stream("S", maxMsgs=20), stream("OURS"))
        by_somebody(guarded, stream("THEIRS"))
        assert (await owner_of(wire, "S"), await owner_of(wire, "OURS")) == ("default", "default")
        assert (await wire.stream_info("S"))["config"]["max_msgs"] == 20
    assert await count(wire, "S") == 3
    tried(way)


async def test_what_its_owner_is_in_the_middle_of(guarded: Guarded, wire: Wire) -> None:
    """Their filter is added over a backlog, and they were stopped before they moved the cursor back."""
    declared = [stream("S"), consumer("S", filterSubjects=["S.a", "S.b"])]
    by_somebody(guarded, stream("S"), consumer("S", filterSubjects=["S.a"]))
    await wire.publish("S.b", 2)
    await wire.publish("S.a", 1, first=2)
    by_somebody(guarded, *declared)
    await marked(wire, "S", "c", procedure=_journal("filter-add", "pause", added=["S.b"]))
    taking = ["--adopt", "--take-from", "somebody", "--target", "Consumer/S/c"]
    way = (await guarded.offered(*declared, flags=taking))["Consumer/S/c"]["other-owner"]
    by_somebody(guarded, *declared)
    guarded.apply(*declared, flags=taking)
    assert await owner_of(wire, "S", "c") == "default"
    assert sorted(await pull(wire, "S", 3)) == ["S.a", "S.b", "S.b"]
    assert await pull(wire, "S", 0) == []
    tried(way)


def _journal(name: str, step: str, **data: object) -> str:
    return json.dumps({"name": name, "step": step, "target": "", "data": json.dumps(data)})


@pytest.mark.parametrize("how", ["declared again", "deleted"])
async def test_a_durable_that_is_caught_up_in_a_change_of_what_is_no_longer_declared(
    guarded: Guarded, wire: Wire, how: str
) -> None:
    """It was paused to be handed over, and then the stream that copies through it went out of the manifests."""
    durable = consumer("S", ackPolicy="flow_control", deliverSubject="dlv.c")
    through = {"name": "S", "consumer": {"name": "c", "deliverSubject": "dlv.c"}}
    declared, reader = (stream("S"), durable), stream("ALL", subjects=[], sources=[through])
    guarded.apply(*declared, reader)
    entry = (await wire.stream_info("ALL"))["config"]["sources"][0]
    journal = _journal("migrate-source", "drain", stream="Stream/ALL", entry=entry, until=LATER)
    await marked(wire, "S", "c", procedure=journal)
    await wire.expect("CONSUMER.PAUSE.S.c", {"pause_until": LATER})
    way = (await guarded.offered(*declared))["Consumer/S/c"]["procedure"]
    if how == "deleted":
        guarded.apply(*declared, flags=flags(way))
        guarded.apply(*declared)
        assert await streams(wire) == {"S"}
    else:
        guarded.apply(*declared, reader)
        await wire.publish("S.1", 3)
        await until(lambda: _holds(wire, "ALL", 3))
    info = await wire.consumer_info("S", "c")
    assert not info.get("paused")
    assert "reconciler.procedure" not in info["config"]["metadata"]
    tried(way)


async def _holds(wire: Wire, name: str, messages: int) -> bool:
    return await count(wire, name) == messages


async def test_asking_its_owner_to_remove_it(guarded: Guarded, wire: Wire) -> None:
    by_somebody(guarded, stream("S"), consumer("S"))
    declared = gone("Stream", "S"), gone("Consumer", "c", stream="S")
    way = (await guarded.offered(*declared))["Stream/S"]["other-owner"]
    by_somebody(guarded, *declared)
    assert guarded.apply(*declared)["changes"] == []
    assert await streams(wire) == set()
    tried(way)


async def test_what_is_left_to_its_owner_to_create(guarded: Guarded, wire: Wire) -> None:
    theirs = "kind: Stream\nmetadata: {name: THEIRS}\nspec: {state: unmanaged}"
    way = (await guarded.offered(theirs, consumer("THEIRS")))["Stream/THEIRS"]["missing"]
    by_somebody(guarded, stream("THEIRS"))
    guarded.apply(theirs, consumer("THEIRS"))
    assert (await owner_of(wire, "THEIRS"), await owner_of(wire, "THEIRS", "c")) == ("somebody", "default")
    tried(way)


DECLARED = {"Stream/S": [stream("S", description="another")], "Consumer/S/c": [stream("S"), consumer("S", maxDeliver=9)]}
"""Another manifest of each, as the last document."""


@pytest.mark.parametrize("key", DECLARED)
async def test_what_its_manifest_does_not_let_be_changed(guarded: Guarded, wire: Wire, key: str) -> None:
    guarded.apply(stream("S"), consumer("S"))
    *others, last = DECLARED[key]
    way = (await guarded.offered(*others, annotated(last, 'reconciler/prevent: "update,delete"')))[key]["prevented"]
    assert quoted(way)[:2] == ["update", "reconciler/prevent"]
    guarded.apply(*others, annotated(last, "reconciler/prevent: delete"))
    configs = (await wire.stream_info("S"))["config"], (await wire.consumer_info("S", "c"))["config"]
    assert "another" in configs[0].values() or configs[1]["max_deliver"] == 9
    tried(way)


async def test_what_its_manifest_does_not_let_be_changed_in_the_language_of_nack(guarded: Guarded, wire: Wire) -> None:
    def nack(**spec: object) -> Path:
        file = guarded.directory / "nack.yaml"
        document = {"apiVersion": "jetstream.nats.io/v1beta2", "kind": "Stream", "metadata": {"name": "s"}}
        file.write_text(json.dumps({**document, "spec": {"name": "S", "subjects": ["S.>"], **spec}}))
        return file

    guarded.cli("apply", "-f", nack(), "--yes")
    blocked = guarded.cli("apply", "-f", nack(description="another", preventUpdate=True), "--yes", "--format", "json", code=3)
    way = blocked.json["changes"][0]["explanations"][0]["wayOut"]
    assert "`preventUpdate`" in way
    guarded.cli("apply", "-f", nack(description="another"), "--yes")
    assert (await wire.stream_info("S"))["config"]["description"] == "another"
    tried(way)


@pytest.mark.parametrize("key", DECLARED)
async def test_what_its_manifest_does_not_let_be_removed(guarded: Guarded, wire: Wire, key: str) -> None:
    guarded.apply(stream("S"), consumer("S"))
    on_consumer = [stream("S")] if key != "Stream/S" else []
    tombstone = gone("Consumer", "c", stream="S") if on_consumer else gone("Stream", "S")
    kept = annotated(tombstone, 'reconciler/prevent: "update,delete"')
    way = (await guarded.offered(*on_consumer, kept))[key]["prevented"]
    assert quoted(way)[:2] == ["delete", "reconciler/prevent"]
    guarded.apply(*on_consumer, annotated(tombstone, "reconciler/prevent: update"))
    assert await streams(wire) == ({"S"} if on_consumer else set())
    assert "error" in await wire.call("CONSUMER.INFO.S.c")
    tried(way)


async def test_what_its_manifest_suspends(guarded: Guarded, wire: Wire) -> None:
    guarded.apply(stream("S"))
    declared = stream("S", description="another")
    (change,) = guarded.apply(annotated(declared, 'reconciler/suspend: "true"'))["changes"]
    (reason,) = change["explanations"]
    assert quoted(reason["wayOut"])[0] == "reconciler/suspend"
    guarded.apply(declared)
    assert (await wire.stream_info("S"))["config"]["description"] == "another"
    tried(reason["wayOut"])


async def test_what_a_daemon_was_asked_to_leave_alone(guarded: Guarded, wire: Wire, tmp_path: Path) -> None:
    file = written(tmp_path, stream("S", description="ours"))
    async with daemon(guarded.cli, tmp_path / "log", "-f", file) as running:
        await running.until(settled)
        guarded.cli("suspend", "Stream/S", "--daemon", running.url)
        await wire.expect("STREAM.UPDATE.S", {**(await wire.stream_info("S"))["config"], "description": "theirs"})
        (row,) = (await running.until(lambda now: "it differs" in str(now["resources"])))["resources"]
        way = "remove the annotation" + str(row["message"]).partition("remove the annotation")[2]
        guarded.cli(*quoted(way)[-1].split()[1:], "--daemon", running.url)
        await until(lambda: _is_described(wire, "ours"))
    tried(way)


async def _is_described(wire: Wire, text: str) -> bool:
    return bool((await wire.stream_info("S"))["config"]["description"] == text)


async def test_a_target_that_is_misspelled(guarded: Guarded, wire: Wire) -> None:
    way = (await guarded.offered(stream("S"), stream("T"), flags=["--target", "Stream/s"]))[""]["unknown-target"]
    guarded.apply(stream("S"), stream("T"), flags=["--target", "Stream/S"])
    assert await streams(wire) == {"S"}
    tried(way)


async def test_one_target_of_a_change_of_two(guarded: Guarded, wire: Wire) -> None:
    guarded.apply(stream("S", subjects=["s.a", "s.b"]), stream("T", subjects=["t"]))
    await wire.publish("s.b", 3)
    declared = stream("S", subjects=["s.a"]), stream("T", subjects=["t", "s.b"])
    target = ["--target", "Stream/T"]
    said = await guarded.offered(*declared, flags=target)
    (way,) = (ways["depends-on"] for ways in said.values())
    guarded.apply(*declared, flags=[*target, *flags(way)])
    await wire.publish("s.b", 2, first=3)
    assert await wire.payloads("S") + await wire.payloads("T") == ["0", "1", "2", "3", "4"]
    tried(way)


async def test_a_target_that_waits_for_what_is_no_target(guarded: Guarded, wire: Wire) -> None:
    queue = stream("S", retention="workqueue")
    guarded.apply(queue, consumer("S", filterSubjects=["S.a", "S.b"]))
    declared = queue, consumer("S", filterSubjects=["S.a"]), consumer("S", "d", filterSubjects=["S.b"])
    target = ["--target", "Consumer/S/d"]
    way = (await guarded.offered(*declared, flags=target))["Consumer/S/d"]["depends-on"]
    guarded.apply(*declared, flags=[*target, *flags(way)])
    assert (await wire.consumer_info("S", "c"))["config"]["filter_subjects"] == ["S.a"]
    assert (await wire.consumer_info("S", "d"))["config"]["filter_subjects"] == ["S.b"]
    tried(way)


async def test_a_consumer_is_not_made_without_its_stream(guarded: Guarded, wire: Wire) -> None:
    declared, target = (stream("S"), consumer("S")), ["--target", "Consumer/S/c"]
    way = (await guarded.offered(*declared, flags=target))["Consumer/S/c"]["depends-on"]
    assert way == "give this as well: `--target Stream/S`"
    guarded.apply(*declared, flags=[*target, "--target", "Stream/S"])
    await wire.consumer_info("S", "c")
    tried(way)


@pytest.mark.parametrize("how", ["the right path", "tombstones"])
async def test_nothing_is_declared(guarded: Guarded, wire: Wire, tmp_path: Path, how: str) -> None:
    guarded.apply(stream("S"), consumer("S"))
    empty = tmp_path / "empty"
    empty.mkdir()
    async with wire.audit() as audit:
        ended = guarded.cli("apply", "-f", empty, "--prune", "--yes", "--format", "json", code=3).json
    assert audit.writes("reconciler") == []
    (reason,) = ended["refusals"]
    if how == "tombstones":
        guarded.apply(gone("Stream", "S"), gone("Consumer", "c", stream="S"))
        assert await streams(wire) == set()
    else:
        guarded.apply(stream("S", description="another"), consumer("S"), flags=["--prune"])
        assert (await wire.stream_info("S"))["config"]["description"] == "another"
    tried(reason["wayOut"])


@pytest.mark.parametrize("how", ["flag", "policy"])
async def test_too_much_at_once(guarded: Guarded, wire: Wire, how: str) -> None:
    everything = [stream(f"S{number}") for number in range(12)]
    guarded.apply(*everything)
    way = (await guarded.offered(*everything[:6], flags=["--prune"]))[""]["mass-change"]
    if how == "flag":
        guarded.apply(*everything[:6], flags=["--prune", "--max-change-percent", "60"])
    else:
        policy = f"kind: Policy\nmetadata: {{name: p}}\nspec: {{{quoted(way)[0]}}}"
        guarded.apply(policy, *everything[:6], flags=["--prune"])
    assert len(await streams(wire)) == 6
    tried(way)


@pytest.mark.parametrize("how", ["flag", "tombstone"])
async def test_a_protected_name(guarded: Guarded, wire: Wire, how: str) -> None:
    policy = "kind: Policy\nmetadata: {name: p}\nspec: {consumers: {protectNames: true}}"
    guarded.apply(policy, stream("S"), consumer("S"))
    way = (await guarded.offered(policy, stream("S"), flags=["--prune"]))["Consumer/S/c"]["protected-name"]
    if how == "flag":
        guarded.apply(policy, stream("S"), flags=["--prune", *flags(way)])
    else:
        assert quoted(way)[0] == "state: absent"
        guarded.apply(policy, stream("S"), gone("Consumer", "c", stream="S"))
    assert "error" in await wire.call("CONSUMER.INFO.S.c")
    tried(way)


async def test_a_mark_that_makes_no_sense(guarded: Guarded, wire: Wire) -> None:
    guarded.apply(stream("S"), consumer("S"))
    await wire.publish("S.1", 3)
    await marked(wire, "S", "c", residue="nonsense", procedure="{", source="Stream/")
    declared = stream("S"), consumer("S", maxDeliver=9)
    way = (await guarded.offered(*declared))["Consumer/S/c"]["damaged-mark"]
    await marked(wire, "S", "c", without=tuple(quoted(way)))
    guarded.apply(*declared)
    assert (await wire.consumer_info("S", "c"))["config"]["max_deliver"] == 9
    assert len(await pull(wire, "S", 3)) == 3
    tried(way)
