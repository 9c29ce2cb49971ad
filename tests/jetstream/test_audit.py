"""The API audit: read right whatever is in it, borne only up to its budget, and never silently deaf."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from nats.aio.msg import Msg

from reconciler.jetstream.hearing.audit import AuditMode, read_change
from reconciler.jetstream.hearing.overhearing import Limits
from tests.support.account.connecting import Connect
from tests.support.account.ears import OWN, listening
from tests.support.account.wire import AUDIT_SUBJECT, HEARD_SECONDS, Wire, eventually
from tests.support.clock.until import SECONDS
from tests.support.server.process import Server

STREAM: dict[str, object] = {"name": "S", "subjects": ["s"]}
DECOY = '},"subject":"$JS.API.STREAM.DELETE.DECOY","client":{"name":"decoy"},"response":",\\"error\\":{'
DENIED = """
authorization { users: [
  { user: deaf, password: pw, permissions: {
      publish: ">", subscribe: ["_INBOX.>", "$JS.EVENT.ADVISORY.STREAM.>", "$JS.EVENT.ADVISORY.CONSUMER.>"] } }
  { user: ann, password: pw }
] }
"""
TRIES = 12
SMALL = Limits(budget=50.0, window=0.3, retry=0.5, trial=1.0)
"""Little, and tried for so long that a server that stands still for a moment is not taken for one that is bearable."""


async def poll(wire: Wire, requests: int) -> None:
    """Asks so often, and throws the answers away."""
    for _ in range(requests):
        await wire.client.publish("$JS.API.STREAM.INFO.S", reply="nobody.listens")
    await wire.client.flush()


Step = tuple[str, dict[str, object] | None]


async def overheard(wire: Wire, client: Wire, *step: Any, undo: Step | None = None) -> bytes:
    """The audit's message about one request.

    Now and then a server leaves one out, at first after a subscription above all. So it is asked again, after an undo for a
    request that ends otherwise the second time.
    """
    request, payload = (*step, None)[:2]
    messages: asyncio.Queue[Msg] = asyncio.Queue()
    subscription = await wire.client.subscribe(AUDIT_SUBJECT, cb=messages.put)
    await wire.client.flush()
    for attempt in range(TRIES):
        if attempt and undo:
            await client.expect(*undo)
        await client.call(request, payload)
        with suppress(TimeoutError):
            async with asyncio.timeout(HEARD_SECONDS):
                while True:
                    data = (await messages.get()).data
                    if json.loads(data)["subject"] == f"$JS.API.{request}":
                        await subscription.unsubscribe()
                        return data
    raise AssertionError(request)


async def test_what_is_cut_out_is_what_the_whole_message_says(any_server: Server) -> None:
    config = {"name": "c", "durable_name": "c", "description": DECOY, "metadata": {DECOY: DECOY}}
    async with (
        await Wire.connect(any_server.url) as wire,
        await Wire.connect(any_server.url, name='so "named", {} \\') as somebody,
    ):
        create: Step = ("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config})
        steps: list[tuple[str, dict[str, object] | None, str, Step | None]] = [
            ("STREAM.CREATE.S", STREAM | {"description": DECOY}, "Stream/S", ("STREAM.DELETE.S", None)),
            (*create, "Consumer/S/c", ("CONSUMER.DELETE.S.c", None)),
            ("CONSUMER.DELETE.S.c", None, "Consumer/S/c", create),
        ]
        for request, payload, key, undo in steps:
            data = await overheard(wire, somebody, request, payload, undo=undo)
            heard, whole = read_change(data), json.loads(data)
            assert heard is not None, whole
            assert (str(heard.key), heard.client, heard.relayed) == (key, somebody.name, False)
            assert (heard.author.client, heard.author.at) == (whole["client"]["name"], whole["timestamp"])


async def test_a_request_that_reads_or_fails_is_no_change(any_server: Server) -> None:
    async with await Wire.connect(any_server.url) as wire, await Wire.connect(any_server.url) as somebody:
        await wire.expect("STREAM.CREATE.S", STREAM)
        for request in ("INFO", "STREAM.INFO.S", "STREAM.LIST", "STREAM.PURGE.S", "CONSUMER.LIST.S", "STREAM.DELETE.NONE"):
            data = await overheard(wire, somebody, request)
            assert json.loads(data)["subject"] == f"$JS.API.{request}"
            assert read_change(data) is None
        refused = await overheard(wire, somebody, "STREAM.UPDATE.S", STREAM | {"retention": "workqueue"})
        assert read_change(refused) is None


async def test_a_client_without_a_name_is_called_by_its_library(server: Server, wire: Wire) -> None:
    async with await Wire.connect(server.url, name=None) as nameless:
        data = await overheard(wire, nameless, "STREAM.CREATE.S", STREAM, undo=("STREAM.DELETE.S", None))
    heard = read_change(data)
    assert heard is not None
    assert heard.client == ""
    assert heard.author.client.startswith("python3/2.")


@pytest.mark.parametrize("data", [b"", b"{}", b'{"type":"x"},"subject":"', b'{"client":{},"subject":"$JS.API.STREAM.DELETE.S"}'])
def test_what_is_no_audit_message_is_ignored(data: bytes) -> None:
    assert read_change(data) is None


async def test_the_user_is_named(tmp_path: Path) -> None:
    with Server(tmp_path / "s", config=DENIED) as server:
        async with (
            listening(server.url, user="ann", password="pw") as ears,
            await Wire.connect(server.url, user="ann", password="pw", name="cli") as wire,
        ):
            await wire.expect("STREAM.CREATE.S", STREAM)
            await ears.until_hinted("Stream/S", "cli")
            assert [author.user for author in ears.authors("Stream/S")] == ["ann"]


async def test_too_much_of_it_is_shed_and_tried_again_until_it_is_bearable(server: Server, wire: Wire) -> None:
    await wire.expect("STREAM.CREATE.S", STREAM)
    async with listening(server.url, limits=SMALL) as ears:

        async def keep_polling() -> None:
            while True:
                await poll(wire, 100)
                await asyncio.sleep(0.05)

        await ears.awake(wire)
        polling = asyncio.create_task(keep_polling())
        await eventually(lambda: ears.states == ["on", "shed"])
        assert ears.rates[-1] > SMALL.budget
        await asyncio.sleep(2 * (SMALL.retry + SMALL.trial))  # time for it to be tried again; where that comes later, none failed
        assert ears.states == ["on", "shed"], "it is still too much"
        assert not ears.lost
        await wire.expect("STREAM.UPDATE.S", STREAM | {"max_msgs": 5})
        await ears.until_hinted("Stream/S")
        polling.cancel()
        await eventually(lambda: ears.states == ["on", "shed", "on"])
        await eventually(lambda: ears.lost == ["the API audit: not listened to while it was too much"])
        await ears.awake(wire)
        await wire.expect("STREAM.UPDATE.S", STREAM | {"max_msgs": 6})
        await ears.until_hinted("Stream/S", wire.name)


async def test_on_stays_on_and_names_the_writer_among_many_readers(server: Server, wire: Wire) -> None:
    await wire.expect("STREAM.CREATE.S", STREAM)
    async with listening(server.url, AuditMode.ON, limits=SMALL) as ears:
        before = ears.hints.audit.heard
        await poll(wire, 2_000)
        await wire.expect("STREAM.UPDATE.S", STREAM | {"max_msgs": 5})
        await poll(wire, 2_000)
        await ears.until_hinted("Stream/S", wire.name)
        await eventually(lambda: ears.hints.audit.heard >= before + 4_001)
        assert ears.hints.audit.heard == before + 4_001, "none is dropped, none is counted twice"
        await asyncio.sleep(2 * SMALL.window)  # a window that ends later has not shed it, either
        assert ears.states == ["on"]


async def test_off_does_not_even_connect(server: Server) -> None:
    async with listening(server.url, AuditMode.OFF) as ears:
        assert ears.states == ["off"]
        assert {client["name"] for client in server.monitor("connz")["connections"]} == {OWN, f"{OWN}-hints"}


async def test_it_is_on_a_connection_of_its_own(server: Server) -> None:
    async with listening(server.url):
        assert {client["name"] for client in server.monitor("connz")["connections"]} == {OWN, f"{OWN}-hints", f"{OWN}-audit"}


async def test_who_may_not_hear_it_is_told_and_still_gets_advisories(tmp_path: Path) -> None:
    with Server(tmp_path / "s", config=DENIED) as server:
        async with (
            listening(server.url, user="deaf", password="pw") as ears,
            await Wire.connect(server.url, user="ann", password="pw") as wire,
        ):
            assert ears.states == ["denied"]
            await wire.expect("STREAM.CREATE.S", STREAM)
            await ears.until_hinted("Stream/S")
            assert ears.authors("Stream/S") == []


async def test_a_listener_that_is_cut_off_for_being_slow_says_so_and_hears_again(tmp_path: Path) -> None:
    limits = "max_payload: 64KB\nmax_pending: 128KB"
    with Server(tmp_path / "s", config=limits) as server:
        async with listening(server.url, AuditMode.ON) as ears, await Wire.connect(server.url, name="exporter") as wire:
            await wire.expect("STREAM.CREATE.S", STREAM | {"description": "x" * 4000})
            async with asyncio.timeout(SECONDS):
                while "the API audit: its connection was away" not in ears.lost:  # it takes several turns to fill up
                    await poll(wire, 5_000)
                    time.sleep(1)  # noqa: ASYNC251 - that is what makes it slow
                    await asyncio.sleep(0.1)
            assert f"{OWN}-audit" in server.logs()
            assert "Slow Consumer" in server.logs()
            await eventually(lambda: ears.states[-1] == "on")
            await ears.awake(wire)
            await wire.expect("STREAM.UPDATE.S", STREAM | {"max_msgs": 5})
            await ears.until_hinted("Stream/S", "exporter")


async def test_a_taker_that_fails_does_not_end_the_reading(server: Server, connect: Connect, wire: Wire) -> None:
    taken: list[bytes] = []

    def take(_: str, data: bytes) -> None:
        if data == b"0":
            msg = "on purpose"
            raise RuntimeError(msg)
        taken.append(data)

    connection = await connect(server.url)
    tap = await connection.tap("numbers", take, calm=True)
    await connection.flush()
    for number in range(20_000):
        await wire.client.publish("numbers", str(number).encode())
    await wire.client.flush()
    await eventually(lambda: len(taken) >= 19_999)
    assert taken == [str(number).encode() for number in range(1, 20_000)]
    await connection.unsubscribe(tap)
    await connection.flush()
    await wire.client.publish("numbers", b"late")
    await wire.client.flush()
    await connection.flush()
    assert len(taken) == 19_999
