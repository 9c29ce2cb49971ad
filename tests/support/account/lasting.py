"""A catalogue of every retention with messages in it, and what of it has to outlast whatever becomes of the servers.

Invariant: nothing of `reconciler` is used here; what lasts is compared by creation time and by message, never by count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.support.account.wire import Wire
from tests.support.account.work import Work
from tests.support.values.catalogues import LEASE_BUCKETS, Json, consumer, everything, stream

RETENTIONS = ("limits", "interest", "workqueue")
MESSAGES = 6
ACKNOWLEDGED = 3


@dataclass(frozen=True)
class Lasting:
    """`prefix` keeps two of them apart on one server."""

    prefix: str = ""
    replicas: int = 1
    memory: bool = True

    @property
    def documents(self) -> list[Json]:
        """Two streams of each retention with three consumers each, two buckets, and a memory stream with two consumers."""
        return [*self._streams(), *self._buckets(), *(self._fleeting() if self.memory else ())]

    @property
    def streams(self) -> list[str]:
        """Those that keep their messages."""
        return [f"{self.prefix}{retention.upper()}{number}" for retention in RETENTIONS for number in (0, 1)]

    @property
    def fleeting(self) -> set[str]:
        """What a restart of the server wipes out, and the consumers of it."""
        return {f"{self.prefix}MEMORY", f"{self.prefix}MEMORY/c0", f"{self.prefix}MEMORY/c1"} if self.memory else set()

    def _streams(self) -> Iterator[Json]:
        for name in self.streams:
            retention = next(each for each in RETENTIONS if each.upper() in name)
            yield stream(name, f"{name}.>", retention=retention, maxMsgs=1000, **self._replicas)
            for number in range(3):
                yield consumer(name, f"c{number}", f"{name}.{number}", maxDeliver=5)

    def _buckets(self) -> Iterator[Json]:
        for name in ("settings", "flags"):
            yield {"kind": "KeyValue", "metadata": {"name": f"{self.prefix}{name}"}, "spec": {"history": 5, **self._replicas}}

    def _fleeting(self) -> Iterator[Json]:
        name = f"{self.prefix}MEMORY"
        yield stream(name, f"{name}.>", storage="memory", **self._replicas)
        for number in range(2):
            yield consumer(name, f"c{number}", f"{name}.{number}")

    @property
    def _replicas(self) -> Json:
        return {"replicas": self.replicas} if self.replicas > 1 else {}

    async def fill(self, wire: Wire) -> None:
        """Messages for every consumer, of which each has acknowledged some; and values in the buckets."""
        for name in self.streams:
            for number in range(3):
                await wire.publish(f"{name}.{number}", MESSAGES)
            await asyncio.gather(*(_work(wire, name, f"c{number}") for number in range(3)))
        for name in ("settings", "flags"):
            await wire.publish(f"$KV.{self.prefix}{name}.key", 3)

    def of(self, live: dict[str, Any]) -> dict[str, Any]:
        """What of all that is live belongs to this catalogue."""
        return {name: value for name, value in live.items() if name.removeprefix("KV_").startswith(self.prefix)}

    async def kept(self, wire: Wire) -> dict[str, Json]:
        """When each was created, what the streams hold and how far the consumers are; nothing that is fleeting."""
        found: dict[str, Json] = {}
        for name in self.of(await everything(wire)).keys() - self.fleeting:
            of, _, inner = name.partition("/")
            if inner:
                info = await wire.consumer_info(of, inner)
                floor = info["ack_floor"]["consumer_seq"], info["ack_floor"]["stream_seq"]
                found[name] = {"created": info["created"], "floor": floor, "unacknowledged": info["num_ack_pending"]}
            else:
                info = await wire.stream_info(of)
                found[name] = {"created": info["created"], "messages": await wire.payloads(of)}
        assert not any(name.startswith(LEASE_BUCKETS) for name in found)
        return found


async def _work(wire: Wire, name: str, inner: str) -> None:
    work = Work(wire, name, inner)
    await work.pull(ACKNOWLEDGED)
    await work.pull(1, finish=False)
