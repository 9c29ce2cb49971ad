"""Marks are claims: whoever may write a stream may write ours, by accident or on purpose, and loses or hides nothing with it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.support.account.meddling import repaired_at_once, watched
from tests.support.account.wire import Json, Wire
from tests.support.clock.until import until
from tests.support.daemon.command import Command
from tests.support.server.process import Server
from tests.support.values import former_marks
from tests.support.values.catalogues import consumer, stream
from tests.support.values.manifests import written

pytestmark = pytest.mark.differs

STREAM = "kind: Stream\nmetadata: {name: S}\nspec: {subjects: [s.>], retention: interest}"
CONSUMER = "kind: Consumer\nmetadata: {name: c}\nspec: {stream: S, maxDeliver: 5}"
OTHER = "kind: Consumer\nmetadata: {name: other}\nspec: {stream: S}"
UNTIL = "2098-01-01T00:00:00Z"
MANY = 1000


@pytest_asyncio.fixture
async def place(any_server: Server) -> AsyncIterator[Wire]:
    """Somebody else's client."""
    async with await Wire.connect(any_server.url) as wire:
        yield wire


@pytest.fixture
def command(any_server: Server, offline: Command) -> Command:
    """The command, at that server."""
    return Command(offline.home, any_server.url)


async def publish(wire: Wire, count: int = MANY) -> None:
    """That many messages."""
    for number in range(count):
        await wire.client.publish(f"s.{number}", b"")
    await wire.client.flush()


async def config_of(wire: Wire, name: str, member: str = "") -> Json:
    """What is live."""
    info = await (wire.consumer_info(name, member) if member else wire.stream_info(name))
    config: Json = info["config"]
    return config


async def mark(wire: Wire, name: str, member: str = "", *, without: str = "", **marks: str) -> None:
    """Writes into the mark of a stream or a consumer, or takes an entry out of it."""
    config = await config_of(wire, name, member)
    metadata = config["metadata"] | {f"reconciler.{entry}": text for entry, text in marks.items()}
    config = {**config, "metadata": {entry: text for entry, text in metadata.items() if entry != without}}
    config.pop("pause_until", None)
    body: Json = {"stream_name": name, "config": config, "action": "update"}
    await wire.expect(*((f"CONSUMER.CREATE.{name}.{member}", body) if member else (f"STREAM.UPDATE.{name}", config)))


def journal(name: str, step: str, **data: Any) -> str:
    """A procedure under way."""
    return json.dumps({"name": name, "step": step, "target": "", "data": json.dumps(data)})


