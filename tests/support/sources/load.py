"""A steady publisher in a process of its own: so many messages a second, each with an id, each confirmed by the server.

    async with publishing(url, ["s.a", "s.b"], rate=5000) as load:
        …
        sent = await load.stop()

What was not confirmed in time is sent again under the same Nats-Msg-Id, so it is stored once at most whatever became of the
first attempt (the stream needs its duplicate window, which is the default).

Invariant: an id counts as published only when the server has confirmed it; one without an answer at the end is `unconfirmed`.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import select
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support.server.plain_socket import PlainSocket

RATE = 5000
_TICK = 0.005
_IN_FLIGHT = 4000
_RETRY_SECONDS = 1.0
_DRAIN_SECONDS = 60.0
_DEBT_SECONDS = 1.0
"""How much of what an outage kept back is made up for."""


@dataclass(frozen=True)
class Sent:
    """What became of a load; its ids are the tag with a number: `m.0`, `m.1` and so on."""

    tag: str
    count: int
    unconfirmed: frozenset[int]
    resent: int
    seconds: float

    @property
    def rate(self) -> float:
        """Confirmed messages a second, outages included."""
        return (self.count - len(self.unconfirmed)) / self.seconds

    def ids(self) -> set[bytes]:
        """Every confirmed id."""
        return {b"%b.%d" % (self.tag.encode(), number) for number in range(self.count) if number not in self.unconfirmed}

    def doubtful(self) -> set[bytes]:
        """Ids of which nobody knows whether they were stored."""
        return {b"%b.%d" % (self.tag.encode(), number) for number in self.unconfirmed}


class Load:
    """A publisher that is under way."""

    def __init__(self, process: asyncio.subprocess.Process, tag: str) -> None:
        self._process = process
        self._tag = tag

    async def stop(self) -> Sent:
        """No new messages; when this returns, every one has been confirmed, or is `unconfirmed`."""
        out, _ = await self._process.communicate(b"stop\n")
        assert self._process.returncode == 0, out
        report = json.loads(out)
        return Sent(self._tag, report["count"], frozenset(report["unconfirmed"]), report["resent"], report["seconds"])


@asynccontextmanager
async def publishing(url: str, subjects: Sequence[str], *, rate: int = RATE, tag: str = "m") -> AsyncIterator[Load]:
    """Publishes round these subjects from now on; ended with the block if not before."""
    command = [sys.executable, "-m", "tests.support.sources.load", "--url", url, "--rate", str(rate), "--tag", tag, *subjects]
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[3]
    )
    assert process.stdout
    try:
        assert (await process.stdout.readline()).strip() == b"started"
        yield Load(process, tag)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


class _Publisher:
    """The publisher's own side; it connects again, to whichever server answers, for as long as it takes."""

    def __init__(self, urls: list[str], subjects: list[str], tag: str, rate: int) -> None:
        self._urls = itertools.cycle(urls)
        self._subjects = [subject.encode() for subject in subjects]
        self._tag = tag.encode()
        self._rate = rate
        self._count = self._resent = 0
        self._waiting: dict[int, float] = {}  # what has no answer yet, by when it was sent: the oldest first
        self._socket: PlainSocket | None = None

    def run(self) -> dict[str, object]:
        """Publish until a line comes in on stdin, then wait for what is not confirmed."""
        self._connected()
        sys.stdout.write("started\n")
        sys.stdout.flush()
        begun = clock = time.monotonic()
        while not select.select([sys.stdin], [], [], 0)[0]:
            now = time.monotonic()
            clock = max(clock, now - _DEBT_SECONDS - self._count / self._rate)
            due = int((now - clock) * self._rate) - self._count
            self._turn(max(0, min(due, _IN_FLIGHT - len(self._waiting))))
        seconds = time.monotonic() - begun
        deadline = time.monotonic() + _DRAIN_SECONDS
        while self._waiting and time.monotonic() < deadline:
            self._turn(0)
        return {"count": self._count, "unconfirmed": list(self._waiting), "resent": self._resent, "seconds": seconds}

    def _turn(self, count: int) -> None:
        """That many new messages, those again whose answer is overdue, and what has been answered."""
        overdue = time.monotonic() - _RETRY_SECONDS
        again = list(itertools.takewhile(lambda number: self._waiting[number] < overdue, self._waiting))
        numbers = [*again, *range(self._count, self._count + count)]
        self._count += count
        self._resent += len(again)
        for number in numbers:
            self._waiting.pop(number, None)
            self._waiting[number] = time.monotonic()
        try:
            connected = self._connected()
            connected.send(b"".join(map(self._message, numbers)))
            for frame in connected.frames(_TICK):
                if b'"seq"' in frame.body:  # anything else is a refusal, or nobody there: it comes again
                    self._waiting.pop(int(frame.subject.rpartition(b".")[2]), None)
        except OSError:
            self._disconnected()

    def _message(self, number: int) -> bytes:
        subject = self._subjects[number % len(self._subjects)]
        body = b"%b.%d" % (self._tag, number)
        head = b"NATS/1.0\r\nNats-Msg-Id: %b\r\n\r\n" % body
        reply = b"%b.%d" % (self._inbox, number)
        return b"HPUB %b %b %d %d\r\n%b%b\r\n" % (subject, reply, len(head), len(head) + len(body), head, body)

    def _connected(self) -> PlainSocket:
        while self._socket is None:
            with suppress(OSError):
                self._socket = PlainSocket(next(self._urls), seconds=2.0)
                self._inbox = self._socket.inbox.encode()
            if self._socket is None:
                time.sleep(_TICK)
        return self._socket

    def _disconnected(self) -> None:
        """What has no answer is sent again at once."""
        if self._socket is not None:
            self._socket.close()
        self._socket = None
        self._waiting = dict.fromkeys(self._waiting, 0.0)


def main() -> None:
    """What `publishing` starts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--rate", type=int, default=RATE)
    parser.add_argument("--tag", default="m")
    parser.add_argument("subjects", nargs="+")
    given = parser.parse_args()
    report = _Publisher(given.url.split(","), given.subjects, given.tag, given.rate).run()
    sys.stdout.write(json.dumps(report))


if __name__ == "__main__":
    main()
