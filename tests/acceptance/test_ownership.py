"""What is not ours stays as it is, whatever is declared, allowed or pruned; what was ours a moment ago is repaired."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from reconciler.engine.apply.outcome import Verdict
from reconciler.engine.apply.run_once import ApplyOptions, apply_plan
from reconciler.engine.memory import Recollection
from reconciler.engine.planning import make_plan
from reconciler.model.desired import Desired
from reconciler.plan.change import Action, Cause, Rules
from tests.support.account.lease import hold
from tests.support.account.wire import Json, Wire
from tests.support.clock.until import until
from tests.support.daemon.command import Command, Ended
from tests.support.daemon.engine import Engine
from tests.support.daemon.process import daemon
from tests.support.server.process import Server
from tests.support.values.manifests import load, written

US = "reconciler"
"""The name of our connections."""
HOUR = 3600 * 10**9
MINE = (
    "kind: Stream\nmetadata: {name: MINE}\nspec: {subjects: [mine.>]}",
    "kind: Consumer\nmetadata: {name: c}\nspec: {stream: MINE}",
)
THEIRS = (
    "kind: Stream\nmetadata: {name: THEIRS}\nspec: {subjects: [theirs.>], maxAge: 1h}",
    "kind: Consumer\nmetadata: {name: c}\nspec: {stream: THEIRS, ackWait: 7s}",
)
GONE = (
    "kind: Stream\nmetadata: {name: THEIRS}\nspec: {state: absent}",
    "kind: Consumer\nmetadata: {name: c}\nspec: {stream: THEIRS, state: absent}",
)
_ANNOTATED = 'annotations: {reconciler/adopt: "true", reconciler/allow: "recreate,data-loss"}'
ADOPTING = tuple(text.replace("}\nspec:", f", {_ANNOTATED}}}\nspec:") for text in THEIRS)
POLICIES = ("create-only", "upsert-only", "sync")


async def made_by(wire: Wire, owner: str) -> None:
    """Stream THEIRS with a consumer, marked as `owner`'s, or by nobody."""
    marker = {"metadata": {"reconciler.owner": owner, "reconciler.spec": "0" * 32}} if owner else {}
    await wire.expect("STREAM.CREATE.THEIRS", {"name": "THEIRS", "subjects": ["theirs.>"], **marker})
    config = {"durable_name": "c", "ack_policy": "explicit", **marker}
    await wire.expect("CONSUMER.CREATE.THEIRS.c", {"stream_name": "THEIRS", "config": config})


async def everything(wire: Wire) -> list[Json]:
    """The configuration of every stream and consumer."""
    streams = (await wire.expect("STREAM.LIST"))["streams"] or []
    found = [stream["config"] for stream in streams]
    for stream in streams:
        found += [
            entry["config"] for entry in (await wire.expect(f"CONSUMER.LIST.{stream['config']['name']}"))["consumers"] or ()
        ]
    return found


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("declared", [THEIRS, ADOPTING], ids=["declared", "annotated"])
async def test_another_owners_resources_are_never_touched(
    cli: Command, wire: Wire, tmp_path: Path, policy: str, declared: tuple[str, ...]
) -> None:
    await made_by(wire, "somebody")
    before = await everything(wire)
    file = written(tmp_path, *declared)
    async with wire.audit() as audit:
        ended = cli("apply", "-f", file, "--yes", "--adopt", "--policy", policy, "--format", "json", code=3)
        cli("apply", "-f", file, "--yes", "--adopt", "--policy", policy, "--continue", code=3)
    assert audit.subjects(US)
    assert audit.writes(US) == []
    assert await everything(wire) == before
    codes = {change["key"]: change["reasons"] for change in ended.json["changes"]}
    assert codes == {"Stream/THEIRS": ["other-owner"], "Consumer/THEIRS/c": ["other-owner"]}


@pytest.mark.parametrize("owner", ["somebody", ""])
async def test_a_tombstone_does_not_reach_what_is_not_ours(cli: Command, wire: Wire, tmp_path: Path, owner: str) -> None:
    await made_by(wire, owner)
    adopt = ["--adopt"] if owner else []
    ended = cli("apply", "-f", written(tmp_path, *GONE), "--yes", *adopt, "--policy", "sync", "--format", "json", code=3)
    reasons = {code for change in ended.json["changes"] for code in change["reasons"]}
    assert reasons == {"other-owner" if owner else "not-owned"}
    await wire.consumer_info("THEIRS", "c")


