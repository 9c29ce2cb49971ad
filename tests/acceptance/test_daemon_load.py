"""Load from outside: readers of the status, half-open requests and forged advisories hold up neither repairs nor the lease."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from tests.support.account.flood import flooded
from tests.support.account.meddling import Somebody, heard, watched
from tests.support.daemon.process import settled
from tests.support.daemon.readers import reading
from tests.support.server.process import Server
from tests.support.values.catalogues import consumer, stream

STREAMS, CONSUMERS = 4, 500
DOCUMENTS = [
    one
    for number in range(STREAMS)
    for one in (
        stream(f"L{number}", f"l{number}.>"),
        *(consumer(f"L{number}", f"c{member}", f"l{number}.{member}") for member in range(CONSUMERS)),
    )
]
EDITS = 60
HALF_OPEN = 1000


async def repairs(somebody: Somebody, edits: int = EDITS) -> list[float]:
    """Seconds from each edit to its repair, sorted."""
    found = []
    for number in range(edits):
        name = f"L{number % STREAMS}"
        await somebody.edit(name, max_msgs=1000 + number)
        began = time.monotonic()
        await somebody.until_like({"max_msgs": -1}, name)
        found.append(time.monotonic() - began)
    return sorted(found)


def descriptors(pid: int) -> int:
    """How many a process has open."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


async def test_readers_half_open_requests_and_forged_advisories_leave_repairs_and_the_lease_alone(
    any_server: Server, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    async with watched(any_server, tmp_path, DOCUMENTS, like=heard) as place, AsyncExitStack() as stack:
        alone = await repairs(place.somebody)
        async with reading(place.daemon.url):
            beside = await repairs(place.somebody)
        record_property("slowest repair (s), alone and beside 16 readers", (round(alone[-1], 3), round(beside[-1], 3)))
        assert beside[-1] < max(10 * alone[-1], 2.0)

        where = ("127.0.0.1", int(place.daemon.url.rpartition(":")[2]))
        for _ in range(HALF_OPEN):
            one = stack.enter_context(socket.create_connection(where))
            one.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n")
        assert (await place.daemon.get("/livez"))[0] == 200
        assert descriptors(place.daemon.pid) < 300

        async with flooded(any_server.url):
            held = []
            for _ in range(30):
                held.append((await place.daemon.status("&kind=Stream"))["leading"])
                await asyncio.sleep(0.5)
            after = await repairs(place.somebody, 5)
        record_property("slowest repair (s) under forged advisories", round(after[-1], 3))
        assert all(held)
        assert [line["reason"] for line in place.daemon.lines("lease.lost")] == []
        assert place.daemon.lines("overhearing.shed")
        await place.daemon.until(settled)
