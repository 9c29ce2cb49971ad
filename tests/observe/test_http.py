"""The process over HTTP, asked by a real client on a real port."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from prometheus_client.parser import text_string_to_metric_families

from reconciler.errors import Refused, UsageError
from reconciler.model import units
from reconciler.model.identity import Key
from reconciler.observe.http.controls import LIMIT, MOST, ConsumerRequest, StatusQuery
from reconciler.observe.http.server import HttpServer
from reconciler.observe.metrics import Metrics
from reconciler.plan.requests.pause import Command, Pause, Resume
from reconciler.plan.requests.reset import Reset
from tests.support.daemon.controls import Daemon

ORDERS = Key("Stream", "ORDERS")
KEYED = ["/-/suspend", "/-/resume", "/-/procedure/abort", "/-/procedure/retry"]
ORDERS_GIVEN = ["/-/reload", "/-/reconcile", *KEYED]
GETS = ["/", "/livez", "/healthz", "/readyz", "/startupz", "/metrics", "/status"]


@dataclass
class Answer:
    """A response, read."""

    status: int
    headers: dict[str, str]
    text: str
    json: Any


@dataclass
class Client:
    """A daemon behind HTTP, and somebody who asks."""

    daemon: Daemon
    server: HttpServer
    session: aiohttp.ClientSession

    async def ask(self, method: str, path: str, **headers: str) -> Answer:
        """One request; header names with underscores."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.session.request(method, self.server.url + path, headers=named) as response:
            read = await response.json() if response.content_type == "application/json" else None
            return Answer(response.status, dict(response.headers), await response.text(), read)

    async def get(self, path: str, **headers: str) -> Answer:
        """A GET."""
        return await self.ask("GET", path, **headers)

    async def post(self, path: str, **headers: str) -> Answer:
        """A POST."""
        return await self.ask("POST", path, **headers)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.server.url.rpartition(":")[2])


Start = Callable[..., Awaitable[Client]]


@pytest_asyncio.fixture
async def start() -> AsyncIterator[Start]:
    """Starts servers on free ports; all are stopped at the end."""
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())

        async def started(host: str = "127.0.0.1", token: str = "") -> Client:
            daemon = Daemon()
            server = HttpServer(daemon, Metrics().render, token=token)
            await server.start(host, 0)
            stack.push_async_callback(server.stop)
            return Client(daemon, server, session)

        yield started


@pytest_asyncio.fixture
async def http(start: Start) -> Client:
    """A server on loopback without a token."""
    return await start()


@pytest.mark.parametrize("path", ["/livez", "/healthz"])
async def test_it_is_alive_as_long_as_the_loop_is_whatever_nats_does(http: Client, path: str) -> None:
    http.daemon.reason = "not connected"
    assert (await http.get(path)).status == 200
    http.daemon.living = False
    assert (await http.get(path)).status == 503


@pytest.mark.parametrize("path", ["/readyz", "/startupz"])
async def test_it_says_why_it_is_not_ready(http: Client, path: str) -> None:
    assert (await http.get(path)).status == 200
    http.daemon.reason = "not connected to nats://127.0.0.1:4222"
    answer = await http.get(path)
    assert (answer.status, answer.text) == (503, "not connected to nats://127.0.0.1:4222\n")


async def test_metrics_are_what_prometheus_reads(http: Client) -> None:
    answer = await http.get("/metrics")
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "reconciler_leader" in {family.name for family in text_string_to_metric_families(answer.text)}


