"""`reconciler consumer`: pausing, resuming and moving a consumer by hand, on real servers."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import pty
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from nats.aio.msg import Msg

from tests.support.account.lease import hold
from tests.support.account.meddling import watched
from tests.support.account.wire import Json, Wire, eventually
from tests.support.account.work import Work
from tests.support.clock.until import until
from tests.support.cluster.servers import Cluster
from tests.support.daemon.command import Command, Ended
from tests.support.server.process import Server
from tests.support.values.catalogues import consumer, stream, write

LATER = "2099-01-01T00:00:00Z"
FLOW: Json = {"ack_policy": "flow_control", "flow_control": True, "idle_heartbeat": 10**9, "deliver_subject": "deliver.c"}


async def stored(wire: Wire, count: int, name: str = "S", **config: Any) -> None:
    """A stream with that many messages, 0, 1, … on one subject, at the sequences 1, 2, … of it."""
    await wire.expect(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], **config})
    await wire.publish(f"{name}.a", count)


async def made(wire: Wire, of: str = "S", name: str = "c", **config: Any) -> Json:
    """A consumer, as somebody declares one by hand."""
    full = {"name": name, "durable_name": name, "ack_policy": "explicit", **config}
    return await wire.expect(f"CONSUMER.CREATE.{of}.{name}", {"stream_name": of, "config": full, "action": "create"})


async def taken(wire: Wire, count: int, of: str = "S", name: str = "c", *, finish: bool = True) -> list[int]:
    """The ids of up to that many messages that a worker gets now."""
    work = Work(wire, of, name)
    await work.pull(count, finish=finish)
    return sorted(work.delivered)


async def refused(cli: Command, *arguments: str) -> str:
    """Why a reset is refused, which leaves nothing on stdout."""
    ended = cli("consumer", "reset", *arguments, "--yes", code=3)
    assert ended.out == ""
    return ended.err


async def consumer_(cli: Command, *arguments: str, code: int = 0) -> Ended:
    """`reconciler consumer …`."""
    return cli("consumer", *arguments, code=code)


async def test_what_the_server_would_refuse_or_never_answer_is_refused_before(cli: Command, wire: Wire) -> None:
    await stored(wire, 10)
    for policy in ("new", "last", "last_per_subject"):
        more = {"filter_subject": "S.a"} if policy == "last_per_subject" else {}
        await made(wire, name=policy, deliver_policy=policy, **more)
    await made(wire, name="late", deliver_policy="by_start_sequence", opt_start_seq=5)
    third = (await wire.expect("STREAM.MSG.GET.S", {"seq": 6}))["message"]["time"]
    await made(wire, name="since", deliver_policy="by_start_time", opt_start_time=third)
    await made(wire)
    assert "there is no Stream/NONE" in await refused(cli, "NONE", "c")
    assert "there is no Consumer/S/none" in await refused(cli, "S", "none")
    for policy in ("new", "last", "last_per_subject"):
        assert f"policy: a consumer with deliverPolicy {policy} cannot be moved" in await refused(cli, "S", policy, "--seq", "3")
    await consumer_(cli, "reset", "S", "new", "--yes")
    assert "before-start: 4 lies before the consumer's own start, optStartSeq 5" in await refused(cli, "S", "late", "--seq", "4")
    assert "before-start: sequence 5 was stored at" in await refused(cli, "S", "since", "--seq", "5")
    said = await refused(cli, "S", "c", "--seq", "12")
    assert "beyond-end: the stream ends at sequence 10" in said
    assert "the highest that makes sense is 11" in said
    for name, seq in (("late", "5"), ("since", "6"), ("c", "11")):
        assert (await consumer_(cli, "reset", "S", name, "--seq", seq, "--yes", "--format", "json")).json["resetSeq"] in (
            None,
            int(seq),
        )


@pytest.mark.parametrize("version", ["2.12.8", "2.11.11"])
@pytest.mark.matrix
async def test_an_old_server_is_named_at_once_and_can_be_paused_all_the_same(
    offline: Command, tmp_path: Path, version: str
) -> None:
    with Server(tmp_path / "old", version=version) as server:
        async with await Wire.connect(server.url) as wire:
            await stored(wire, 3)
            await made(wire)
            cli, started = Command(offline.home, server.url), time.monotonic()
            said = cli("--timeout", "30s", "consumer", "reset", "S", "c", "--yes", code=3).err
            assert time.monotonic() - started < 10  # one request without an answer would take 30
            assert "level: a reset needs API level 4 (nats-server 2.14)" in said
            assert version in said
            assert "there is no Consumer/S/none" in await refused(cli, "S", "none")
            await consumer_(cli, "pause", "S", "c", "--for", "1h")
            assert await taken(wire, 3) == []
            await consumer_(cli, "resume", "S", "c")
            assert await taken(wire, 3) == [0, 1, 2]


@pytest.mark.since("2.14")
async def test_backward_and_forward_on_every_version(any_server: Server, offline: Command) -> None:
    cli = Command(offline.home, any_server.url)
    async with await Wire.connect(any_server.url) as wire:
        await stored(wire, 10)
        await made(wire)
        assert await taken(wire, 6) == [0, 1, 2, 3, 4, 5]
        back = await consumer_(cli, "reset", "S", "c", "--seq", "3", "--yes")
        assert "goes on with sequence 3 (so far delivered up to 6, all acknowledged up to 6)" in back.out
        assert "delivered again, acknowledged or not: 4 messages (sequences 3 to 6)" in back.out
        assert "moved: it goes on with sequence 3, 8 messages pending" in back.out
        assert await taken(wire, 2) == [2, 3]
        ahead = await consumer_(cli, "reset", "S", "c", "--seq", "9", "--yes")
        assert "skipped, neither delivered nor awaited any more: 4 messages (sequences 5 to 8)" in ahead.out
        assert "a reset to 5 brings them back" in ahead.out
        assert await taken(wire, 10) == [8, 9]


async def test_back_to_the_floor_delivers_again_what_was_acknowledged_beyond_it(cli: Command, wire: Wire) -> None:
    await stored(wire, 5)
    await made(wire, max_deliver=3)
    sitting = Work(wire, "S", "c")
    await sitting.pull(3, finish=False)
    await wire.client.request(sitting.unfinished[1], b"+ACK", timeout=5)
    document = (await consumer_(cli, "reset", "S", "c", "--to-ack-floor", "--yes", "--format", "json")).json
    assert (document["apiVersion"], document["kind"], document["key"]) == ("reconciler/v1", "ConsumerReset", "Consumer/S/c")
    assert (document["changed"], document["resetSeq"], document["owner"]) == (True, 1, None)
    assert document["redelivered"] == {"first": 1, "last": 3, "count": 3, "exact": True}
    assert document["skipped"] is None
    assert document["before"] == {"delivered": 3, "ackFloor": 0, "pending": 2, "unacknowledged": 2}
    assert document["after"] == {"delivered": 0, "ackFloor": 0, "pending": 5, "unacknowledged": 0}
    assert [note["code"] for note in document["notes"]] == ["moves", "again", "counts-anew"]
    assert await taken(wire, 5) == [0, 1, 2, 3, 4]


async def test_numbers_count_only_what_the_filters_match(cli: Command, wire: Wire) -> None:
    await stored(wire, 6)
    await wire.publish("S.b", 4)
    await wire.publish("S.a", 2)
    await made(wire, filter_subjects=["S.b"])
    assert await taken(wire, 3) == [0, 1, 2]
    document = (await consumer_(cli, "reset", "S", "c", "--seq", "1", "--dry-run", "--format", "json")).json
    assert document["redelivered"] == {"first": 1, "last": 9, "count": 3, "exact": True}
    assert (document["changed"], document["resetSeq"], document["after"]) == (False, None, None)
    document = (await consumer_(cli, "reset", "S", "c", "--seq", "13", "--dry-run", "--format", "json")).json
    assert document["skipped"] == {"first": 10, "last": 12, "count": 1, "exact": True}
    said = (await consumer_(cli, "reset", "S", "c", "--seq", "8", "--dry-run")).out
    assert "at most 2 messages (sequences 8 to 9)" in said
    assert (await wire.consumer_info("S", "c"))["delivered"]["stream_seq"] == 9


async def test_a_position_where_it_stands_anyway_is_not_sent(cli: Command, wire: Wire) -> None:
    await stored(wire, 4)
    await made(wire)
    await taken(wire, 2)
    async with wire.audit() as audit:
        ended = await consumer_(cli, "reset", "S", "c", "--yes")
        assert "goes on with sequence 3 anyway" in ended.out
        ended = await consumer_(cli, "resume", "S", "c", "--format", "json")
    assert (ended.json["changed"], ended.json["notes"][0]["code"]) == (False, "not-paused")
    assert audit.writes() == []


async def test_push_consumers_are_moved_as_well(cli: Command, wire: Wire) -> None:
    await stored(wire, 5)
    got: list[int] = []

    async def work(message: Msg) -> None:
        got.append(int(message.data))
        await message.ack()

    subscription = await wire.client.subscribe("push.here", cb=work)
    await made(wire, deliver_subject="push.here")
    await eventually(lambda: got == [0, 1, 2, 3, 4])
    await consumer_(cli, "reset", "S", "c", "--seq", "4", "--yes")
    await eventually(lambda: got == [0, 1, 2, 3, 4, 3, 4])
    await subscription.unsubscribe()


async def test_a_work_queue_keeps_what_was_skipped_until_the_way_back(cli: Command, wire: Wire) -> None:
    await stored(wire, 6, retention="workqueue")
    await made(wire)
    assert await taken(wire, 2) == [0, 1]
    ended = await consumer_(cli, "reset", "S", "c", "--seq", "5", "--yes")
    assert "2 messages (sequences 3 to 4)" in ended.out
    assert "they stay in the work queue until the consumer is moved back to 3" in ended.err
    assert await taken(wire, 6) == [4, 5]
    assert await wire.payloads("S") == ["2", "3"]
    back = await consumer_(cli, "reset", "S", "c", "--seq", "1", "--yes")
    assert "delivered again, as far as not acknowledged: 2 messages (sequences 3 to 6)" in back.out
    assert await taken(wire, 6) == [2, 3]


async def test_interest_deletes_what_is_skipped_and_that_is_said_before(cli: Command, wire: Wire) -> None:
    await wire.expect("STREAM.CREATE.S", {"name": "S", "subjects": ["S.>"], "retention": "interest"})
    await made(wire)
    await wire.publish("S.a", 6)
    preview = await consumer_(cli, "reset", "S", "c", "--seq", "5", "--dry-run")
    assert "the stream deletes of these what no other consumer needs" in preview.err
    assert len(await wire.payloads("S")) == 6
    await consumer_(cli, "reset", "S", "c", "--seq", "5", "--yes")
    await until(lambda: _payloads(wire, ["4", "5"]))
    assert await taken(wire, 6) == [4, 5]


async def _payloads(wire: Wire, expected: list[str], name: str = "S") -> bool:
    return await wire.payloads(name) == expected


async def test_going_back_on_a_replicated_interest_stream_is_refused(cluster: Cluster, offline: Command) -> None:
    cli = Command(offline.home, cluster.url)
    async with await Wire.connect(cluster.url) as wire:
        await wire.expect("STREAM.CREATE.I", {"name": "I", "subjects": ["I.>"], "retention": "interest", "num_replicas": 3})
        await made(wire, "I")
        await made(wire, "I", "other")
        await wire.publish("I.a", 4)
        await taken(wire, 3, "I")
        said = await refused(cli, "I", "c", "--seq", "1")
        assert "interest-replicated: the server deletes from a replicated interest stream" in said
        await consumer_(cli, "reset", "I", "c", "--seq", "5", "--yes")
        assert await taken(wire, 4, "I") == []
        assert await taken(wire, 4, "I", "other") == [0, 1, 2, 3]


async def aggregate(wire: Wire) -> None:
    """A stream that sources through the durable `c`."""
    await made(wire, **FLOW)
    source = {"name": "S", "consumer": {"name": "c", "deliver_subject": FLOW["deliver_subject"]}}
    await wire.expect("STREAM.CREATE.ALL", {"name": "ALL", "sources": [source]})


async def test_what_a_source_reads_through_neither_doubles_nor_fills_in(cli: Command, wire: Wire) -> None:
    await stored(wire, 5)
    await aggregate(wire)
    await until(lambda: _payloads(wire, ["0", "1", "2", "3", "4"], "ALL"))
    await until(lambda: _floor_is(wire, 5))
    back = await consumer_(cli, "reset", "S", "c", "--seq", "1", "--yes")
    assert "read again: 5 messages (sequences 1 to 5); Stream/ALL drops all that is not beyond" in back.out
    await wire.publish("S.a", 1, first=5)
    await until(lambda: _payloads(wire, ["0", "1", "2", "3", "4", "5"], "ALL"))
    await until(lambda: _floor_is(wire, 6))

    paused = await consumer_(cli, "pause", "S", "c", "--until", LATER)
    assert "Stream/ALL receives nothing meanwhile, and on the server its source looks as healthy as ever" in paused.err
    await wire.publish("S.a", 4, first=6)
    ahead = await consumer_(cli, "reset", "S", "c", "--seq", "9", "--yes")
    assert "(sequences 7 to 8); once Stream/ALL has copied a later message, no reset brings them back" in ahead.err
    assert f"it stays paused until {LATER}" in ahead.out
    assert (await wire.consumer_info("S", "c"))["paused"] is True
    assert await _payloads(wire, ["0", "1", "2", "3", "4", "5"], "ALL")
    resumed = await consumer_(cli, "resume", "S", "c")
    assert f"it was paused until {LATER} by a person, not by a manifest" in resumed.out
    await until(lambda: _payloads(wire, ["0", "1", "2", "3", "4", "5", "8", "9"], "ALL"))


async def _floor_is(wire: Wire, seq: int) -> bool:
    return bool((await wire.consumer_info("S", "c"))["ack_floor"]["stream_seq"] == seq)


async def test_the_servers_own_consumers_are_left_alone(cli: Command, wire: Wire) -> None:
    await wire.expect("STREAM.CREATE.S", {"name": "S", "subjects": ["S.>"], "retention": "interest"})
    await wire.expect("STREAM.CREATE.ALL", {"name": "ALL", "sources": [{"name": "S"}]})
    await until(lambda: _has_consumer(wire))
    (name,) = (await wire.expect("CONSUMER.NAMES.S"))["consumers"]
    assert name.startswith("JS_SRC_")
    assert f"server-made: the server itself keeps Consumer/S/{name}" in await refused(cli, "S", name)
    assert "server-made: " in (await consumer_(cli, "pause", "S", name, "--for", "1m", code=3)).err
    assert not (await wire.consumer_info("S", name)).get("paused")


async def _has_consumer(wire: Wire) -> bool:
    return bool((await wire.expect("CONSUMER.NAMES.S"))["consumers"])


async def test_nothing_is_done_to_a_consumer_in_the_middle_of_a_procedure(cli: Command, wire: Wire) -> None:
    await stored(wire, 3)
    journal = json.dumps({"name": "filter-add", "step": "pause", "target": "x", "data": '{"added": []}'})
    metadata = {"reconciler.owner": "default", "reconciler.procedure": journal}
    await made(wire, metadata=metadata, pause_until=LATER)
    await made(wire, name="held")
    await made(wire, name="_reconciler_hold_held", metadata=metadata, pause_until=LATER)
    for name in ("c", "held"):
        for arguments in (
            ("pause", "S", name, "--for", "1m"),
            ("resume", "S", name),
            ("reset", "S", name, "--seq", "1", "--yes"),
        ):
            said = (await consumer_(cli, *arguments, code=3)).err
            assert f"procedure: Consumer/S/{name} is in the middle of the procedure filter-add (step pause)" in said
    assert (await wire.consumer_info("S", "c"))["config"]["pause_until"] == LATER


async def test_a_pause_lasts_by_the_servers_clock_and_its_end_can_be_moved(cli: Command, wire: Wire) -> None:
    await stored(wire, 3, max_age=3600 * 10**9, max_msgs=1000)
    await made(wire, metadata={"reconciler.owner": "team"})
    past = await consumer_(cli, "pause", "S", "c", "--until", "2020-01-01T00:00:00Z", code=3)
    assert "past: 2020-01-01T00:00:00Z is over: the server's clock says 20" in past.err
    ended = await consumer_(cli, "pause", "S", "c", "--for", "2h", "--format", "json")
    document, live = ended.json, (await wire.consumer_info("S", "c"))["config"]["pause_until"]
    assert (document["kind"], document["key"], document["owner"]) == ("ConsumerPause", "Consumer/S/c", "team")
    assert (document["changed"], document["pausedUntil"], document["wasPausedUntil"]) == (True, live, None)
    assert [note["code"] for note in document["notes"]] == ["pauses", "other-owner", "may-expire"]
    assert "belongs to the owner team" in ended.err
    assert "messages older than maxAge 1h" in ended.err
    assert "maxMsgs 1,000 (3 stored now)" in ended.err
    left = datetime.fromisoformat(live) - datetime.now(UTC)
    assert timedelta(hours=1, minutes=55) < left <= timedelta(hours=2)
    assert await taken(wire, 3) == []
    moved = await consumer_(cli, "pause", "S", "c", "--until", LATER)
    assert "by a person, not by a manifest" in moved.out
    assert (await wire.consumer_info("S", "c"))["config"]["pause_until"] == LATER


async def test_a_pause_that_is_over_is_over(cli: Command, wire: Wire) -> None:
    await stored(wire, 2)
    await made(wire)
    paused = (await consumer_(cli, "pause", "S", "c", "--for", "3s", "--format", "json")).json
    await until(lambda: _delivers(wire, [0, 1]))
    assert datetime.now(UTC) >= datetime.fromisoformat(paused["pausedUntil"])
    assert (await consumer_(cli, "resume", "S", "c")).out == "Consumer/S/c is not paused\n"


async def _delivers(wire: Wire, expected: list[int]) -> bool:
    return await taken(wire, 5) == expected


@pytest.mark.parametrize(
    "arguments",
    [
        ("pause", "S", "c"),
        ("pause", "S", "c", "--for", "1h", "--until", LATER),
        ("pause", "S", "c", "--for", "soon"),
        ("pause", "S", "c", "--until", "tomorrow"),
        ("resume", "S.a", "c"),
        ("reset", "S", "c*", "--yes"),
        ("reset", "S", "c", "--seq", "0", "--yes"),
        ("reset", "S", "c", "--seq", "3", "--to-ack-floor", "--yes"),
        ("reset", "S", "c", "--seq", "3"),
    ],
    ids=" ".join,
)
def test_wrong_usage_ends_with_64_before_anything_is_asked(offline: Command, arguments: tuple[str, ...]) -> None:
    ended = offline("consumer", *arguments, code=64)
    assert ended.out == ""
    assert "error: " in ended.err


def test_without_a_terminal_a_reset_names_the_way_to_look_and_to_agree(offline: Command) -> None:
    said = offline("consumer", "reset", "S", "c", code=64).err
    assert "--dry-run" in said
    assert "--yes" in said


@pytest.mark.parametrize(("answer", "code", "position"), [("yes", 0, 1), ("no", 1, 3)])
async def test_at_a_terminal_the_person_is_told_and_then_asked(
    cli: Command, wire: Wire, answer: str, code: int, position: int
) -> None:
    await stored(wire, 3)
    await made(wire)
    await taken(wire, 2)
    said, ended = await asyncio.to_thread(_typed, cli, f"{answer}\n", "consumer", "reset", "S", "c", "--seq", "1")
    assert ended == code
    assert said.count("2 messages (sequences 1 to 2)") == 1
    assert said.index("if Consumer/S/c is changed so:") < said.index("2 messages (sequences 1 to 2)")
    assert said.index("2 messages (sequences 1 to 2)") < said.index("Move Consumer/S/c? Only 'yes' goes on: ")
    assert (await wire.consumer_info("S", "c"))["delivered"]["stream_seq"] == position - 1


def _typed(cli: Command, text: str, *arguments: str) -> tuple[str, int]:
    """What the command says at a terminal where somebody types this, and its exit code."""
    ours, theirs = pty.openpty()
    try:
        os.write(ours, text.encode())
        done = subprocess.Popen(
            [sys.executable, "-m", "reconciler", *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=cli.environ({"TERM": "dumb"}),
            cwd=cli.home,
        )
        os.close(theirs)
        said = b""
        while True:
            try:
                said += os.read(ours, 65536)
            except OSError:  # the other end is closed
                return said.decode(), done.wait(60)
    finally:
        os.close(ours)


async def test_another_writer_is_waited_for_and_then_named(cli: Command, server: Server, wire: Wire) -> None:
    await stored(wire, 3)
    await made(wire)
    connection, _ = await hold(server, ttl=1.0)
    async with connection:
        for arguments in (("pause", "S", "c", "--for", "1h"), ("reset", "S", "c", "--seq", "4", "--yes")):
            ended = await asyncio.to_thread(cli, "consumer", *arguments, code=3)  # the lease is renewed in this loop
            assert "the write lease of default is held by elsewhere (pid 4711" in ended.err
            assert "Consumer/S/c was not changed" in ended.err
            assert (ended.out, "delivers nothing" in ended.err, "goes on with" in ended.err) == ("", False, False)
        info = await wire.consumer_info("S", "c")
        assert (info.get("paused"), info["delivered"]["stream_seq"]) == (None, 0)
        await asyncio.to_thread(cli, "--owner", "other", "consumer", "pause", "S", "c", "--for", "1h")
    assert (await wire.consumer_info("S", "c"))["paused"] is True


async def test_what_is_not_done_is_not_told_as_if_it_were(cli: Command, server: Server, wire: Wire, tmp_path: Path) -> None:
    """Neither where the lease is another's, nor where the daemon that was named is not the one that holds it."""
    await stored(wire, 3)
    await made(wire)
    await consumer_(cli, "pause", "S", "c", "--for", "1h")
    async with watched(server, tmp_path, [stream("OTHER", "other.>")], RECONCILER_OWNER="other") as place:
        connection, _ = await hold(server, ttl=1.0)
        async with connection:
            for beside in ((), ("--daemon", place.daemon.url)):
                for arguments in (("pause", "--for", "2h"), ("resume",), ("reset", "--seq", "2", "--yes")):
                    ended = await asyncio.to_thread(cli, "consumer", arguments[0], "S", "c", *arguments[1:], *beside, code=3)
                    assert ended.out == ""
                document = ("resume", "S", "c", "--format", "json")
                ended = await asyncio.to_thread(cli, "consumer", *document, *beside, code=3)
                assert (ended.out, "delivers again" in ended.err) == ("", False)
    assert (await wire.consumer_info("S", "c"))["paused"] is True
    done = (await consumer_(cli, "resume", "S", "c")).out.splitlines()
    assert (done[0].startswith("Consumer/S/c delivers again; it was paused until"), done[1:]) == (True, ["done"])


