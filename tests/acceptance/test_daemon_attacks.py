"""Whatever a client with ordinary rights writes, publishes or deletes: the daemon goes on, repairs, and tells the truth."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from tests.support.account.meddling import Somebody, Watched, heard, watched
from tests.support.daemon.command import Command
from tests.support.daemon.process import daemon, settled
from tests.support.server.process import Server
from tests.support.values.catalogues import Json, consumer, stream, write

DOCUMENTS = [stream("S", "s.>"), consumer("S", "a", "s.a"), consumer("S", "b", "s.b")]
LEASE = "$KV.reconciler-default.writer"
API = "$JS.EVENT.ADVISORY.API"
PATIENCE = 2.0
"""Seconds for what takes a few milliseconds on a quiet machine."""
FORGED = (
    ("$JS.EVENT.ADVISORY.STREAM.CREATED.S", b',"domain":"\xff"'),
    ("$JS.EVENT.ADVISORY.CONSUMER.CREATED.S.a", b"[" * 10_000),
    (API, b'{"client":"x"},"subject":"$JS.API.STREAM.UPDATE.S","response":"x"'),
    (API, b'{"client":["x"],"x":{}},"subject":"$JS.API.STREAM.UPDATE.S","response":"x"'),
    (API, b'{{{},"subject":"$JS.API.STREAM.UPDATE.S","response":"x"'),
    (API, b'{"client":{"name":{},"user":[]},"timestamp":5},"subject":"$JS.API.CONSUMER.CREATE.S.a","response":"x"'),
    (API, b'{"client":{"name":"x"}},"subject":"$JS.API.STREAM.UPDATE.\xff","response":"x"'),
)
DAMAGED = (
    {"reconciler.procedure": json.dumps({"name": "restore-consumer", "step": "move", "data": '{"start":"x"}'})},
    {"reconciler.procedure": json.dumps({"name": "restore-consumer", "step": "move", "data": '{"start":null}'})},
    {"reconciler.procedure": json.dumps({"name": "restore-consumer", "step": "move", "data": '{"start":1e300}'})},
    {"reconciler.procedure": json.dumps({"name": "filter-add", "step": "pause", "data": '{"added":7}'})},
    {"reconciler.procedure": json.dumps({"name": "filter-add", "step": "pause", "data": '{"added":[{}]}'})},
    {"reconciler.residue": '[{"field":"opt_start_seq","live":"x","declared":[]}]'},
    {"reconciler.pauseUntil": "never"},
)


async def repairs(place: Watched, name: str = "b") -> None:
    """An edit of somebody is put back as fast as ever."""
    before = await place.somebody.config("S", name)
    await place.somebody.edit("S", name, max_deliver=77)
    await place.somebody.until_like(before, "S", name, PATIENCE)


def state_of(document: Json, key: str) -> str:
    """The state of one resource."""
    return str(next(resource["state"] for resource in document["resources"] if resource["key"] == key))


async def test_damaged_markers_on_one_consumer_hold_up_nobody_else(server: Server, tmp_path: Path) -> None:
    async with watched(server, tmp_path, DOCUMENTS) as place:
        before = await place.somebody.config("S", "a")
        for damage in DAMAGED:
            await place.somebody.put({**before, "metadata": {**before["metadata"], **damage}}, "S", "a")
            await repairs(place)
            assert (await place.daemon.looked())["lastPass"]["error"] == ""
            await place.somebody.put(before, "S", "a")


async def test_forged_advisories_neither_fill_the_log_nor_hide_a_drift(server: Server, tmp_path: Path) -> None:
    async with watched(server, tmp_path, DOCUMENTS) as place:
        for subject, data in FORGED * 20:
            await place.somebody.client.publish(subject, data)
        await repairs(place)
        drift = await place.drift("Consumer/S/b")
        assert drift["user"] == ""
        assert place.daemon.lines("nats.handler_failed") == []


async def test_nonsense_in_the_lease_ends_no_process(server: Server, tmp_path: Path) -> None:
    async with watched(server, tmp_path, DOCUMENTS) as place:
        for value in (b"\xff", b"[1]", b'"holder"', b"5"):
            await place.somebody.client.publish(LEASE, value)
            await place.daemon.until(lambda document: "somebody unknown" in (document["leader"] or ""))
        await place.daemon.until(settled)


async def test_where_the_manifests_do_not_belong_not_even_a_lease_is_written(server: Server, tmp_path: Path) -> None:
    manifests = tmp_path / "manifests"
    manifests.mkdir()
    write(
        manifests / "all.yaml",
        [*DOCUMENTS, {"kind": "Environment", "metadata": {"name": "x"}, "spec": {"expect": {"cluster": "y"}}}],
    )
    async with (
        await Somebody.arrive(server.url) as somebody,
        daemon(Command(tmp_path, server.url), tmp_path / "log", "-f", manifests, "--env", "x") as running,
    ):
        document = await running.until(lambda document: bool(document["refused"]))
        await asyncio.sleep(PATIENCE)
        assert not (await somebody.expect("STREAM.NAMES"))["streams"]
        again = await running.status()
        assert not again["leading"]
        assert again["lastPass"]["number"] <= document["lastPass"]["number"] + 1


async def test_where_they_do_belong_the_lease_is_taken(server: Server, tmp_path: Path) -> None:
    documents = [*DOCUMENTS, {"kind": "Environment", "metadata": {"name": "x"}, "spec": {"expect": {"cluster": ""}}}]
    async with watched(server, tmp_path, documents, "--env", "x") as place:
        await repairs(place)


async def test_what_was_written_and_edited_while_a_long_pass_goes_on_is_repaired_before_its_end(
    server: Server, tmp_path: Path
) -> None:
    many = [DOCUMENTS[0], *(consumer("S", f"c{number:03}", f"s.{number}") for number in range(200))]
    async with watched(server, tmp_path, many[:2], "--max-requests-per-second", "20") as place:
        write(place.manifests, many)
        await place.daemon.post("/-/reload")
        await place.somebody.until_like({"name": "c010"}, "S", "c010")
        config = await place.somebody.config("S", "c010")
        await place.somebody.edit("S", "c010", max_deliver=77)
        await place.somebody.until_like(config, "S", "c010", 2 * PATIENCE)
        assert not await place.somebody.config("S", "c199"), "the pass should not have been over"


async def test_manifests_taken_back_in_the_middle_of_a_long_pass_stop_it(server: Server, tmp_path: Path) -> None:
    many = [DOCUMENTS[0], *(consumer("S", f"c{number:03}", f"s.{number}") for number in range(200))]
    async with watched(server, tmp_path, many[:2], "--max-requests-per-second", "20") as place:
        write(place.manifests, many)
        await place.daemon.post("/-/reload")
        await place.somebody.until_like({"name": "c010"}, "S", "c010")
        write(place.manifests, many[:2])
        await place.daemon.post("/-/reload")
        await place.daemon.until(lambda document: heard(document) or len(document["resources"]) < 100, 5.0)
        await asyncio.sleep(PATIENCE)
        names = (await place.somebody.expect("CONSUMER.NAMES.S"))["consumers"]
        await asyncio.sleep(PATIENCE)
        assert (await place.somebody.expect("CONSUMER.NAMES.S"))["consumers"] == names


async def test_a_consumer_that_somebody_replaced_and_then_removed_comes_back(server: Server, tmp_path: Path) -> None:
    async with watched(server, tmp_path, DOCUMENTS) as place:
        somebody, theirs = place.somebody, {"name": "a", "durable_name": "a", "ack_policy": "explicit"}
        for policy in ("new", "last", "new", "last"):
            await somebody.call("CONSUMER.DELETE.S.a")
            await somebody.call("CONSUMER.CREATE.S.a", {"stream_name": "S", "config": {**theirs, "deliver_policy": policy}})
        await place.daemon.looked()
        await somebody.call("CONSUMER.DELETE.S.a")
        await place.daemon.until(settled)
        assert (await somebody.config("S", "a"))["metadata"]["reconciler.owner"] == "default"


async def test_a_bucket_suspended_under_the_name_of_its_stream_is_left_alone(server: Server, tmp_path: Path) -> None:
    bucket = {"kind": "KeyValue", "metadata": {"name": "b"}, "spec": {"history": 3}}
    async with watched(server, tmp_path, [*DOCUMENTS, bucket]) as place:
        await place.daemon.post("/-/suspend?key=Stream/KV_b")
        await place.somebody.edit("KV_b", max_msgs_per_subject=5)
        document = await place.daemon.looked()
        assert state_of(document, "KeyValue/b") == "Suspended"
        assert (await place.somebody.config("KV_b"))["max_msgs_per_subject"] == 5
        await place.daemon.post("/-/resume?key=Stream/KV_b")
        await place.somebody.until_like({"max_msgs_per_subject": 3}, "KV_b")
