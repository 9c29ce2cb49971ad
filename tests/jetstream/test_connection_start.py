"""A connection that waits for its server, messages nobody answers, and who is told of each request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import structlog

from reconciler.errors import AccessDenied, ApiError, NoAnswer, NoResponders, NotSent, Unreachable
from reconciler.jetstream.api import JetStreamApi
from reconciler.jetstream.domains import DomainApis
from reconciler.jetstream.transport.connection import Connection
from reconciler.jetstream.transport.dial import dial
from reconciler.jetstream.transport.settings import ConnectionSettings
from reconciler.jetstream.transport.subscription import ReceivedMessage
from tests.support.account.connecting import Connect
from tests.support.account.wire import Wire, eventually
from tests.support.cluster.servers import free_ports
from tests.support.server.process import Server

LIMITED = """
authorization { users: [
  { user: limited, password: pw, permissions: { publish: ["open.>", "$JS.API.INFO"], subscribe: "_INBOX.>" } }
  { user: deaf, password: pw, permissions: { publish: ">", subscribe: "mine.>" } }
  { user: all, password: pw }
] }
"""


@asynccontextmanager
async def started(*urls: str, **settings: object) -> AsyncIterator[Connection]:
    made = ConnectionSettings(servers=urls, timeout=30.0, **settings)  # type: ignore[arg-type]  # the test names the fields
    async with await Connection.start(made) as connection:
        yield connection


async def test_a_server_that_is_there_is_connected_to_at_once(server: Server) -> None:
    async with started(server.url) as connection:
        assert connection.connected


async def test_a_server_that_is_away_at_the_start_is_waited_for(server: Server) -> None:
    url = server.url
    server.stop()
    states: list[bool] = []
    heard: list[bytes] = []

    async def note(message: ReceivedMessage) -> None:
        heard.append(message.data)

    async with started(url) as connection:
        connection.on_state_change(states.append)
        await connection.subscribe("news", note)
        await connection.tap("news", lambda _, data: heard.append(data))
        assert not connection.connected
        assert not connection.publish("news", b"nobody hears this")
        with pytest.raises(NotSent):
            await connection.request("$JS.API.INFO")
        server.start()
        await connection.wait_connected()
        await eventually(lambda: states == [True])
        assert connection.reconnects == 0
        assert (await JetStreamApi(connection).account_info())["streams"] == 0
        assert connection.publish("news", b"late")
        await eventually(lambda: heard == [b"late", b"late"])
        server.restart()
        await eventually(lambda: states == [True, False, True])
        assert connection.reconnects == 1


async def test_closing_ends_the_waiting(server: Server) -> None:
    url = server.url
    server.stop()
    async with started(url) as connection:
        assert not connection.connected
    server.start()
    await asyncio.sleep(0.3)  # for what should not come: where it came later, nothing would fail falsely
    assert not connection.connected
    assert server.monitor("connz")["connections"] == []


async def test_whoever_is_to_end_ends_in_whichever_tick_a_server_refuses() -> None:
    settings = ConnectionSettings(servers=(url := f"nats://127.0.0.1:{free_ports(1)[0]}",))

    async def never(_: Exception) -> None:
        raise AssertionError

    for ticks in range(100):
        dialling = asyncio.create_task(dial(settings, url, "", on_error=never, on_lost=lambda: None))
        for _ in range(ticks):
            await asyncio.sleep(0)
        over = dialling.done()
        dialling.cancel()
        (ended,) = await asyncio.gather(dialling, return_exceptions=True)
        assert isinstance(ended, Unreachable if over else asyncio.CancelledError), ticks
        if over:
            break
    assert over
    assert ticks > 1


async def test_what_waiting_cannot_mend_is_raised_at_the_start(tmp_path: Path) -> None:
    with Server(tmp_path / "s", config=LIMITED) as server:
        with pytest.raises(Unreachable, match="refused the login"):
            await Connection.start(ConnectionSettings(servers=(server.url,), user="all", password="wrong"))
        with pytest.raises(AccessDenied, match="_INBOX"):
            await Connection.start(ConnectionSettings(servers=(server.url,), user="deaf", password="pw"))
        url = server.url
    wrong = tmp_path / "wrong"
    wrong.write_text("nothing useful\n")
    for field in ("creds", "nkey", "ca"):
        with pytest.raises(Unreachable):
            await Connection.start(ConnectionSettings(servers=(url,), **{field: str(wrong)}))  # type: ignore[arg-type]  # a file's name


async def test_messages_that_nobody_answers_arrive_in_order(server: Server, connect: Connect, wire: Wire) -> None:
    heard: list[bytes] = []
    connection = await connect(server.url)
    await connection.tap("told.>", lambda _, data: heard.append(data))
    await connection.flush()
    assert all(connection.publish("told.x", str(number).encode()) for number in range(1_000))
    assert not connection.publish("told.x", bytes(2 << 20)), "more than the server takes"
    with pytest.raises(ValueError, match="not a subject"):
        connection.publish("told.x 0\r\nPUB told.y", b"")
    await connection.flush()
    await eventually(lambda: len(heard) == 1_000)
    assert heard == [str(number).encode() for number in range(1_000)]
    assert wire.client.is_connected


async def test_what_is_refused_once_is_not_tried_again_on_that_link(tmp_path: Path) -> None:
    with Server(tmp_path / "s", config=LIMITED) as server:
        async with started(server.url, user="limited", password="pw") as connection:
            with structlog.testing.capture_logs() as logs:
                for number in range(5):
                    assert connection.publish(f"closed.Events.{number}", b"")
                await connection.flush()
                await eventually(lambda: not connection.publish("closed.Events.6", b""))
                await connection.tap("Closed.>", lambda *_: None)
                await eventually(lambda: len(logs) == 2)
            assert [line["event"] for line in logs] == ["nats.permission_denied"] * 2
            denied = [line["subject"] for line in logs]
            assert denied == ["closed.Events.4", "Closed.>"], "to be granted as it is written, not in lower case"
            assert connection.publish("open.events", b""), "something else may be permitted"
            with pytest.raises(AccessDenied):
                await connection.request("closed.events.7")
            server.restart()
            await eventually(lambda: connection.reconnects == 1)
            assert connection.publish("closed.events.8", b""), "permissions may have changed"


async def test_a_listener_is_told_of_each_request_and_how_it_ended(server: Server, connect: Connect) -> None:
    told: list[tuple[str, str]] = []
    took: list[float] = []

    def note(operation: str, code: str, seconds: float) -> None:
        told.append((operation, code))
        took.append(seconds)

    began = time.monotonic()
    connection = await connect(server.url, timeout=30.0)
    apis = DomainApis(connection, note)
    await apis("").account_info()
    with pytest.raises(ApiError):
        await apis("").stream_info("NONE")
    await apis("").create_stream("S", {"name": "S"})
    with pytest.raises(NoResponders):
        await apis("elsewhere").consumer_info("S", "c")
    server.freeze()
    with pytest.raises(NoAnswer):
        await apis("").call("STREAM.NAMES", timeout=0.1)
    server.thaw()
    await connection.close()
    with pytest.raises(NotSent):
        await apis("").account_info()
    assert told == [
        ("INFO", "ok"),
        ("STREAM.INFO", "10059"),
        ("STREAM.CREATE", "ok"),
        ("CONSUMER.INFO", "no_responders"),
        ("STREAM.NAMES", "no_answer"),
        ("INFO", "not_sent"),
    ]
    assert all(seconds >= 0 for seconds in took)
    assert took[4] >= 0.1
    assert sum(took) <= time.monotonic() - began, "seconds of this clock, each counted once"


@pytest.mark.filterwarnings("ignore:parameter 'timeout':DeprecationWarning")  # of nats-py
async def test_a_websocket_is_a_connection_like_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nats.aio.transport.aiohttp", None)  # as it is in a process that has opened none yet
    (port,) = free_ports(1)
    with Server(tmp_path / "s", config=f'websocket {{ listen: "127.0.0.1:{port}", no_tls: true }}'):
        async with started(f"ws://127.0.0.1:{port}") as connection:
            assert b"streams" in (await connection.request("$JS.API.STREAM.NAMES", b"{}")).data