async def hold(wire: Wire, *, named: bool = True, **data: Any) -> None:
    """Somebody makes what looks like the hold of c."""
    name = "_reconciler_hold_c"
    marked = {"reconciler.owner": "default", "reconciler.procedure": journal("recreate-consumer", "hold", consumer="c", **data)}
    marked |= {"reconciler.key": f"Consumer/S/{name}"} if named else {}
    config: Json = {"name": name, "durable_name": name, "ack_policy": "explicit", "deliver_policy": "by_start_sequence"}
    config |= {"opt_start_seq": data["start"], "metadata": marked, "pause_until": UNTIL}
    await wire.expect(f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": config})


def changes(ended: Any) -> dict[str, list[str]]:
    """What a plan wants, by key, with the codes of what speaks against it."""
    return {change["key"]: [change["action"], *change["reasons"]] for change in ended.json["changes"]}


async def test_what_somebody_copied_with_its_metadata_is_not_pruned(command: Command, place: Wire, tmp_path: Path) -> None:
    file = written(tmp_path, STREAM, CONSUMER)
    command("apply", "-f", file, "--yes")
    original, member = await config_of(place, "S"), await config_of(place, "S", "c")
    await place.expect("STREAM.CREATE.COPY", {**original, "name": "COPY", "subjects": ["copy.>"]})
    for name in ("S", "COPY"):
        config = {**member, "name": "copy", "durable_name": "copy"}
        await place.expect(f"CONSUMER.CREATE.{name}.copy", {"stream_name": name, "config": config})
    assert changes(command("apply", "-f", file, "--yes", "--prune", "--format", "json")) == {}
    await place.consumer_info("COPY", "copy")
    await place.consumer_info("S", "copy")
    copy = "kind: Stream\nmetadata: {name: COPY}\nspec: {subjects: [copy.>], retention: interest}"
    copied = written(tmp_path, STREAM, CONSUMER, copy)
    refused = command("plan", "-f", copied)
    assert "its marker was written for 'Stream/S': it is a copy of that" in refused.out
    assert "--adopt" in refused.out
    command("apply", "-f", copied, "--yes", "--adopt")
    assert (await config_of(place, "COPY"))["metadata"]["reconciler.key"] == "Stream/COPY"
    command("plan", "-f", copied, "--prune", "--detailed-exitcode")


@pytest.mark.parametrize("procedure", ["recreate-consumer", "restore-consumer"])
@pytest.mark.parametrize("held", [False, True])
async def test_a_forged_journal_moves_no_consumer_forward(
    command: Command, place: Wire, tmp_path: Path, procedure: str, *, held: bool
) -> None:
    file = written(tmp_path, STREAM, CONSUMER, OTHER)
    command("apply", "-f", file, "--yes")
    await publish(place)
    if held:
        created = (await place.stream_info("S"))["created"]
        await hold(place, start=MANY + 1, created=created)
    await mark(place, "S", "c", procedure=journal(procedure, "move", start=MANY + 1))
    command("apply", "-f", file, "--yes", "--timeout", "20s")
    assert (await place.consumer_info("S", "c"))["num_pending"] == MANY
    assert (await place.stream_info("S"))["state"]["messages"] == MANY
    command("plan", "-f", file, "--detailed-exitcode")
    names = (await place.expect("CONSUMER.NAMES.S"))["consumers"]
    assert sorted(names) == ["c", "other"]


@pytest.mark.parametrize("step", ["attach", "drain"])
@pytest.mark.parametrize("retention", ["limits", "workqueue"])
async def test_a_forged_migration_skips_and_purges_nothing(
    command: Command, place: Wire, tmp_path: Path, retention: str, step: str
) -> None:
    """A source that waits (its durable is paused) while somebody writes where it would go on, and what is to be purged."""
    origin = f"kind: Stream\nmetadata: {{name: S}}\nspec: {{subjects: [s.>], retention: {retention}}}"
    through = "consumer: {name: c, serverManaged: true}"
    file = written(tmp_path, origin, f"kind: Stream\nmetadata: {{name: A}}\nspec: {{sources: [{{name: S, {through}}}]}}")
    command("apply", "-f", file, "--yes")
    await publish(place, 20)
    await until(lambda: copied(place, 20), 60.0)
    await place.expect("CONSUMER.PAUSE.S.c", {"pause_until": UNTIL})
    await publish(place, MANY)
    far = MANY - 10
    entry = (await config_of(place, "A"))["sources"][0]
    known = {
        "stream": "Stream/A",
        "entry": entry,
        "copied": far,
        "start": far,
        "least": far,
        "from": {"name": "S"},
        "until": UNTIL,
    }
    await mark(place, "S", "c", procedure=journal("migrate-source", step, **known))
    for _ in range(2):  # what has begun, and whatever that leaves to do
        command("apply", "-f", file, "--yes")
    await place.expect("CONSUMER.PAUSE.S.c", {})
    await until(lambda: copied(place, 20 + MANY), 60.0)
    assert (await place.stream_info("A"))["state"]["messages"] == 20 + MANY


async def test_a_forged_migration_does_not_go_on_where_another_entry_stands(
    command: Command, place: Wire, tmp_path: Path
) -> None:
    entries = "[{name: S, filterSubject: s.a}, {name: S, filterSubject: s.b, consumer: {name: c, serverManaged: true}}]"
    origin = "kind: Stream\nmetadata: {name: S}\nspec: {subjects: [s.>]}"
    file = written(tmp_path, origin, f"kind: Stream\nmetadata: {{name: A}}\nspec: {{sources: {entries}}}")
    command("apply", "-f", file, "--yes")
    await place.publish("s.b", 10)
    await until(lambda: copied(place, 10), 60.0)
    await place.expect("CONSUMER.PAUSE.S.c", {"pause_until": UNTIL})
    await place.publish("s.b", 30)
    await place.publish("s.a", 30)
    await until(lambda: copied(place, 40), 60.0)
    live = (await config_of(place, "A"))["sources"]
    own, other = (next(one for one in live if ("consumer" in one) is through) for through in (True, False))
    known = {"stream": "Stream/A", "entry": own, "from": other, "start": 70, "least": 69, "copied": 69, "until": UNTIL}
    await mark(place, "S", "c", procedure=journal("migrate-source", "attach", **known))
    command("apply", "-f", file, "--yes")
    await place.expect("CONSUMER.PAUSE.S.c", {})
    await until(lambda: copied(place, 70), 60.0)


async def copied(wire: Wire, count: int) -> bool:
    return int((await wire.stream_info("A"))["state"]["messages"]) >= count


@pytest.mark.parametrize(
    "said",
    [{}, {"created": "2026-01-01T00:00:00Z"}, {"named": False}, {"start": 10**9}],
    ids=["as before", "another stream", "no name", "beyond the end"],
)
async def test_a_new_consumer_does_not_start_at_a_forged_hold(
    command: Command, place: Wire, tmp_path: Path, said: dict[str, Any]
) -> None:
    command("apply", "-f", written(tmp_path, STREAM, OTHER), "--yes")
    await publish(place, 10)
    created = (await place.stream_info("S"))["created"] if "named" in said or "start" in said else ""
    given: dict[str, Any] = {"start": 11, **({"created": created} if created else {}), **said}
    await hold(place, **given)
    file = written(tmp_path, STREAM, CONSUMER, OTHER)
    command("apply", "-f", file, "--yes", "--timeout", "20s")
    info = await place.consumer_info("S", "c")
    assert (info["num_pending"], info["delivered"]["stream_seq"]) == (10, 0)
    command("plan", "-f", file, "--detailed-exitcode")


async def test_what_only_a_hold_can_know_is_believed_and_said(command: Command, place: Wire, tmp_path: Path) -> None:
    command("apply", "-f", written(tmp_path, STREAM, OTHER), "--yes")
    await publish(place, 10)
    await hold(place, start=4, created=(await place.stream_info("S"))["created"])
    file = written(tmp_path, STREAM, CONSUMER, OTHER)
    assert "nothing but its hold says where it stood: it goes on at 4" in command("plan", "-f", file).out
    command("apply", "-f", file, "--yes", "--timeout", "20s")
    assert (await place.consumer_info("S", "c"))["num_pending"] == 7


@pytest.mark.parametrize("field", [("max_deliver", 77, 5), ("filter_subjects", None, ["s.>"])])
async def test_a_forged_row_hides_no_drift(command: Command, place: Wire, tmp_path: Path, field: tuple[str, Any, Any]) -> None:
    file = written(tmp_path, STREAM, CONSUMER)
    command("apply", "-f", file, "--yes")
    rows = [{"field": field[0], "live": field[1], "declared": field[2]}]
    await mark(place, "S", "c", residue=json.dumps(rows))
    config = {**(await config_of(place, "S", "c")), "max_deliver": 77}
    await place.expect("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config, "action": "update"})
    assert changes(command("plan", "-f", file, "--format", "json")) == {"Consumer/S/c": ["blocked", "damaged-mark"]}
    await mark(place, "S", "c", without="reconciler.residue")
    command("apply", "-f", file, "--yes")
    assert (await config_of(place, "S", "c"))["max_deliver"] == 5


@pytest.mark.parametrize("named", [False, True])
async def test_forty_streams_with_our_name_stop_no_repair(any_server: Server, tmp_path: Path, *, named: bool) -> None:
    documents = [stream("S", "s.>"), consumer("S", "a", "s.a"), consumer("S", "b", "s.b")]
    async with watched(any_server, tmp_path, documents, "--policy", "sync") as place:
        for number in range(40):
            marked = {"reconciler.owner": "default", "reconciler.spec": "0"}
            marked |= {"reconciler.key": f"Stream/F{number}"} if named else {}
            config = {"name": f"F{number}", "subjects": [f"f{number}"], "metadata": marked}
            await place.somebody.expect(f"STREAM.CREATE.F{number}", config)
        document = await place.daemon.looked()
        assert bool(document["refused"]) is named
        await repaired_at_once(place.somebody, "S", "b")
        assert await place.somebody.config("F39")


async def former(command: Command, wire: Wire, file: Path) -> None:
    """Everything as the version before has left it."""
    command("apply", "-f", file, "--yes", "--timeout", "20s")
    replaced = await config_of(wire, "ORDERS", "replaced")
    await wire.expect("CONSUMER.DELETE.ORDERS.replaced")
    replaced |= {"deliver_policy": "by_start_sequence", "opt_start_seq": 1}
    await wire.expect("CONSUMER.CREATE.ORDERS.replaced", {"stream_name": "ORDERS", "config": replaced})
    part = await config_of(wire, "PART")
    await wire.expect("STREAM.UPDATE.PART", {**part, "sources": [former_marks.VARIED]})
    for (name, member), marks in former_marks.MARKS.items():
        written_now = (await config_of(wire, name, member))["metadata"]
        assert written_now["reconciler.spec"] == marks["reconciler.spec"], "else the two versions disagree about what is declared"
        await mark(
            wire,
            name,
            member,
            without="reconciler.key",
            **{entry.removeprefix("reconciler."): text for entry, text in marks.items()},
        )


async def marks_of(wire: Wire) -> dict[tuple[str, str], Json]:
    """All that is in the marks."""
    found = {}
    for name, member in former_marks.MARKS:
        metadata = (await config_of(wire, name, member))["metadata"]
        found[name, member] = {entry: text for entry, text in metadata.items() if entry.startswith("reconciler.")}
    return found


async def test_an_upgrade_plans_nothing_and_names_come_with_writes_that_are_due(
    command: Command, place: Wire, tmp_path: Path
) -> None:
    file = written(tmp_path, *former_marks.MANIFESTS)
    await former(command, place, file)
    for _ in range(3):
        command("plan", "-f", file, "--prune", "--detailed-exitcode")
    command("apply", "-f", file, "--yes")
    assert await marks_of(place) == former_marks.MARKS
    fewer = written(tmp_path, *former_marks.MANIFESTS[:4], *former_marks.MANIFESTS[5:], name="fewer.yaml")
    pruned = command("apply", "-f", fewer, "--yes", "--prune")
    assert "1 owned but no longer declared, by marks of an earlier version" in pruned.out
    assert "KeyValue/settings" in pruned.out
    shown = command("status", "-f", fewer, "--format", "json").json["resources"]
    assert [one["state"] for one in shown if one["key"] == "KeyValue/settings"] == ["Unmanaged"]
    (tmp_path / "nothing").mkdir()
    assert "nothing is declared" in command("plan", "-f", tmp_path / "nothing", code=3).out
    edited = [text.replace("30d", "29d").replace("maxWaiting", "ackWait: 31s, maxWaiting") for text in former_marks.MANIFESTS]
    changed = written(tmp_path, *edited)
    command("apply", "-f", changed, "--yes")
    for _ in range(3):
        command("plan", "-f", changed, "--prune", "--detailed-exitcode")
    found = await marks_of(place)
    named = {where: entries.pop("reconciler.key") for where, entries in found.items() if "reconciler.key" in entries}
    assert named == {("ORDERS", ""): "Stream/ORDERS", ("ORDERS", "replaced"): "Consumer/ORDERS/replaced"}
    for where, entries in found.items():  # but for the name, what the version before knows and writes: it plans nothing either
        assert {**entries, "reconciler.spec": ""} == {**former_marks.MARKS[where], "reconciler.spec": ""}
