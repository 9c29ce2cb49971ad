"""Many who read a status in a loop, in a process of their own: `python -m tests.support.daemon.readers URL`.

Invariant: it says `reading` when each has read once.
"""

from __future__ import annotations

import asyncio
import http.client
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

READERS = 16
PATH = "/status?limit=10000"


@asynccontextmanager
async def reading(url: str) -> AsyncIterator[None]:
    """Sixteen who read all of it, again and again."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", __name__, url, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"reading\n"
        yield
        assert process.returncode is None
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def _read(address: str, counts: list[int], number: int) -> None:
    while True:
        connection = http.client.HTTPConnection(address, timeout=60)
        try:
            while True:
                connection.request("GET", PATH)
                connection.getresponse().read()
                counts[number] += 1
        except OSError:
            connection.close()


def main() -> None:
    """Reads until it is killed."""
    counts = [0] * READERS
    for number in range(READERS):
        threading.Thread(target=_read, args=(sys.argv[1].removeprefix("http://"), counts, number), daemon=True).start()
    while not all(counts):
        time.sleep(0.01)
    sys.stdout.write("reading\n")
    sys.stdout.flush()
    while True:
        time.sleep(1.0)


if __name__ == "__main__":
    main()