@pytest.mark.parametrize("owner", ["somebody", ""])
async def test_pruning_leaves_what_is_not_ours(cli: Command, wire: Wire, tmp_path: Path, owner: str) -> None:
    await made_by(wire, owner)
    before = await everything(wire)
    cli("apply", "-f", written(tmp_path, *MINE), "--yes", "--adopt")
    pruned = cli("apply", "-f", written(tmp_path, MINE[0]), "--yes", "--adopt", "--prune", "--format", "json").json
    assert [change["key"] for change in pruned["changes"]] == ["Consumer/MINE/c"]
    assert [config for config in await everything(wire) if config in before] == before


async def test_a_consumer_of_ours_on_anothers_stream_leaves_the_stream_alone(cli: Command, wire: Wire, tmp_path: Path) -> None:
    await made_by(wire, "somebody")
    before = await everything(wire)
    file = written(tmp_path, "kind: Consumer\nmetadata: {name: ours}\nspec: {stream: THEIRS}")
    cli("apply", "-f", file, "--yes")
    assert (await wire.consumer_info("THEIRS", "ours"))["config"]["metadata"]["reconciler.owner"] == "default"
    file = written(tmp_path, *MINE)
    removed = cli("apply", "-f", file, "--yes", "--prune", "--format", "json").json
    assert ("Consumer/THEIRS/ours", "delete") in {(change["key"], change["action"]) for change in removed["changes"]}
    assert [config for config in await everything(wire) if config in before] == before


COPIES = tuple(
    f"kind: Stream\nmetadata: {{name: {name}}}\nspec: {spec}"
    for name, spec in (
        ("JOBS", "{subjects: [jobs.>], retention: workqueue}"),
        ("NEWS", "{subjects: [news.>], retention: interest}"),
        ("ALL", "{sources: [{name: JOBS}, {name: NEWS}]}"),
        ("COPY", "{mirror: {name: NEWS}}"),
    )
)


async def servers_own(wire: Wire) -> dict[str, list[str]]:
    """What the server keeps for sources and mirrors, by stream."""
    found = {}
    for stream in ("JOBS", "NEWS"):
        names = (await wire.expect(f"CONSUMER.NAMES.{stream}"))["consumers"] or []
        found[stream] = sorted(name for name in names if name.startswith(("JS_SRC_", "JS_MIRROR_")))
    return found


@pytest.mark.since("2.14")  # before, the server reads through consumers that no list shows
async def test_what_the_server_keeps_for_copies_is_never_touched_or_shown(
    any_server: Server, offline: Command, tmp_path: Path
) -> None:
    cli = Command(offline.home, any_server.url)
    file = written(tmp_path, *COPIES)
    cli("apply", "-f", file, "--yes")
    async with await Wire.connect(any_server.url) as wire:
        await until(lambda: _there(wire))
        before = await servers_own(wire)
        for flags in ([], ["--prune"], ["--adopt"], ["--prune", "--adopt"]):
            assert cli("apply", "-f", file, "--yes", "--format", "json", *flags).json["changes"] == []
        exported = cli("export")
        assert "JS_" not in exported.out + exported.err
        name = before["NEWS"][0]
        claimed = written(
            tmp_path, *COPIES, f"kind: Consumer\nmetadata: {{name: {name}}}\nspec: {{stream: NEWS}}", name="claimed.yaml"
        )
        refused = cli("apply", "-f", claimed, "--yes", "--adopt", "--format", "json", code=3).json
        assert [code for change in refused["changes"] for code in change["reasons"]] == ["server-made"]
        assert await servers_own(wire) == before
        await wire.publish("jobs.1")
        await wire.publish("news.1")
        await until(lambda: _holds(wire, "ALL", 2))
        await until(lambda: _holds(wire, "COPY", 1))


async def _there(wire: Wire) -> bool:
    return [len(names) for names in (await servers_own(wire)).values()] == [1, 2]


async def _holds(wire: Wire, stream: str, messages: int) -> bool:
    state = (await wire.stream_info(stream))["state"]
    return bool(state["messages"] == messages)


async def wipe(wire: Wire) -> None:
    """Somebody replaces whole configurations, our marker with them."""
    stream = (await wire.stream_info("MINE"))["config"]
    await wire.expect("STREAM.UPDATE.MINE", {**stream, "metadata": {}, "max_age": HOUR, "duplicate_window": 0})
    config = {**(await wire.consumer_info("MINE", "c"))["config"], "metadata": {}}
    await wire.expect("CONSUMER.CREATE.MINE.c", {"stream_name": "MINE", "config": config, "action": "update"})


async def markers(wire: Wire) -> list[Any]:
    """The owners of MINE and its consumer."""
    configs = [(await wire.stream_info("MINE"))["config"], (await wire.consumer_info("MINE", "c"))["config"]]
    return [config["metadata"].get("reconciler.owner") for config in configs]


