"""Sources to watch: their manifests, durables that are somebody else's, and what a daemon tells of them.

Invariant: nothing of `reconciler` is used here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from tests.support.account.wire import Json, Wire
from tests.support.clock.until import until
from tests.support.daemon.process import Daemon

PATIENCE = 60.0
"""Seconds after which a test gives up; how soon a stall is told is for tests with a clock of their own."""


def entry(origin: str, deliver: str, consumer: str = "c", **more: Any) -> Json:
    """A source that reads through a durable."""
    return {"name": origin, "consumer": {"name": consumer, "deliverSubject": deliver}, **more}


def aggregate(name: str, *sources: Json, **spec: Any) -> Json:
    """The manifest of a stream that copies."""
    return {"kind": "Stream", "metadata": {"name": name}, "spec": {**({"sources": list(sources)} if sources else {}), **spec}}


def durable(of: str, deliver: str, name: str = "c", **spec: Any) -> Json:
    """The manifest of a durable to read through."""
    fields = {"stream": of, "ackPolicy": "flow_control", "deliverSubject": deliver, **spec}
    return {"kind": "Consumer", "metadata": {"name": name}, "spec": fields}


async def make(wire: Wire, stream: str, deliver: str, name: str = "c", **config: Any) -> None:
    """A durable that nobody declared."""
    fields = {"durable_name": name, "ack_policy": "flow_control", "deliver_subject": deliver, "deliver_policy": "all", **config}
    await wire.expect(f"CONSUMER.CREATE.{stream}.{name}", {"stream_name": stream, "config": fields, "action": "create"})


async def source_of(daemon: Daemon, name: str) -> Json:
    """The one source of that stream, as the status has it; empty when it is not there yet."""
    document = await daemon.status()
    return next((source for source in document["sources"] if source["key"] == f"Stream/{name}"), {})


async def until_source(daemon: Daemon, name: str, holds: Callable[[Json], bool], seconds: float = PATIENCE) -> Json:
    """Waits until the source of that stream is like that; returns it."""
    found: Json = {}
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        found = await source_of(daemon, name)
        if found and holds(found):
            return found
        await asyncio.sleep(0.1)
    msg = f"{name} is not like that within {seconds} s: {found}\n{daemon.log()[-3000:]}"
    raise AssertionError(msg)


async def told(daemon: Daemon, event: str, count: int = 1, seconds: float = PATIENCE) -> list[Json]:
    """The log lines of an event, as soon as there are so many."""

    async def there() -> bool:
        return len(daemon.lines(event)) >= count

    await until(there, seconds)
    return daemon.lines(event)


def stalls(*causes: str) -> Callable[[Json], bool]:
    """Whether it is held up by one of these."""
    return lambda source: source["state"] in {"Stalled", "Waiting", "Error"} and source["cause"] in causes


def flows(source: Json) -> bool:
    """Whether nothing is wrong with it."""
    return bool(source["state"] == "Flowing")