async def test_the_root_lists_every_endpoint(http: Client) -> None:
    listed = (await http.get("/")).text
    assert all(path in listed for path in [*ORDERS_GIVEN, "/livez", "/readyz", "/metrics", "/status"])


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", StatusQuery()),
        (
            "?kind=Consumer&state=OutOfSync&limit=7&cursor=Stream/A",
            StatusQuery(kind="Consumer", state="OutOfSync", limit=7, cursor="Stream/A"),
        ),
        ("?state=out_of_sync", StatusQuery(state="OutOfSync")),
        ("?state=outofsync", StatusQuery(state="OutOfSync")),
        ("?kind=&state=&limit=&cursor=", StatusQuery(limit=LIMIT)),
        (f"?limit={MOST}", StatusQuery(limit=MOST)),
    ],
)
async def test_the_status_is_asked_for_as_the_query_says(http: Client, query: str, expected: StatusQuery) -> None:
    answer = await http.get(f"/status{query}")
    assert (answer.status, answer.json) == (200, {"kind": "Status", "resources": []})
    assert http.daemon.asked == [("status", expected)]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("kind=Streams", "Stream, KeyValue"),
        ("state=bad", "Synced, OutOfSync"),
        ("limit=0", "from 1 to 10000"),
        ("limit=10001", "from 1 to 10000"),
        ("limit=-1", "from 1 to 10000"),
        ("limit=x", "from 1 to 10000"),
        ("limit=%C2%B2", "from 1 to 10000"),
        ("limit=" + "9" * 5000, "from 1 to 10000"),
        ("limit=1&limit=2", "more than once"),
        ("page=2", "kind, state, limit, cursor"),
        ("cursor=" + "x" * 2000, "cursor"),
        ("cursor=%00", "cursor"),
    ],
)
async def test_a_query_that_means_nothing_is_a_400_that_says_what_would(http: Client, query: str, said: str) -> None:
    answer = await http.get(f"/status?{query}")
    assert answer.status == 400
    assert said in answer.json["error"]
    assert http.daemon.asked == []


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/-/reload", ("reload",)),
        ("/-/reconcile", ("reconcile", None)),
        ("/-/reconcile?key=Stream/ORDERS", ("reconcile", ORDERS)),
        ("/-/reconcile?key=leaf:Consumer/ORDERS/billing", ("reconcile", Key("Consumer", "billing", "ORDERS", "leaf"))),
        ("/-/suspend?key=Stream/ORDERS", ("suspend", ORDERS)),
        ("/-/resume?key=Stream%2FORDERS", ("resume", ORDERS)),
        ("/-/procedure/abort?key=Stream/ORDERS", ("abort", ORDERS)),
        ("/-/procedure/retry?key=Stream/ORDERS", ("retry", ORDERS)),
    ],
)
async def test_an_order_reaches_the_daemon(http: Client, path: str, asked: tuple[object, ...]) -> None:
    answer = await http.post(path)
    assert answer.status == 200
    assert answer.json["accepted"] == path.partition("?")[0]
    assert http.daemon.asked == [asked]


@pytest.mark.parametrize("path", KEYED)
@pytest.mark.parametrize("query", ["", "?key=", "?key=ORDERS", "?key=Stream/", "?key=Consumer/x", "?key=Stream/A&key=Stream/B"])
async def test_an_order_without_a_good_key_is_a_400(http: Client, path: str, query: str) -> None:
    answer = await http.post(path + query)
    assert answer.status == 400
    assert "key" in answer.json["error"]
    assert http.daemon.asked == []


@pytest.mark.parametrize("path", ["/-/reload?key=Stream/A", "/-/reconcile?kye=Stream/A", "/-/reconcile?key="])
async def test_a_parameter_that_is_not_understood_never_means_everything(http: Client, path: str) -> None:
    assert (await http.post(path)).status == 400
    assert http.daemon.asked == []


@pytest.mark.parametrize(
    ("error", "status"), [(Refused(("not the leader", "ask a")), 409), (UsageError("Stream/X is not declared"), 400)]
)
async def test_what_the_daemon_will_not_do_is_said_with_its_reason(http: Client, error: Exception, status: int) -> None:
    http.daemon.refuse = error
    answer = await http.post("/-/suspend?key=Stream/X")
    assert (answer.status, answer.json) == (status, {"error": str(error)})


@pytest.mark.parametrize("path", ["/status", "/-/suspend?key=Stream/X"])
async def test_a_fault_of_our_own_is_a_500_without_details(http: Client, path: str) -> None:
    http.daemon.refuse = RuntimeError("hunter2")
    answer = await http.ask("POST" if path.startswith("/-/") else "GET", path)
    assert answer.status == 500
    assert "hunter2" not in answer.text
    http.daemon.refuse = None
    assert (await http.get("/status")).status == 200


async def test_an_unknown_path_is_a_404_that_lists_the_endpoints(http: Client) -> None:
    answer = await http.get("/statsu")
    assert answer.status == 404
    assert answer.json["error"] == "there is nothing at /statsu"
    assert {"GET /status", "POST /-/reload"} <= set(answer.json["endpoints"])


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [("GET", "/-/reload", "POST"), ("DELETE", "/-/suspend", "POST"), ("POST", "/status", "GET, HEAD")],
)
async def test_a_wrong_method_is_a_405_that_names_the_right_one(http: Client, method: str, path: str, allowed: str) -> None:
    answer = await http.ask(method, path)
    assert (answer.status, answer.headers["Allow"]) == (405, allowed)
    assert answer.json["error"]
    assert http.daemon.asked == []


@pytest.mark.parametrize("path", [*GETS, "/nothing", "/status?limit=0"])
async def test_no_answer_may_be_stored_and_none_names_the_software(http: Client, path: str) -> None:
    answer = await http.get(path)
    assert answer.headers["Cache-Control"] == "no-store"
    assert "Server" not in answer.headers
    assert "aiohttp" not in answer.text


