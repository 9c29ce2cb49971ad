"""Who asks much, slowly, or nothing at all: probes are answered, descriptors stay few, and the loop has time for its work."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
from structlog.testing import capture_logs

from reconciler.observe.http.controls import StatusQuery
from reconciler.observe.http.door import MOST
from reconciler.observe.http.renderings import Pieces, Renderings, at_once
from reconciler.observe.http.server import HttpServer, _rendered
from reconciler.observe.metrics import Metrics
from reconciler.observe.status.board import Board, Process
from reconciler.plan.change import Rules
from tests.support.clock.until import SECONDS
from tests.support.daemon.controls import Daemon
from tests.support.daemon.readers import reading
from tests.support.values.build import consumer, desired, live, stream
from tests.support.values.planned import plan

HALF = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"
MANY = 1000
Json = dict[str, Any]


@asynccontextmanager
async def serving(daemon: Daemon) -> AsyncIterator[HttpServer]:
    """On a free port."""
    server = HttpServer(daemon, Metrics().render)
    await server.start("127.0.0.1", 0)
    try:
        yield server
    finally:
        await server.stop()


async def livez(server: HttpServer) -> str:
    """A probe: a connection of its own."""
    async with aiohttp.ClientSession() as session, session.get(f"{server.url}/livez") as answer:
        return await answer.text()


def descriptors() -> int:
    """How many this process has open."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def connected(server: HttpServer, stack: AsyncExitStack, request: bytes) -> socket.socket:
    """Somebody who has sent this, and reads nothing yet."""
    one, loop = stack.enter_context(socket.socket()), asyncio.get_running_loop()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    one.setblocking(False)
    await loop.sock_connect(one, ("127.0.0.1", int(server.url.rpartition(":")[2])))
    await loop.sock_sendall(one, request)
    return one


async def ended(one: socket.socket) -> bool:
    """Waits until the other end has closed it without an answer."""
    with suppress(ConnectionResetError):
        async with asyncio.timeout(SECONDS):
            return await asyncio.get_running_loop().sock_recv(one, 1) == b""
    return True


async def test_a_thousand_half_open_requests_keep_no_probe_out_and_take_few_descriptors() -> None:
    async with serving(Daemon()) as server, AsyncExitStack() as stack:
        before = descriptors()
        for number in range(MANY):
            await connected(server, stack, HALF)
            if number % 100 == 0:
                assert await livez(server) == "alive\n"
        assert descriptors() - before - MANY <= MOST + 8, "a thousand are the other ends"


async def test_a_request_that_is_never_finished_is_given_up_however_slowly_it_trickles_in() -> None:
    async with serving(Daemon()) as server, AsyncExitStack() as stack:
        assert server._door is not None
        server._door.asking_seconds = 0.5
        one = await connected(server, stack, HALF)
        other = await connected(server, stack, HALF)

        async def trickle() -> None:
            while True:
                await asyncio.get_running_loop().sock_sendall(other, b"x")
                await asyncio.sleep(0.02)

        trickling = asyncio.create_task(trickle())
        assert await ended(one)
        assert await ended(other)
        trickling.cancel()
        await asyncio.gather(trickling, return_exceptions=True)
        assert await livez(server) == "alive\n"


async def test_a_connection_that_is_kept_alive_is_served_again_after_a_while() -> None:
    async with serving(Daemon()) as server, aiohttp.ClientSession() as session:
        assert server._door is not None
        server._door.asking_seconds = 0.2
        for _ in range(3):
            async with session.get(f"{server.url}/livez") as answer:
                assert await answer.text() == "alive\n"
            assert len(server._door.guests) == 1
            await asyncio.sleep(0.4)  # longer than a request may take


class Big(Daemon):
    """Its status takes more than one write."""

    def telling(self, query: StatusQuery) -> Pieces[Json]:
        """Ten megabytes."""
        yield from super().telling(query)
        return {"kind": "Status", "resources": ["x" * 1000] * 10_000}


