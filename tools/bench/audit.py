"""What listening to the API audit costs while somebody else polls, and at which rate it is shed.

The listener is a process of its own, so that its processor time is its own; so is the one that polls. Run as a module, this
is one of them.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import nats
import orjson
import structlog

from reconciler.jetstream.hearing.hints import AuditMode, Hint, HintListener, Hints, Limits
from reconciler.jetstream.transport.connection import Connection
from reconciler.jetstream.transport.settings import ConnectionSettings
from tests.support.account.wire import Wire
from tools.bench.measure import Measure, rounded

RATE = 2_000
LIMIT = 0.10
_FLOOD = 2 * int(Limits().budget)
_TICK = 0.002
_STREAM = {"name": "AUDITED", "subjects": ["audited"], "storage": "memory"}
_CONSUMER = "AUDITED.polled"
_WRITER = "somebody"
_ENDS = 60.0
_SHED_WITHIN = 20.0


async def audit(url: str, seconds: float) -> list[Measure]:
    """The share of a core above idle, whether a writer among the polling is still named, and the rate of shedding."""
    async with await Wire.connect(url, name=_WRITER) as wire:
        await wire.expect("STREAM.CREATE.AUDITED", _STREAM)
        await _update(wire, "create")
        with _process("listen", url) as listener:
            idle = await _share(listener, seconds)
            with _process("poll", url, RATE):
                await asyncio.sleep(1)
                before = _ask(listener)
                busy = await _share(listener, seconds)
                await _update(wire, "update")
                await asyncio.sleep(0.5)
                after = _ask(listener)
            shed = await _shed(url, listener)
    rate = (after["messages"] - before["messages"]) / (after["at"] - before["at"])
    named = after["authors"].get("Consumer/AUDITED/polled") == _WRITER
    share = busy - idle
    detail: dict[str, object] = {"idle": rounded(idle), "messages_per_second": round(rate), "writer_named": named}
    return [
        Measure(
            measure=f"API audit, {RATE} requests a second of others",
            value=rounded(share),
            unit="core",
            ratio=rounded(share),
            limit=LIMIT,
            ok=share <= LIMIT and named and rate > RATE * 0.9,
            detail=detail,
        ),
        Measure(
            measure="API audit, shed",
            value=shed,
            unit="messages/s",
            ratio=rounded(shed / Limits().budget),
            ok=shed > Limits().budget,
            detail={"budget": Limits().budget},
        ),
    ]


async def _update(wire: Wire, action: str) -> None:
    config = {"durable_name": "polled", "name": "polled", "ack_policy": "explicit", "description": action}
    await wire.expect(f"CONSUMER.CREATE.{_CONSUMER}", {"stream_name": "AUDITED", "action": action, "config": config})


async def _share(listener: subprocess.Popen[bytes], seconds: float) -> float:
    before = _ask(listener)
    await asyncio.sleep(seconds)
    after = _ask(listener)
    return float((after["processor"] - before["processor"]) / (after["at"] - before["at"]))


async def _shed(url: str, listener: subprocess.Popen[bytes]) -> float:
    """The rate it was shed at; 0 when it was not."""
    with _process("poll", url, _FLOOD):
        for _ in range(int(_SHED_WITHIN)):
            await asyncio.sleep(1)
            if _ask(listener)["state"] == "shed":
                break
    said = _ask(listener)
    return round(said["rate"]) if said["state"] == "shed" else 0


@contextmanager
def _process(*arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    """Runs until the block ends; returns when it says that it is ready."""
    command = [sys.executable, "-m", "tools.bench.audit", *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None  # noqa: S101 - it is a pipe
            process.stdout.readline()
            yield process
        finally:
            process.kill()


def _ask(listener: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert listener.stdin is not None  # noqa: S101 - they are pipes
    assert listener.stdout is not None  # noqa: S101 - the same
    listener.stdin.write(b"?\n")
    listener.stdin.flush()
    said: dict[str, Any] = json.loads(listener.stdout.readline())
    return said


def _say(document: object) -> None:
    sys.stdout.buffer.write(orjson.dumps(document) + b"\n")
    sys.stdout.buffer.flush()


async def _listen(url: str) -> None:
    """Answers each line on stdin with what it has used and heard."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))  # stdout is for the answers
    authors: dict[str, str] = {}

    def note(hint: Hint) -> None:
        if hint.author is not None:
            authors[str(hint.key)] = hint.author.client

    async with await Connection.open(ConnectionSettings(servers=(url,)), "bench-listener") as connection:
        listener = HintListener(on_hint=note, on_lost=lambda _: None, on_audit=lambda _, __: None)
        hints = Hints(connection, listener, AuditMode.AUTO)
        await hints.start()
        lines = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
        _say("ready")
        while await lines.readline():
            used = {"processor": time.process_time(), "at": time.monotonic(), "messages": hints.audit.heard}
            _say(used | {"authors": authors, "state": hints.audit.state, "rate": hints.audit.rate})
        await hints.stop()


async def _poll(url: str, rate: float) -> None:
    """Asks for a consumer's state so many times a second, without waiting for the answers."""
    client = await nats.connect(url, name="exporter")
    inbox = client.new_inbox()
    await client.subscribe(inbox)
    _say("ready")
    started, sent = time.monotonic(), 0
    while time.monotonic() < started + _ENDS:
        due = int((time.monotonic() - started) * rate)
        while sent < due:
            await client.publish(f"$JS.API.CONSUMER.INFO.{_CONSUMER}", reply=inbox)
            sent += 1
        await asyncio.sleep(_TICK)


if __name__ == "__main__":
    asyncio.run(_listen(sys.argv[2]) if sys.argv[1] == "listen" else _poll(sys.argv[2], float(sys.argv[3])))