@pytest.mark.parametrize("path", ["/livez", "/metrics", "/status"])
async def test_head_is_answered_like_get(http: Client, path: str) -> None:
    answer = await http.ask("HEAD", path)
    assert (answer.status, answer.text) == (200, "")


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://["},
        {"Origin": "file://"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Sec_Fetch_Site": "unheard-of"},
    ],
)
@pytest.mark.parametrize("token", ["", "hunter2"])
@pytest.mark.parametrize("path", ["/-/reload", "/-/suspend?key=Stream/ORDERS"])
async def test_a_page_of_another_site_can_order_nothing(start: Start, token: str, path: str, headers: dict[str, str]) -> None:
    http = await start(token=token)
    answer = await http.post(path, Authorization="Bearer hunter2", **headers)
    assert (answer.status, answer.json) == (403, {"error": "a page of another site may not do this"})
    assert http.daemon.asked == []


async def test_a_page_of_our_own_may_order(http: Client) -> None:
    origin = f"http://localhost:{http.port}"
    answer = await http.post("/-/reload", Origin=origin, Host=f"localhost:{http.port}", Sec_Fetch_Site="same-origin")
    assert answer.status == 200
    assert (await http.post("/-/reload", Sec_Fetch_Site="none")).status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "10.0.0.1", "[", "", "localhost@evil.example"]
)
async def test_a_name_that_was_rebound_to_our_address_can_order_nothing(http: Client, host: str) -> None:
    answer = await http.post("/-/reload", Host=host, Origin=f"http://{host}", Sec_Fetch_Site="same-origin")
    assert answer.status in (400, 403)
    assert http.daemon.asked == []
    assert (await http.post("/-/reload", Host=host)).status in (400, 403)
    assert http.daemon.asked == []


async def test_a_page_that_was_rebound_to_our_address_reads_nothing(start: Start) -> None:
    http = await start(token="hunter2")
    for host in ("evil.example", "127.0.0.1.evil.example:80", "localhost@evil.example"):
        assert (await http.get("/status", Host=host)).status in (400, 403)
    assert (await http.get("/status", Origin="http://evil.example")).status == 403
    assert (await http.get("/status", Host="evil.example", Authorization="Bearer hunter2")).status == 200
    assert (await http.get("/status", Host=f"{socket.gethostname()}:80")).status == 200
    assert (await http.get("/readyz", Host="evil.example")).status == 200, "probes come by whatever name"


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:99", "localhost.", "127.0.0.1:80", "127.1.2.3", "[::1]:8080"])
async def test_names_of_this_machine_are_good(http: Client, host: str) -> None:
    assert (await http.post("/-/reload", Host=host)).status == 200


@pytest.mark.parametrize("name", ["X-Forwarded-For", "Forwarded", "X-Real-IP"])
async def test_what_a_proxy_forwards_does_not_come_from_this_machine(http: Client, name: str) -> None:
    answer = await http.post("/-/reload", **{name.replace("-", "_"): "for=127.0.0.1"})
    assert answer.status == 403
    assert http.daemon.asked == []


async def test_without_a_token_another_machine_can_read_but_not_order(start: Start, another_address: str) -> None:
    http = await start(host="0.0.0.0")  # noqa: S104 - that is the case
    url = f"http://{another_address}:{http.port}"
    async with http.session.post(f"{url}/-/reload", headers={"Host": "localhost"}) as response:
        assert response.status == 403
        assert "same machine" in (await response.json())["error"]
    async with http.session.get(f"{url}/metrics") as response:
        assert response.status == 200
    assert http.daemon.asked == []


async def test_with_a_token_another_machine_may_order(start: Start, another_address: str) -> None:
    http = await start(host="0.0.0.0", token="hunter2")  # noqa: S104 - that is the case
    url = f"http://{another_address}:{http.port}/-/reload"
    headers = {"Authorization": "Bearer hunter2", "Host": "reconciler.example"}
    async with http.session.post(url, headers=headers) as response:
        assert response.status == 200
    assert http.daemon.asked == [("reload",)]