async def test_a_dry_run_tells_what_would_be(cli: Command, wire: Wire) -> None:
    await stored(wire, 4)
    await made(wire)
    await taken(wire, 2)
    told = (await consumer_(cli, "reset", "S", "c", "--seq", "1", "--dry-run")).out.splitlines()
    assert told[0] == "if Consumer/S/c is changed so:"
    assert told[1].startswith("Consumer/S/c goes on with sequence 1")
    done = (await consumer_(cli, "reset", "S", "c", "--seq", "1", "--yes")).out.splitlines()
    assert done[0] == told[1]


async def test_beside_a_daemon_a_command_goes_through_it(cli: Command, server: Server, tmp_path: Path) -> None:
    documents = [stream("S", "S.>"), consumer("S", "c", "S.a")]
    async with watched(server, tmp_path, documents) as place:
        beside = ("--daemon", place.daemon.url)
        async with place.somebody.audit() as audit:
            paused = (await consumer_(cli, "pause", "S", "c", "--until", LATER, "--format", "json", *beside)).json
            assert (paused["changed"], paused["pausedUntil"]) == (True, LATER)
            assert (await place.somebody.consumer_info("S", "c"))["paused"] is True
            ended = await consumer_(cli, "resume", "S", "c", *beside)
            assert f"it was paused until {LATER} by a person, not by a manifest" in ended.out
            assert not (await place.somebody.consumer_info("S", "c")).get("paused")
            await place.somebody.publish("S.a", 5)
            await consumer_(cli, "reset", "S", "c", "--seq", "3", "--yes", *beside)
        writers = {record["client"]["name"] for record in audit.records if ".CONSUMER.PAUSE." in record["subject"]}
        assert len(writers) == 1
        assert (await place.somebody.consumer_info("S", "c"))["num_pending"] == 3
        refused = await consumer_(cli, "pause", "S", "nope", "--for", "1h", *beside, code=3)
        assert "there is no Consumer/S/nope" in refused.err
        assert not place.daemon.lines("drift.detected")


