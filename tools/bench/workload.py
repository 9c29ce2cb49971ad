"""What is measured on: manifests of many consumers, and a server that has exactly them.

Invariant: the server holds what the reconciler itself would have written, so that a pass over it changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from reconciler.engine.apply.outcome import Outcome
from reconciler.engine.ports import Ports
from reconciler.engine.writing.throttle import Throttle
from reconciler.engine.writing.writes import Writes
from reconciler.jetstream.clock import SystemClock
from reconciler.jetstream.domains import DomainApis
from reconciler.jetstream.read.reader import JetStreamReader
from reconciler.jetstream.transport.connection import Connection
from reconciler.jetstream.transport.settings import ConnectionSettings
from reconciler.jetstream.writer import JetStreamWriter
from reconciler.model.desired import Desired
from reconciler.model.identity import Key
from reconciler.model.seen.live import Live, Server
from reconciler.plan.change import Rules
from reconciler.procedures.requests import CreateConsumer, CreateStream
from tests.support.values.planned import plan

CLIENT = "bench"
IN_FLIGHT = 32
T = TypeVar("T")
_STREAM = """---
apiVersion: reconciler/v1
kind: Stream
metadata: {{name: {stream}}}
spec: {{subjects: ["{stream}.>"], storage: memory, maxConsumers: {most}}}
"""
_CONSUMER = """---
apiVersion: reconciler/v1
kind: Consumer
metadata: {{name: {name}}}
spec:
  stream: {stream}
  description: handles what {name} is for
  filterSubjects: ["{stream}.{name}.created", "{stream}.{name}.changed"]
  ackWait: 45s
  maxDeliver: 10
  maxAckPending: 500
"""


def documents(consumers: int, streams: int) -> Iterator[tuple[str, str]]:
    """Every stream followed by its consumers, as (stream, YAML document)."""
    most = -(-consumers // streams)
    for number in range(consumers):
        stream = f"BENCH-{number // most:03}"
        if number % most == 0:
            yield stream, _STREAM.format(stream=stream, most=most)
        yield stream, _CONSUMER.format(stream=stream, name=f"worker-{number:06}")


def write_by_stream(directory: Path, found: Iterable[tuple[str, str]]) -> Path:
    """One file per stream."""
    directory.mkdir(parents=True)
    by_stream: dict[str, list[str]] = {}
    for stream, document in found:
        by_stream.setdefault(stream, []).append(document)
    for stream, texts in by_stream.items():
        (directory / f"{stream}.yaml").write_text("".join(texts), encoding="utf-8")
    return directory


def write_by_document(directory: Path, found: Iterable[tuple[str, str]]) -> Path:
    """One file per document."""
    for number, (stream, document) in enumerate(found):
        (directory / stream).mkdir(parents=True, exist_ok=True)
        (directory / stream / f"{number:06}.yaml").write_text(document, encoding="utf-8")
    return directory


def creations(desired: Desired) -> tuple[list[CreateStream], list[CreateConsumer]]:
    """The writes that make all of it: streams first, then consumers."""
    streams: list[CreateStream] = []
    consumers: list[CreateConsumer] = []
    for change in plan(desired, Live(Server(level=5), 0, {}, {}), Rules()).changes:
        if change.key.kind == "Consumer":
            consumers.append(CreateConsumer(change.key, change.config))
        else:
            streams.append(CreateStream(change.key, change.config))
    return streams, consumers


async def fill(apis: DomainApis, desired: Desired) -> None:
    """Makes all of it without the engine."""
    streams, consumers = creations(desired)
    await make_streams(apis, streams)
    await spread(JetStreamWriter(apis).write, consumers, IN_FLIGHT)


async def make_streams(apis: DomainApis, streams: Iterable[CreateStream]) -> None:
    """Makes streams without the engine."""
    await spread(JetStreamWriter(apis).write, streams, IN_FLIGHT)


async def spread(work: Callable[[T], Awaitable[object]], items: Iterable[T], workers: int) -> None:
    """Each item once, so many at a time."""
    left = iter(items)

    async def one() -> None:
        for item in left:
            await work(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(workers):
            group.create_task(one())


class Watching:
    """Nobody looks."""

    def stepped(self, key: Key, title: str) -> None:
        """A step of a procedure."""

    def finished(self, outcome: Outcome) -> None:
        """The end of a change."""


class AlwaysOurs:
    """A lease that nobody else wants: what it costs is not what is measured here."""

    def check(self) -> None:
        """Always."""


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[DomainApis]:
    """The APIs over a connection of one's own."""
    async with await Connection.open(ConnectionSettings(servers=(url,), timeout=30.0), CLIENT) as connection:
        yield DomainApis(connection)


def ports(apis: DomainApis) -> Ports:
    """The engine's neighbours."""
    reader, clock = JetStreamReader(apis), SystemClock()
    return Ports(reader, Writes(reader, JetStreamWriter(apis), clock, Throttle(0, clock)), AlwaysOurs(), clock, Watching())
