"""A flood of forged advisories, published as fast as a socket takes them, in a process of its own.

`python -m tests.support.account.flood URL SUBJECT…`; it says `flooding` when the first of it has arrived.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support.server.plain_socket import PlainSocket

ADVISORIES = ("$JS.EVENT.ADVISORY.STREAM.UPDATED.S", "$JS.EVENT.ADVISORY.CONSUMER.DELETED.S.a")
_AT_ONCE = 500


@asynccontextmanager
async def flooded(url: str, *subjects: str) -> AsyncIterator[None]:
    """Until the end of the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", __name__, url, *(subjects or ADVISORIES), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"flooding\n"
        yield
        assert process.returncode is None
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def main() -> None:
    """Publishes until it is killed."""
    url, *subjects = sys.argv[1:]
    wire = PlainSocket(url)
    one = b"".join(b"PUB %b 2\r\n{}\r\n" % subject.encode() for subject in subjects)
    wire.send(one)
    sys.stdout.write("flooding\n")
    sys.stdout.flush()
    while True:
        wire.send(one * _AT_ONCE)
        wire.frames(0.0)


if __name__ == "__main__":
    main()
