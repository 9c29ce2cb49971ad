"""Every rule of the guard, next to the loss that happens without it.

In each test somebody first does the dangerous thing by hand, to a twin: messages vanish, or are never delivered. Then the
same thing is declared: exit 3, not one write, everything still there; and the one named with `--allow` goes through.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.account.guarded import US, Guarded, consumer, count, gone, pull, stream
from tests.support.account.wire import Wire
from tests.support.clock.until import until
from tests.support.cluster.servers import Cluster
from tests.support.daemon.command import Command
from tests.support.server.process import Server
from tests.support.values.manifests import written

COUNT = 6
MS = 10**6


@pytest.fixture
def guarded(cli: Command, wire: Wire, tmp_path: Path) -> Guarded:
    return Guarded(cli, wire, tmp_path)


SHRINKING: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "maxMsgs": ({"maxMsgs": 10}, {"maxMsgs": 2}, {"max_msgs": 2}),
    "maxMsgs, unlimited before": ({}, {"maxMsgs": 2}, {"max_msgs": 2}),
    "maxBytes": ({"maxBytes": "1MB"}, {"maxBytes": 100}, {"max_bytes": 100}),
    "maxMsgsPerSubject": ({"maxMsgsPerSubject": 10}, {"maxMsgsPerSubject": 1}, {"max_msgs_per_subject": 1}),
    "maxAge": ({"maxAge": "1h"}, {"maxAge": "100ms"}, {"max_age": 100 * MS, "duplicate_window": 100 * MS}),
    "retention": ({}, {"retention": "interest"}, {"retention": "interest"}),
}


@pytest.mark.parametrize("rule", SHRINKING)
async def test_what_would_drop_stored_messages(guarded: Guarded, rule: str) -> None:
    before, after, by_hand = SHRINKING[rule]
    wire = guarded.wire
    guarded.apply(stream("S", **before), stream("T", **before))
    await guarded.twin("S")
    for name in ("S", "T", "TWIN"):
        await wire.publish(f"{name}.1", COUNT)

    await guarded.change_twin(by_hand)
    await until(lambda: _fewer(wire, "TWIN"))

    declared = stream("S", **after), stream("T", **after)
    said = await guarded.refused(*declared)
    assert said == {"Stream/S": {"data-loss"}, "Stream/T": {"data-loss"}, "": set()}
    ended = guarded.apply(*declared, flags=["--allow", "data-loss=Stream/S", "--continue"], code=5)
    assert {change["key"]: change["result"] for change in ended["changes"]} == {"Stream/S": "applied", "Stream/T": "skipped"}
    await until(lambda: _fewer(wire, "S"))
    assert len(await wire.payloads("T")) == COUNT


async def _fewer(wire: Wire, name: str) -> bool:
    return await count(wire, name) < COUNT


async def test_putting_a_limit_back_that_somebody_raised(guarded: Guarded) -> None:
    """What came in meanwhile is as dear as everything else, although nobody declared the room for it."""
    wire = guarded.wire
    guarded.apply(stream("S", maxMsgs=2))
    await guarded.wire.expect("STREAM.UPDATE.S", {**(await wire.stream_info("S"))["config"], "max_msgs": 1000})
    await wire.publish("S.1", COUNT)
    assert await guarded.refused(stream("S", maxMsgs=2)) == {"Stream/S": {"data-loss"}, "": set()}
    assert len(await wire.payloads("S")) == COUNT


async def test_a_bucket_with_less_history(guarded: Guarded) -> None:
    def bucket(history: int) -> str:
        return f"kind: KeyValue\nmetadata: {{name: b}}\nspec: {{history: {history}}}"

    wire = guarded.wire
    guarded.apply(bucket(10))
    await wire.publish("$KV.b.key", COUNT)
    assert await guarded.refused(bucket(2)) == {"KeyValue/b": {"data-loss"}, "": set()}
    assert await guarded.refused(gone("KeyValue", "b")) == {"KeyValue/b": {"data-loss"}, "": set()}
    assert await count(wire, "KV_b") == COUNT
    guarded.apply(bucket(2), flags=["--allow", "data-loss=KeyValue/b"])
    assert await count(wire, "KV_b") == 2


async def test_adopting_does_not_shrink_what_it_takes_over(guarded: Guarded) -> None:
    wire = guarded.wire
    await wire.expect("STREAM.CREATE.S", {"name": "S", "subjects": ["S.>"]})
    await wire.publish("S.1", COUNT)
    declared = stream("S", maxMsgs=2)
    assert await guarded.refused(declared, flags=["--adopt"]) == {"Stream/S": {"data-loss"}, "": set()}
    guarded.apply(declared, flags=["--adopt", "--allow", "data-loss=Stream/S"])
    assert await count(wire, "S") == 2


@pytest.mark.parametrize("how", ["tombstone", "prune"])
async def test_deleting_a_stream_that_holds_messages(guarded: Guarded, how: str) -> None:
    wire = guarded.wire
    guarded.apply(stream("KEPT"), stream("S"))
    await wire.publish("S.1", COUNT)
    declared = [stream("KEPT"), gone("Stream", "S")] if how == "tombstone" else [stream("KEPT")]
    flags = [] if how == "tombstone" else ["--prune"]
    assert await guarded.refused(*declared, flags=flags) == {"Stream/S": {"data-loss"}, "": set()}
    assert len(await wire.payloads("S")) == COUNT
    assert (await guarded.refused(*declared, flags=[*flags, "--allow", "data-loss=Stream/KEPT"]))["Stream/S"] == {"data-loss"}
    guarded.apply(*declared, flags=[*flags, "--allow", "data-loss=Stream/S"])
    assert (await wire.call("STREAM.INFO.S"))["error"]["err_code"] == 10059


async def test_deleting_a_stream_that_others_hang_on(guarded: Guarded) -> None:
    wire = guarded.wire
    guarded.apply(stream("KEPT"), stream("READ"), stream("COPIED"))
    await wire.expect("CONSUMER.CREATE.READ.theirs", {"stream_name": "READ", "config": {"durable_name": "theirs"}})
    await wire.expect("STREAM.CREATE.COPY", {"name": "COPY", "sources": [{"name": "COPIED"}]})
    said = await guarded.refused(stream("KEPT"), flags=["--prune"])
    assert said == {"Stream/COPIED": {"data-loss"}, "Stream/READ": {"data-loss"}, "": set()}
    await wire.consumer_info("READ", "theirs")


async def test_deleting_a_consumer_that_has_work_left(guarded: Guarded) -> None:
    wire = guarded.wire
    guarded.apply(stream("S", retention="interest"), consumer("S"))
    await guarded.twin("S")
    await wire.expect(
        "CONSUMER.CREATE.TWIN.c", {"stream_name": "TWIN", "config": {"durable_name": "c", "ack_policy": "explicit"}}
    )
    for name in ("S", "TWIN"):
        await wire.publish(f"{name}.1", COUNT)
    await wire.expect("CONSUMER.DELETE.TWIN.c")
    await until(lambda: _fewer(wire, "TWIN"))
    declared = stream("S", retention="interest"), gone("Consumer", "c", stream="S")
    assert await guarded.refused(*declared) == {"Consumer/S/c": {"data-loss"}, "": set()}
    assert len(await pull(wire, "S", COUNT)) == COUNT
    await until(lambda: _idle(wire))
    guarded.apply(*declared)  # with everything done there is nothing to lose


async def _idle(wire: Wire) -> bool:
    info = await wire.consumer_info("S", "c")
    return not info["num_pending"] and not info["num_ack_pending"]


async def test_taking_a_filter_away_with_matches_undelivered(guarded: Guarded) -> None:
    wire = guarded.wire
    interest = stream("S", retention="interest")
    guarded.apply(interest, consumer("S", filterSubjects=["S.a", "S.b"]))
    await guarded.twin("S")
    config = {"durable_name": "c", "ack_policy": "explicit", "filter_subjects": ["TWIN.a", "TWIN.b"]}
    await wire.expect("CONSUMER.CREATE.TWIN.c", {"stream_name": "TWIN", "config": config})
    for name in ("S", "TWIN"):
        await wire.publish(f"{name}.b", COUNT)
    changed = {"stream_name": "TWIN", "config": {**config, "filter_subjects": ["TWIN.a"]}, "action": "update"}
    await wire.expect("CONSUMER.CREATE.TWIN.c", changed)
    assert await pull(wire, "TWIN", 0) == []
    narrower = consumer("S", filterSubjects=["S.a"])
    assert await guarded.refused(interest, narrower) == {"Consumer/S/c": {"data-loss"}, "": set()}
    assert await pull(wire, "S", COUNT) == ["S.b"] * COUNT
    await until(lambda: _idle(wire))
    guarded.apply(interest, narrower)


@pytest.mark.matrix
async def test_adding_a_filter_over_a_backlog_where_the_cursor_cannot_go_back(offline: Command, tmp_path: Path) -> None:
    with Server(tmp_path / "old", version="2.12.8") as server:
        async with await Wire.connect(server.url) as wire:
            guarded = Guarded(Command(offline.home, server.url), wire, tmp_path)
            guarded.apply(stream("S"), consumer("S", filterSubjects=["S.a"]))
            await guarded.twin("S")
            config = {"durable_name": "c", "ack_policy": "explicit", "filter_subjects": ["TWIN.a"]}
            await wire.expect("CONSUMER.CREATE.TWIN.c", {"stream_name": "TWIN", "config": config})
            for name in ("S", "TWIN"):
                await wire.publish(f"{name}.b", COUNT)
                await wire.publish(f"{name}.a")
                assert await pull(wire, name, 1) == [f"{name}.a"]
            wider = {"stream_name": "TWIN", "config": {**config, "filter_subjects": ["TWIN.a", "TWIN.b"]}, "action": "update"}
            await wire.expect("CONSUMER.CREATE.TWIN.c", wider)
            assert await pull(wire, "TWIN", 0) == []
            declared = stream("S"), consumer("S", filterSubjects=["S.a", "S.b"])
            assert await guarded.refused(*declared) == {"Consumer/S/c": {"position-loss"}, "": set()}
            guarded.apply(*declared, flags=["--allow", "position-loss=Consumer/S/c"])
            assert await pull(wire, "S", 0) == []


async def test_fewer_replicas(cluster: Cluster, offline: Command, tmp_path: Path) -> None:
    async with await Wire.connect(cluster.url) as wire:
        guarded = Guarded(Command(offline.home, cluster.url), wire, tmp_path, cluster)
        guarded.apply(stream("FEWER", replicas=3), stream("ALSO", replicas=3))
        declared = stream("FEWER", replicas=1), stream("ALSO", replicas=1)
        assert await guarded.refused(*declared) == {"Stream/FEWER": {"replicas"}, "Stream/ALSO": {"replicas"}, "": set()}
        ended = guarded.apply(*declared, flags=["--allow", "replicas=Stream/FEWER", "--continue"], code=5)
        assert {change["key"]: change["result"] for change in ended["changes"]} == {
            "Stream/FEWER": "applied",
            "Stream/ALSO": "skipped",
        }
        guarded.apply(*declared, flags=["--allow", "replicas=Stream/ALSO"])
        guarded.apply(stream("FEWER", replicas=3), stream("ALSO", replicas=3))


async def test_half_of_the_files_are_gone(guarded: Guarded) -> None:
    everything = [stream(f"S{number}") for number in range(12)]
    guarded.apply(*everything)
    said = await guarded.refused(*everything[:6], flags=["--prune"])
    assert said == {"": {"mass-change"}}
    assert (await guarded.wire.call("STREAM.NAMES"))["total"] == 12 + 1  # and the lease
    guarded.apply(*everything[:6], flags=["--prune", "--max-change-percent", "60"])
    assert (await guarded.wire.call("STREAM.NAMES"))["total"] == 6 + 1


async def test_an_empty_directory(guarded: Guarded, tmp_path: Path) -> None:
    guarded.apply(stream("S"), consumer("S"))
    empty = tmp_path / "empty"
    empty.mkdir()
    async with guarded.wire.audit() as audit:
        ended = guarded.cli("apply", "-f", empty, "--prune", "--yes", "--format", "json", code=3).json
    assert ended["refused"] == ["empty"]
    assert [change["action"] for change in ended["changes"]] == ["delete"]  # what it would have done
    assert audit.writes(US) == []
    await guarded.wire.consumer_info("S", "c")


async def test_a_name_that_the_policy_protects(guarded: Guarded) -> None:
    policy = "kind: Policy\nmetadata: {name: p}\nspec: {consumers: {protectNames: true}}"
    guarded.apply(policy, stream("S"), consumer("S", "a"), consumer("S", "b"))
    said = await guarded.refused(policy, stream("S"), flags=["--prune"])
    assert said == {"Consumer/S/a": {"protected-name"}, "Consumer/S/b": {"protected-name"}, "": set()}
    guarded.apply(policy, stream("S"), flags=["--prune", "--continue", "--allow", "delete=Consumer/S/a"], code=5)
    assert (await guarded.wire.expect("CONSUMER.NAMES.S"))["consumers"] == ["b"]
    guarded.apply(policy, stream("S"), gone("Consumer", "b", stream="S"))
    assert (await guarded.wire.expect("CONSUMER.NAMES.S"))["consumers"] in (None, [])


async def test_a_plan_file_that_has_become_stale(guarded: Guarded, tmp_path: Path) -> None:
    saved = tmp_path / "plan.json"
    guarded.apply(stream("S"))
    file = written(tmp_path, stream("S", description="new"))
    guarded.cli("plan", "-f", file, "--out", saved)
    await guarded.wire.expect("STREAM.UPDATE.S", {**(await guarded.wire.stream_info("S"))["config"], "max_msgs": 1000})
    async with guarded.wire.audit() as audit:
        said = guarded.cli("apply", saved, "--yes", code=3).err
    assert "this has changed: Stream/S (maxMsgs " in said
    assert "→ 1000" in said
    assert audit.writes(US) == []


ENVIRONMENT = "kind: Environment\nmetadata: {name: prod}\nspec: {expect: {cluster: prod-eu}}"


@pytest.mark.parametrize(
    ("flags", "code", "said"),
    [([], 4, "env-required"), (["--env", "prud"], 4, "env-unknown"), (["--env", "prod"], 3, "wrong cluster")],
    ids=["forgotten", "misspelled", "wrong cluster"],
)
async def test_the_environment(guarded: Guarded, flags: list[str], code: int, said: str) -> None:
    file = written(guarded.directory, ENVIRONMENT, stream("S"))
    async with guarded.wire.audit() as audit:
        assert said in guarded.cli("apply", "-f", file, "--yes", *flags, code=code).err
    assert audit.writes(US) == []


def test_a_path_that_is_not_there(cli: Command, tmp_path: Path) -> None:
    assert "missing" in cli("apply", "-f", tmp_path / "missing", "--yes", "--prune", code=4).err


async def test_continue_does_the_rest_and_says_so(guarded: Guarded) -> None:
    guarded.apply(stream("S"))
    await guarded.wire.publish("S.1", COUNT)
    declared = stream("S", maxMsgs=1), stream("NEW"), consumer("NEW"), consumer("S")
    said = await guarded.refused(*declared)
    assert said == {"Stream/S": {"data-loss"}, "": set()}
    ended = guarded.apply(*declared, flags=["--continue"], code=5)
    results = {change["key"]: change["result"] for change in ended["changes"]}
    assert results == {"Stream/S": "skipped", "Stream/NEW": "applied", "Consumer/NEW/c": "applied", "Consumer/S/c": "skipped"}
    assert len(await guarded.wire.payloads("S")) == COUNT