async def test_readers_who_do_not_read_keep_no_probe_out() -> None:
    async with serving(Big()) as server, AsyncExitStack() as stack:
        for _ in range(2 * MOST):
            await connected(server, stack, b"GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert await livez(server) == "alive\n"


async def test_a_reader_who_goes_when_the_answer_begins_is_no_fault_of_ours() -> None:
    loop, begun = asyncio.get_running_loop(), asyncio.Event()

    class Late(Daemon):
        def telling(self, query: StatusQuery) -> Pieces[Json]:
            yield from super().telling(query)
            begun.set()
            loop.call_soon(loop.call_soon, one.close)  # just before whoever waits for this goes on, and writes
            return {"kind": "Status", "text": "x" * 10_000_000}

    with capture_logs() as said:
        async with serving(Late()) as server, AsyncExitStack() as stack:
            one = await connected(server, stack, b"GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n")
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            assert server._door is not None
            await begun.wait()
            async with asyncio.timeout(SECONDS):
                while server._door.guests:  # noqa: ASYNC110 - until it is noticed
                    await asyncio.sleep(0.01)
            assert await livez(server) == "alive\n"
    assert [line["event"] for line in said if line["log_level"] == "error"] == []


async def test_what_many_ask_for_is_rendered_once_for_all_of_them() -> None:
    rendered: list[str] = []

    def render() -> Pieces[bytes]:
        for _ in range(10):
            yield
        rendered.append("x")
        return b"%d" % len(rendered)

    renderings = Renderings()
    assert await asyncio.gather(*(renderings.of("a", render) for _ in range(16))) == [b"1"] * 16
    first = asyncio.create_task(renderings.of("a", render))
    while not renderings._turn.locked():  # noqa: ASYNC110 - until it has begun
        await asyncio.sleep(0)
    assert [await renderings.of("a", render), await first] == [b"3", b"2"], "never of a time before it was asked for"
    assert sorted(await asyncio.gather(renderings.of("a", render), renderings.of("b", render))) == [b"4", b"5"]


async def test_what_nobody_waits_for_any_more_is_not_rendered() -> None:
    rendered: list[str] = []

    def render() -> Pieces[bytes]:
        yield
        rendered.append("x")
        return b""

    renderings = Renderings()
    async with renderings._turn:
        gone = [asyncio.create_task(renderings.of(number, render)) for number in range(100)]
        await asyncio.sleep(0.01)
        for one in gone:
            one.cancel()
        await asyncio.gather(*gone, return_exceptions=True)
    await renderings.of("last", render)
    assert (rendered, renderings._asked) == (["x"], {})


async def test_what_cannot_be_rendered_is_said_to_all_who_wait() -> None:
    def render() -> Pieces[bytes]:
        yield
        msg = "on purpose"
        raise ValueError(msg)

    renderings = Renderings()
    found = await asyncio.gather(*(renderings.of("a", render) for _ in range(3)), return_exceptions=True)
    assert [str(one) for one in found] == ["on purpose"] * 3


async def test_sixteen_readers_of_a_long_status_leave_the_loop_to_others() -> None:
    board = Board(time.time_ns, Process(pid=1, host="h", version="1", owner="default"))
    board.connection(True, "nats://127.0.0.1:4222")
    declared = desired(stream("S"), *(consumer("S", f"c{number}") for number in range(10_000)))
    board.looked(declared, live(), plan(declared, live(), Rules()).changes)

    class Long(Daemon):
        def telling(self, query: StatusQuery) -> Pieces[Json]:
            return board.documenting(query)

    whole = min(_seconds(lambda: at_once(_rendered(board.documenting(StatusQuery(limit=10_000))))) for _ in range(3))
    waits = []
    async with serving(Long()) as server, reading(server.url):
        for _ in range(300):
            waits.append(-time.monotonic())
            await asyncio.sleep(0.005)
            waits[-1] += time.monotonic()
    assert sorted(waits)[-3] < 2 * whole, "sixteen one after the other would take sixteen times as long"


def _seconds(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began