@pytest.fixture
def another_address() -> str:
    """An address of this machine that is not loopback: whoever comes from there is as far away as any other."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            pytest.skip("this machine has no address but loopback")
        return str(probe.getsockname()[0])


@pytest.mark.parametrize(
    "given", ["", "Bearer", "Bearer ", "Bearer wrong", "Bearer hunter22", "Basic hunter2", "hunter2", "Bearer häé"]
)
async def test_with_a_token_nobody_orders_without_it_not_even_from_here(start: Start, given: str) -> None:
    http = await start(token="hunter2")
    answer = await http.post("/-/reload", **({"Authorization": given} if given else {}))
    assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert "Authorization: Bearer" in answer.json["error"]
    assert "hunter2" not in answer.text
    assert http.daemon.asked == []


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER "])
async def test_the_right_token_opens(start: Start, scheme: str) -> None:
    http = await start(token="hunter2")
    assert (await http.post("/-/reload", Authorization=f"{scheme} hunter2")).status == 200


async def test_reading_never_needs_the_token(start: Start) -> None:
    http = await start(token="hunter2")
    assert [(await http.get(path)).status for path in GETS] == [200] * len(GETS)


async def test_a_body_is_neither_needed_nor_read(http: Client) -> None:
    async with http.session.post(f"{http.server.url}/-/reload", data=b"x" * (1 << 16)) as response:
        assert response.status == 200
    assert (await http.post("/-/reload")).status == 200


async def test_a_taken_port_is_said_with_the_way_out(http: Client) -> None:
    other = HttpServer(http.daemon, Metrics().render)
    with pytest.raises(UsageError) as caught:
        await other.start("127.0.0.1", http.port)
    expected = f"port {http.port} on 127.0.0.1 is taken by another process; choose one with --http HOST:PORT"
    assert (str(caught.value), other.url) == (expected, "")
    assert (await http.get("/livez")).status == 200


@pytest.mark.parametrize(("host", "port"), [("nowhere.invalid", 0), ("203.0.113.9", 0), ("..", 0), ("127.0.0.1", 99999)])
async def test_an_address_that_cannot_be_listened_on_is_said(host: str, port: int) -> None:
    server = HttpServer(Daemon(), Metrics().render)
    with pytest.raises(UsageError, match="choose another with --http HOST:PORT"):
        await server.start(host, port)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0", ""])  # noqa: S104 - that is the case
async def test_its_url_can_be_opened_from_here_whatever_it_listens_on(start: Start, host: str) -> None:
    http = await start(host=host)
    assert (await http.get("/livez")).status == 200
    assert (await http.post("/-/reload")).status == 200


async def test_stopping_ends_connections_and_gives_the_port_back_at_once(start: Start) -> None:
    http = await start()
    assert (await http.get("/livez")).status == 200  # the connection stays open
    port = http.port
    await asyncio.wait_for(http.server.stop(), 5)
    assert http.server.url == ""
    with pytest.raises(aiohttp.ClientConnectionError):
        await http.session.get(f"http://127.0.0.1:{port}/livez")
    await http.server.start("127.0.0.1", port)
    assert (await http.get("/livez")).status == 200


async def test_it_leaves_signals_to_the_process(http: Client) -> None:
    loop = asyncio.get_running_loop()
    assert not getattr(loop, "_signal_handlers", None)
    assert http.server.url


@pytest.mark.parametrize(
    ("query", "command"),
    [
        ("pause?until=2030-01-01T00:00:00Z&", Pause(until=units.parse_time("2030-01-01T00:00:00Z"))),
        ("resume?", Resume()),
        ("reset?seq=7&", Reset(7)),
        ("reset?", Reset()),
    ],
)
async def test_what_a_person_wants_of_a_consumer_reaches_the_daemon(http: Client, query: str, command: Command) -> None:
    answer = await http.post(f"/-/consumer/{query}key=Consumer/S/c&agreed=pauses,declared&holder=abc")
    assert (answer.status, answer.json) == (200, {"changed": True, "answer": {}})
    key, agreed = Key("Consumer", "c", "S"), ("pauses", "declared")
    assert http.daemon.asked == [(ConsumerRequest(key=key, command=command, agreed=agreed, holder="abc"),)]


async def test_what_is_given_up_reaches_the_daemon_with_the_holder_that_is_meant(http: Client) -> None:
    assert (await http.post("/-/disown?key=Stream/ORDERS&holder=abc")).json == {"changed": True}
    assert (await http.post("/-/disown?holder=abc")).status == 400
    assert http.daemon.asked == [("disown", ORDERS, "abc")]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("pause?key=Consumer/S/c&until=tomorrow", "until: "),
        ("reset?key=Consumer/S/c&seq=-1", "is not a sequence"),
        ("resume?key=Stream/S", "is no consumer"),
        ("resume?key=Consumer/S/c&force=1", "unknown parameter"),
    ],
)
async def test_what_makes_no_sense_for_a_consumer_is_said(http: Client, query: str, said: str) -> None:
    answer = await http.post(f"/-/consumer/{query}")
    assert answer.status == 400
    assert said in answer.json["error"]
    assert http.daemon.asked == []


async def test_who_speaks_no_http_is_answered_and_is_no_error_in_the_log(http: Client, caplog: pytest.LogCaptureFixture) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", http.port)
    writer.write(b'CONNECT {"verbose": false}\r\nPING\r\n\r\n')
    assert (await reader.read(65536)).startswith(b"HTTP/1.")
    writer.close()
    assert (await http.get("/livez")).status == 200
    assert [record.getMessage() for record in caplog.records] == []