async def test_a_marker_that_is_wiped_while_we_watch_comes_back(engine: Engine, wire: Wire, tmp_path: Path) -> None:
    desired = load(tmp_path, *MINE).desired
    first = await make_plan(desired, Rules(), engine.ports.reader)
    await apply_plan(first, engine.ports, ApplyOptions(timeout=20.0))
    seen = Recollection("default")
    seen.learn((await make_plan(desired, Rules(), engine.ports.reader)).live)
    await wipe(wire)
    planned = await make_plan(desired, Rules(), engine.ports.reader, seen.memory)
    assert [(change.action, change.cause) for change in planned.plan.changes] == [(Action.UPDATE, Cause.DRIFT)] * 2
    assert [[field.path for field in change.fields] for change in planned.plan.changes] == [["maxAge"], []]
    assert (await apply_plan(planned, engine.ports, ApplyOptions(timeout=20.0))).verdict is Verdict.IN_PLACE
    assert await markers(wire) == ["default", "default"]
    assert (await _plan_of_a_new_process(engine, desired)) == []


async def _plan_of_a_new_process(engine: Engine, desired: Desired) -> list[Any]:
    return [change.key for change in (await make_plan(desired, Rules(), engine.ports.reader)).plan.changes]


async def test_a_new_process_asks_before_it_takes_over_what_has_no_marker(cli: Command, wire: Wire, tmp_path: Path) -> None:
    file = written(tmp_path, *MINE)
    cli("apply", "-f", file, "--yes")
    await wipe(wire)
    async with wire.audit() as audit:
        ended = cli("apply", "-f", file, "--yes", "--format", "json", code=3).json
    assert audit.subjects(US)
    assert audit.writes(US) == []
    assert [change["reasons"] for change in ended["changes"]] == [["not-owned"]] * 2
    assert all("--adopt" in reason["wayOut"] for change in ended["changes"] for reason in change["explanations"])
    adopted = cli("apply", "-f", file, "--yes", "--adopt", "--format", "json").json
    assert [change["action"] for change in adopted["changes"]] == ["adopt", "adopt"]
    assert await markers(wire) == ["default", "default"]
    assert (await wire.stream_info("MINE"))["config"]["max_age"] == 0
    cli("plan", "-f", file, "--detailed-exitcode")


async def test_what_is_named_is_taken_over_from_its_owner_as_it_is(cli: Command, wire: Wire, tmp_path: Path) -> None:
    await made_by(wire, "somebody")
    file = written(tmp_path, *THEIRS)
    take = ("--adopt", "--take-from", "somebody")
    cli("plan", "-f", file, "--take-from", "somebody", "--target", "Stream/THEIRS", code=64)
    cli("plan", "-f", file, *take, code=64)
    other = cli("plan", "-f", file, "--adopt", "--take-from", "else", "--target", "Stream/THEIRS", "--format", "json").json
    assert [change["reasons"] for change in other["changes"]] == [["other-owner"]]
    made = tmp_path / "plan.json"
    cli("plan", "-f", file, *take, "--target", "Stream/THEIRS", "--out", made)
    cli("apply", made, "--yes")
    owners = [(await wire.stream_info("THEIRS"))["config"], (await wire.consumer_info("THEIRS", "c"))["config"]]
    assert [config["metadata"]["reconciler.owner"] for config in owners] == ["default", "somebody"]
    cli("apply", "-f", file, *take, "--target", "Consumer/THEIRS/c", "--yes")
    assert cli("plan", "-f", file, "--format", "json").json["changes"] == []
    theirs = cli("--owner", "somebody", "plan", "-f", file, "--format", "json").json
    assert {code for change in theirs["changes"] for code in change["reasons"]} == {"other-owner"}


async def test_what_its_owner_is_in_the_middle_of_is_not_taken(cli: Command, wire: Wire, tmp_path: Path) -> None:
    await made_by(wire, "somebody")
    config = (await wire.consumer_info("THEIRS", "c"))["config"]
    journal = {"name": "filter-add", "step": "pause", "target": "0" * 32, "data": '{"added": []}'}
    marked = config["metadata"] | {"reconciler.procedure": json.dumps(journal)}
    await wire.expect(
        "CONSUMER.CREATE.THEIRS.c", {"stream_name": "THEIRS", "config": {**config, "metadata": marked}, "action": "update"}
    )
    taking = ("--adopt", "--take-from", "somebody", "--target", "Consumer/THEIRS/c")
    ended = cli("apply", "-f", written(tmp_path, *THEIRS), *taking, "--yes", code=3)
    assert "'somebody' is in the middle of filter-add" in ended.out
    assert "take it over when that has ended" in ended.out


