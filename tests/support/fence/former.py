"""A process that leads, changes consumers, and stops itself somewhere between the look and the way out.

    python -m tests.support.fence.former URL OWNER STREAM POINT

Writes `leads NAME` when it does. For each line on stdin, the name of a consumer, it updates that, and writes `done LOOKED SENT`
or `failed WHY`. With a POINT above 0 it stops itself (SIGSTOP) with the POINT-th line of code of the change; LOOKED and
SENT are how many there were when the look had answered, and when the change was handed to the kernel.
Invariant: it writes through the product's own way of every write, with its own lease and fence.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

import orjson

from reconciler.cli.pen import pen
from reconciler.engine.writing.throttle import Throttle
from reconciler.engine.writing.turns import Rank
from reconciler.engine.writing.writes import Order, Writes
from reconciler.errors import ReconcilerError
from reconciler.jetstream.clock import SystemClock
from reconciler.jetstream.domains import DomainApis
from reconciler.jetstream.leading.holder import Holder
from reconciler.jetstream.read.reader import JetStreamReader
from reconciler.jetstream.transport.connection import Connection
from reconciler.jetstream.transport.settings import ConnectionSettings
from reconciler.model.identity import Key
from reconciler.procedures.requests import ConsumerInfo, UpdateConsumer, Write
from tests.support.daemon.engine import plain

TIMEOUT = 60.0
"""Seconds for an answer: nobody shall give up before it is killed or has found out that it leads no more."""


class Stopping:
    """Counts the lines of code that are run, and stops the process with one of them."""

    def __init__(self, point: int) -> None:
        self.lines = 0
        self.looked = 0
        self.sent = 0
        self._point = point

    def begin(self) -> None:
        """From now on."""
        sys.settrace(self._trace)
        sys.setprofile(self._profile)

    @staticmethod
    def end() -> None:
        """No more."""
        sys.settrace(None)
        sys.setprofile(None)

    def _trace(self, _frame: FrameType, event: str, _argument: Any) -> Any:
        if event == "line":
            self.lines += 1
            if self.lines == self._point:
                os.kill(os.getpid(), signal.SIGSTOP)
        return self._trace

    def _profile(self, _frame: FrameType, event: str, argument: Any) -> None:
        if event == "c_call" and self.looked and not self.sent and argument.__name__ in ("send", "sendmsg"):
            self.sent = self.lines


@dataclass
class Raised:
    """Judges by raising `max_deliver` by one: each change is another one, made from what is there."""

    reader: JetStreamReader
    stopping: Stopping

    async def judged(self, write: Write) -> Write:
        """What is there, and one more."""
        assert isinstance(write, UpdateConsumer)
        found = await self.reader.read(ConsumerInfo(write.consumer))
        assert isinstance(found, dict)
        config = found["config"]
        self.stopping.looked = self.stopping.lines
        return replace(write, config=orjson.dumps({**config, "max_deliver": max(1, config["max_deliver"]) + 1}))


async def main(url: str, owner: str, stream: str, point: int) -> None:
    """Until stdin ends."""
    connection = await Connection.open(ConnectionSettings(servers=(url,), timeout=TIMEOUT), f"former-{owner}")
    apis = DomainApis(connection)
    ours = pen(apis, owner, Holder(source="a test"), patience=0.0)
    reader, clock = JetStreamReader(apis), SystemClock()
    writes = Writes(reader, ours.writer, clock, Throttle(0, clock), fence=ours.lease)
    stopping = Stopping(point)
    order = Order(permit=ours.lease, judge=Raised(reader, stopping), normal=plain, rank=Rank.COMMIT)
    await ours.lease.acquire(60.0)
    _say("leads", connection.name)
    while line := await asyncio.to_thread(sys.stdin.readline):
        sending = asyncio.ensure_future(writes.send(UpdateConsumer(Key("Consumer", line.strip(), stream), b""), order))
        if point >= 0:
            stopping.begin()
        try:
            await sending
        except ReconcilerError as error:
            _say("failed", repr(error))
        else:
            _say("done", stopping.looked, stopping.sent)
        finally:
            stopping.end()
    await ours.lease.release()


def _say(*words: object) -> None:
    sys.stdout.write(f"{' '.join(map(str, words))}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
