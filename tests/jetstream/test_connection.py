"""Requests, refusals, losses and comebacks against real servers."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import nats
import pytest

from reconciler.errors import AccessDenied, NoAnswer, NoResponders, NotSent, Unreachable
from reconciler.jetstream.api import JetStreamApi
from reconciler.jetstream.transport.connection import Connection
from reconciler.jetstream.transport.settings import ConnectionSettings
from reconciler.jetstream.transport.subscription import ReceivedMessage
from tests.support.account.connecting import Connect
from tests.support.account.wire import eventually
from tests.support.cluster.servers import Cluster
from tests.support.server.process import Server

LIMITED = """
authorization {
  users: [
    { user: limited, password: pw, permissions: {
        publish: ["$JS.API.INFO", "$JS.API.STREAM.INFO.*", "$JS.API.STREAM.CREATE.YES"], subscribe: ["_INBOX.>", "open.>"] } }
    { user: deaf, password: pw, permissions: { publish: ">", subscribe: "mine.>" } }
    { user: all, password: pw }
  ]
}
"""


async def stream_names(url: str) -> list[str]:
    """What another client sees."""
    client = await nats.connect(url)
    reply = await client.request("$JS.API.STREAM.NAMES", timeout=60)
    await client.close()
    return json.loads(reply.data).get("streams") or []


async def test_says_who_the_server_is(any_server: Server, connect: Connect) -> None:
    connection = await connect(any_server.url)
    assert connection.connected
    assert connection.server.version == any_server.version
    assert connection.server.jetstream
    assert connection.server.name == any_server.name
    if any_server.version.startswith("2.11"):
        assert connection.server.api_level is None
    else:
        assert connection.server.api_level == (await JetStreamApi(connection).account_info())["api"]["level"]


async def test_no_responders_is_not_a_timeout(connection: Connection) -> None:
    with pytest.raises(NoResponders, match=r"nobody\.home"):
        await connection.request("nobody.home")


async def test_a_silent_responder_is_no_answer_after_the_timeout(connection: Connection) -> None:
    async def ignore(_: ReceivedMessage) -> None: ...

    await connection.subscribe("silent", ignore)
    with pytest.raises(NoAnswer, match=r"silent: no answer within 0\.2s"):
        await connection.request("silent", timeout=0.2, write=True)
    assert connection.connected, "a responder that is silent is no reason to cut a connection that works"


async def test_an_answer_that_came_while_the_process_was_busy_counts(connection: Connection) -> None:
    asking = asyncio.ensure_future(connection.request("$JS.API.INFO", timeout=0.2))
    await asyncio.sleep(0.01)
    time.sleep(0.5)  # noqa: ASYNC251 - that is the point
    assert (await asking).data


async def test_many_requests_in_flight_find_their_own_answers(connection: Connection) -> None:
    async def echo(message: ReceivedMessage) -> None:
        await responder.publish(message.reply, message.data)

    responder = await nats.connect(connection.settings.servers[0])
    await connection.subscribe("echo", echo)
    replies = await asyncio.gather(*(connection.request("echo", str(number).encode()) for number in range(500)))
    assert [reply.data for reply in replies] == [str(number).encode() for number in range(500)]
    await responder.close()


async def test_a_refused_publish_fails_at_once_and_alone(tmp_path: Path, connect: Connect) -> None:
    with Server(tmp_path / "s", config=LIMITED) as server:
        connection = await connect(server.url, user="limited", password="pw", timeout=60.0)
        api = JetStreamApi(connection)
        started = time.monotonic()
        allowed = asyncio.ensure_future(api.create_stream("YES", {"name": "YES", "subjects": ["yes"]}))
        with pytest.raises(AccessDenied) as caught:
            await api.create_stream("No", {"name": "No", "subjects": ["no"]})
        assert time.monotonic() - started < 30, "by the refusal, not by the minute's timeout"
        assert (caught.value.operation, caught.value.subject) == ("publish", "$JS.API.STREAM.CREATE.No")
        assert (await allowed)["config"]["name"] == "YES"


async def test_who_may_not_receive_answers_is_told_when_connecting(tmp_path: Path, connect: Connect) -> None:
    with Server(tmp_path / "s", config=LIMITED) as server:
        with pytest.raises(AccessDenied, match=r"subscribe \"_INBOX\.") as caught:
            await connect(server.url, user="deaf", password="pw")
        assert caught.value.operation == "subscribe"
        connection = await connect(server.url, user="deaf", password="pw", inbox_prefix="mine")
        assert (await JetStreamApi(connection).account_info())["streams"] == 0


async def test_a_refused_subscription_is_marked(tmp_path: Path, connect: Connect) -> None:
    async def ignore(_: ReceivedMessage) -> None: ...

    with Server(tmp_path / "s", config=LIMITED) as server:
        connection = await connect(server.url, user="limited", password="pw")
        secret, public = await connection.subscribe("Secret", ignore), await connection.subscribe("open.x", ignore)
        await connection.flush()
        assert secret.denied
        assert not public.denied


async def test_a_request_while_disconnected_is_dropped_not_queued(server: Server, connect: Connect) -> None:
    """The control shows the damage: plain nats-py executes what its caller had given up."""
    connection = await connect(server.url, timeout=1.0)
    plain = await nats.connect(server.url, reconnect_time_wait=0, max_reconnect_attempts=-1, error_cb=_ignore)
    server.stop()
    await eventually(lambda: not connection.connected and plain.is_reconnecting)
    config = {"name": "GHOST", "subjects": ["ghost"]}
    with pytest.raises(NotSent):
        await JetStreamApi(connection).create_stream("GHOST", config)
    with pytest.raises(nats.errors.TimeoutError):
        await plain.request("$JS.API.STREAM.CREATE.CONTROL", json.dumps({"name": "CONTROL"}).encode(), timeout=0.2)
    server.start()
    await eventually(lambda: connection.connected and plain.is_connected)
    await plain.flush()
    assert await stream_names(server.url) == ["CONTROL"]
    await plain.close()


async def test_requests_in_flight_at_the_loss_fail_at_once_and_are_not_repeated(server: Server, connect: Connect) -> None:
    connection = await connect(server.url, timeout=60.0)
    api = JetStreamApi(connection)
    server.freeze()
    creates = [asyncio.ensure_future(api.create_stream(f"S{i}", {"name": f"S{i}", "subjects": [f"s{i}"]})) for i in range(20)]
    await asyncio.sleep(0)  # they are in the client's buffer now, and the server takes nothing
    server.kill()
    started = time.monotonic()
    results = await asyncio.gather(*creates, return_exceptions=True)
    assert all(isinstance(result, NoAnswer | NotSent) for result in results), results
    assert time.monotonic() - started < 30, "by the loss, not by the minute's timeout"
    server.start()
    await connection.wait_connected()
    await connection.flush()
    assert await stream_names(server.url) == []


async def test_a_write_given_up_while_the_network_was_silent_never_arrives(server: Server, connect: Connect) -> None:
    """Bytes beyond what a frozen server's socket takes wait in our own buffers; with a write they go down with the connection.

    The control is the same request without `write`: it is executed long after its caller gave up.
    """
    connection, control = await connect(server.url, timeout=0.3), await connect(server.url, timeout=0.3)
    server.freeze()
    fillers = (via.request("fill", bytes(1 << 20)) for via in (connection, control) for _ in range(12))
    await asyncio.gather(*fillers, return_exceptions=True)
    with pytest.raises(NoAnswer):
        await control.request("$JS.API.STREAM.CREATE.CONTROL", json.dumps({"name": "CONTROL"}).encode())
    with pytest.raises(NoAnswer):
        await JetStreamApi(connection).create_stream("LATE", {"name": "LATE", "subjects": ["late"]})
    server.thaw()
    await connection.wait_connected()
    await connection.flush()
    await control.flush()
    assert await stream_names(server.url) == ["CONTROL"]


async def test_comes_back_with_its_subscriptions_and_tells(server: Server, connect: Connect) -> None:
    connection = await connect(server.url)
    states: list[bool] = []
    seen: list[bytes] = []

    async def note(message: ReceivedMessage) -> None:
        seen.append(message.data)

    connection.on_state_change(states.append)
    await connection.subscribe("news", note)
    server.restart()
    await eventually(lambda: states == [False, True])
    other = await nats.connect(server.url)
    await connection.flush()
    await other.publish("news", b"again")
    await eventually(lambda: seen == [b"again"])
    assert (await JetStreamApi(connection).account_info())["streams"] == 0
    assert connection.reconnects == 1
    await other.close()


async def test_moves_to_another_server_of_the_cluster_it_was_not_told_of(tmp_path: Path, connect: Connect) -> None:
    with Cluster(tmp_path) as cluster:
        connection = await connect(cluster.servers[0].url)
        assert connection.server.cluster == "test"
        cluster.servers[0].kill()
        await eventually(lambda: connection.connected and connection.server.name != cluster.servers[0].name)


async def test_a_closed_connection_sends_nothing(server: Server) -> None:
    connection = await Connection.open(ConnectionSettings(servers=(server.url,)))
    await connection.close()
    with pytest.raises(NotSent):
        await connection.request("$JS.API.INFO")


async def test_a_slow_handler_is_counted_not_silent(connection: Connection) -> None:
    gate = asyncio.Event()

    async def slow(_: ReceivedMessage) -> None:
        await gate.wait()

    subscription = await connection.subscribe("flood", slow, pending_bytes=1000)
    other = await nats.connect(connection.settings.servers[0])
    for _ in range(20):
        await other.publish("flood", bytes(400))
    await other.flush()
    await eventually(lambda: subscription.dropped > 0)
    gate.set()
    await other.close()


async def test_nobody_there(connect: Connect, server: Server) -> None:
    url = server.url
    server.stop()
    with pytest.raises(Unreachable, match=r"no NATS server is listening at nats://\*\*\*@127.0.0.1:\d+: start it"):
        await connect(url.replace("nats://", "nats://me:secret@"))


async def _ignore(_: Exception) -> None: ...