async def test_what_is_disowned_stays_as_it_is_and_is_nobodys(cli: Command, wire: Wire, tmp_path: Path) -> None:
    file = written(tmp_path, *THEIRS)
    cli("apply", "-f", file, "--yes")
    await wire.publish("theirs.a", 3)
    told = cli("disown", "Stream/THEIRS", "Consumer/THEIRS/c", "Stream/NONE", "--yes", code=3)
    assert "there is no Stream/NONE" in told.err
    assert "Stream/THEIRS is nobody's now" in told.out
    configs = [(await wire.stream_info("THEIRS"))["config"], (await wire.consumer_info("THEIRS", "c"))["config"]]
    assert not any(name.startswith("reconciler.") for config in configs for name in config.get("metadata") or {})
    assert (configs[0]["max_age"], configs[1]["ack_wait"]) == (HOUR, 7 * 10**9)
    assert (await wire.stream_info("THEIRS"))["state"]["messages"] == 3
    blocked = cli("plan", "-f", file, "--format", "json").json
    assert {code for change in blocked["changes"] for code in change["reasons"]} == {"not-owned"}
    assert "is nobody's already" in cli("disown", "Stream/THEIRS", "--yes", code=3).err
    cli("apply", "-f", file, "--adopt", "--yes")
    assert "belongs to 'default': give --owner" in cli("--owner", "else", "disown", "Stream/THEIRS", "--yes", code=3).err
    cli("disown", "Stream/THEIRS", code=64)


async def test_nothing_is_disowned_beside_a_process_that_writes(cli: Command, wire: Wire, server: Server, tmp_path: Path) -> None:
    cli("apply", "-f", written(tmp_path, *THEIRS), "--yes")
    connection, _ = await hold(server, ttl=1.0)
    async with connection:
        ended = await asyncio.to_thread(cli, "disown", "Stream/THEIRS", "--yes", code=3)
    assert "nothing was given up: give the URL of that daemon with --daemon, or stop that process first" in ended.err
    assert (await wire.stream_info("THEIRS"))["config"]["metadata"]["reconciler.owner"] == "default"


async def test_beside_a_daemon_it_gives_up_what_it_wrote(cli: Command, wire: Wire, tmp_path: Path) -> None:
    cli("apply", "-f", written(tmp_path, *THEIRS), "--yes")
    async with daemon(cli, tmp_path / "log", "-f", written(tmp_path, *MINE)) as running:

        async def disown(key: str, code: int = 0) -> Ended:
            return await asyncio.to_thread(cli, "disown", key, "--yes", "--daemon", running.url, code=code)

        assert "Stream/THEIRS is nobody's now" in (await disown("Stream/THEIRS")).out
        assert "there is no Stream/NONE" in (await disown("Stream/NONE", code=3)).err
        assert "reconciler.owner" not in (await wire.stream_info("THEIRS"))["config"].get("metadata", {})
        assert (await wire.consumer_info("THEIRS", "c"))["config"]["metadata"]["reconciler.owner"] == "default"
        await running.until(lambda now: "Stream/THEIRS" not in {one["key"] for one in now["resources"]})
        declared = await disown("Consumer/MINE/c", code=3)
        assert "would be taken up again at once: take it out of the manifests first" in declared.err
        assert (await wire.consumer_info("MINE", "c"))["config"]["metadata"]["reconciler.owner"] == "default"
        code, text = await running.post("/-/disown?key=Stream/THEIRS&holder=somebody")
        assert (code, "another process holds the lease" in text) == (409, True)


async def test_a_stream_whose_consumers_are_declared_is_not_pruned(cli: Command, wire: Wire, tmp_path: Path) -> None:
    cli("apply", "-f", written(tmp_path, *MINE), "--yes")
    alone = written(tmp_path, MINE[1])
    ended = cli("apply", "-f", alone, "--prune", "--max-change-percent", "100", "--yes", code=3)
    assert "removed-stream: Stream/MINE: still declared on it: consumer c" in ended.err
    assert "take these out of the manifests as well" in ended.out
    await wire.consumer_info("MINE", "c")


async def test_a_saved_plan_is_of_the_owner_it_was_made_for(cli: Command, wire: Wire, tmp_path: Path) -> None:
    made = tmp_path / "plan.json"
    cli("plan", "-f", written(tmp_path, *MINE), "--out", made)
    assert "made for the owner default" in cli("--owner", "else", "apply", made, "--yes", code=64).err
    assert "error" in await wire.call("STREAM.INFO.MINE")