async def test_a_daemon_that_does_not_hold_the_lease_does_nothing(server: Server, tmp_path: Path) -> None:
    documents = [stream("S", "S.>"), consumer("S", "c", "S.a")]
    async with watched(server, tmp_path, documents) as place:
        asked = "key=Consumer/S/c&until=2099-01-01T00:00:00Z&agreed=pauses"
        code, text = await place.daemon.post(f"/-/consumer/pause?{asked}&holder=somebody")
        assert (code, "another process holds the lease" in text) == (409, True)
        entry = {"last_by_subj": "$KV.reconciler-default.writer"}
        kept = (await place.somebody.expect("STREAM.MSG.GET.KV_reconciler-default", entry))["message"]["data"]
        holder = json.loads(base64.b64decode(kept))["holder"]
        code, text = await place.daemon.post(f"/-/consumer/pause?{asked},declared&holder={holder}")
        assert (code, "has changed since: look at it again" in text) == (409, True)
        assert not (await place.somebody.consumer_info("S", "c")).get("paused")


async def test_a_daemon_leaves_paused_what_a_person_paused(cli: Command, server: Server, tmp_path: Path) -> None:
    documents = [stream("S", "S.>"), consumer("S", "c", "S.a")]
    manifests = write(tmp_path / "first.yaml", documents)
    cli("apply", "-f", manifests, "--yes")
    await consumer_(cli, "pause", "S", "c", "--until", LATER)
    async with watched(server, tmp_path, documents) as place:
        for _ in range(2):
            assert (await place.daemon.looked())["lastPass"]["changes"] == 0
        await place.somebody.edit("S", "c", max_deliver=77)  # a repair of something else
        await place.somebody.until_like({"max_deliver": -1}, "S", "c")
        info = await place.somebody.consumer_info("S", "c")
        assert (info["paused"], info["config"]["pause_until"]) == (True, LATER)


async def test_a_pause_that_a_manifest_declares_is_told_apart(cli: Command, wire: Wire, tmp_path: Path) -> None:
    manifests = write(tmp_path / "all.yaml", [stream("S", "S.>"), consumer("S", "c", "S.a", pauseUntil=LATER)])
    cli("apply", "-f", manifests, "--yes")
    ended = await consumer_(cli, "resume", "S", "c")
    assert f"it was paused until {LATER} by its manifest" in ended.out
    assert f"the manifest declares a pause until {LATER}: the next reconcile pauses it again" in ended.err
    assert not (await wire.consumer_info("S", "c")).get("paused")
    (change,) = cli("apply", "-f", manifests, "--yes", "--format", "json").json["changes"]
    assert (change["procedure"]["name"], change["result"]) == ("set-pause", "applied")
    assert (await wire.consumer_info("S", "c"))["paused"] is True


async def test_a_consumer_of_another_domain_is_found_by_its_domain(offline: Command, tmp_path: Path) -> None:
    with Server(tmp_path / "hub", jetstream="domain: hub") as server:
        cli = Command(offline.home, server.url)
        async with await Wire.connect(server.url) as wire:
            await stored(wire, 2)
            await made(wire)
            document = (await consumer_(cli, "pause", "S", "c", "--for", "1h", "--domain", "hub", "--format", "json")).json
            assert (document["key"], document["changed"]) == ("hub:Consumer/S/c", True)
            assert (await wire.consumer_info("S", "c"))["paused"] is True
            await consumer_(cli, "resume", "S", "c", "--domain", "elsewhere", code=6)


def test_the_shell_completes_what_can_be_done_to_a_consumer(offline: Command) -> None:
    words = {"COMP_WORDS": "reconciler consumer re", "COMP_CWORD": "2", "_RECONCILER_COMPLETE": "complete_bash"}
    assert sorted(offline(environ=words).out.split()) == ["reset", "resume"]
