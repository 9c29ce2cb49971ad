"""Live migrations of a source done bare: raw requests in the proven order, nothing journaled, nothing checked twice.

They show that the harness can tell right from wrong, and how fast the server itself allows it. `naive_swap` is wrong on purpose.

Invariant: nothing of `reconciler` is used here; each function assumes the mode it starts from, and returns in the mode it ends.
"""

from __future__ import annotations

import asyncio
import base64
import time
from dataclasses import dataclass, field
from typing import Any

from tests.support.account.wire import Json, Wire

SETTLED_SECONDS = 1.0
_GLANCE = 0.01
_FAR = "2099-01-01T00:00:00Z"


@dataclass
class Route:
    """One source stream, one aggregate with one entry for it."""

    source: str
    aggregate: str
    subject: str
    """The filter that takes all of the source."""
    wire: Wire
    """Where the aggregate is."""
    at_source: Wire
    retention: str = "limits"
    replicas: int = 1
    external: Json = field(default_factory=dict)

    async def create(self, entry: Json, durable: Json | None = None, **source: Any) -> None:
        """The source, its durable if any, the aggregate, in this order."""
        config = {"name": self.source, "subjects": [self.subject], "retention": self.retention, "num_replicas": self.replicas}
        await self.at_source.expect(f"STREAM.CREATE.{self.source}", config | source)
        if durable:
            await self.consumer("create", durable)
        config = {"name": self.aggregate, "sources": [self.entry(**entry)], "num_replicas": self.replicas}
        await self.wire.expect(f"STREAM.CREATE.{self.aggregate}", config)
        if self.retention != "limits" and not durable:
            await self.server_bound()  # what is published on interest before that is nobody's

    def entry(self, **parts: Any) -> Json:
        """An entry for the source."""
        return {"name": self.source, **({"external": self.external} if self.external else {}), **parts}

    def durable(self, name: str = "c", deliver: str = "", **more: Any) -> Json:
        """A durable for the entry."""
        return {
            "durable_name": name,
            "ack_policy": "flow_control",
            "deliver_policy": "all",
            "deliver_subject": deliver or self.deliver(name),
            "flow_control": True,
            "idle_heartbeat": 10**9,
            **more,
        }

    def deliver(self, name: str = "c") -> str:
        """Where that durable delivers."""
        return f"deliver.{self.source}.{name}"

    def through(self, name: str = "c", deliver: str = "") -> Json:
        """The part of an entry that names its durable."""
        return {"consumer": {"name": name, "deliver_subject": deliver or self.deliver(name)}}

    async def consumer(self, action: str, config: Json) -> Json:
        """Creates or updates."""
        body = {"stream_name": self.source, "config": config, "action": action}
        return await self.at_source.expect(f"CONSUMER.CREATE.{self.source}.{config['durable_name']}", body)

    async def delete(self, name: str = "c") -> None:
        """Removes a durable."""
        await self.at_source.expect(f"CONSUMER.DELETE.{self.source}.{name}")

    async def put(self, **parts: Any) -> None:
        """Replaces the entry."""
        config = (await self.wire.stream_info(self.aggregate))["config"]
        await self.wire.expect(f"STREAM.UPDATE.{self.aggregate}", config | {"sources": [self.entry(**parts)]})

    async def detach(self) -> None:
        """A placeholder stands for the entry."""
        await self.put(filter_subject="_detached.never")

    async def pause(self, name: str = "c", until: str = _FAR) -> None:
        """Pauses; an empty time resumes."""
        await self.at_source.expect(f"CONSUMER.PAUSE.{self.source}.{name}", {"pause_until": until} if until else {})

    async def resume(self, name: str = "c") -> None:
        """It delivers again."""
        await self.pause(name, "")

    async def drained(self, name: str = "c") -> int:
        """Waits until a paused durable has nothing under way; its floor. A cluster answers PAUSE before it holds: look twice."""
        apart, last = (1.2 if self.replicas > 1 else 0.05), None
        while True:
            info = await self.at_source.consumer_info(self.source, name)
            floor = int(info["ack_floor"]["stream_seq"])
            still = info.get("paused") and not info["num_ack_pending"] and info["delivered"]["stream_seq"] == floor
            if still and floor == last:
                return floor
            last = floor if still else None
            await asyncio.sleep(apart)

    async def copied(self) -> int:
        """The source's sequence of the last message that was copied, once no more come."""
        last, since = -1, time.monotonic()
        while time.monotonic() - since < SETTLED_SECONDS:
            now = await self._last_copied()
            if now != last:
                last, since = now, time.monotonic()
            await asyncio.sleep(_GLANCE)
        return last

    async def server_bound(self) -> None:
        """Waits until the server's own durable on the source is there, and heard."""
        while True:
            found = (await self.at_source.expect(f"CONSUMER.LIST.{self.source}"))["consumers"] or []
            if any(each["config"].get("sourcing") and each.get("push_bound") for each in found):
                return
            await asyncio.sleep(_GLANCE)

    async def _last_copied(self) -> int:
        sequence = int((await self.wire.stream_info(self.aggregate))["state"]["last_seq"])
        if not sequence:
            return 0
        message = (await self.wire.expect(f"STREAM.MSG.GET.{self.aggregate}", {"seq": sequence}))["message"]
        headers = base64.b64decode(message["hdrs"]).decode()
        line = next(line for line in headers.split("\r\n") if line.startswith("Nats-Stream-Source:"))
        return int(line.partition(":")[2].split()[1])


async def naive_swap(route: Route) -> None:
    """A durable from the beginning, and the entry reads through it: everything that was copied before comes again."""
    await route.consumer("create", route.durable())
    await route.put(**route.through())


async def to_durable(route: Route, name: str = "c") -> None:
    """From the server's own consumer (D3; on a workqueue D17)."""
    await route.consumer("create", route.durable(name, pause_until=_FAR))
    await route.put(**route.through(name))
    upto = await route.copied()
    await route.at_source.expect(f"CONSUMER.RESET.{route.source}.{name}", {"seq": upto + 1})
    if route.retention == "workqueue":
        await route.at_source.expect(f"STREAM.PURGE.{route.source}", {"seq": upto + 1, "filter": route.subject})
    await route.resume(name)


async def to_ephemeral(route: Route, name: str = "c", **fresh: Any) -> None:
    """To the server's own consumer (D5; D18 on interest, M1 on a workqueue); `fresh` makes an identity that is new (D7)."""
    await route.pause(name)
    upto = await route.drained(name)
    if route.retention == "workqueue":
        await route.delete(name)
        await route.put(**fresh)
        return
    await route.put(opt_start_seq=upto + 1, **fresh)
    if route.retention == "interest":
        await route.server_bound()
    await route.delete(name)


async def renamed(route: Route, name: str = "c", to: str = "d") -> None:
    """Another durable goes on where this one stands (D9, D10; D11 on a workqueue)."""
    await route.pause(name)
    upto = await route.drained(name)
    if route.retention == "workqueue":
        await route.delete(name)
        await route.consumer("create", route.durable(to))
        await route.put(**route.through(to))
        return
    start: Json = {"deliver_policy": "by_start_sequence", "opt_start_seq": upto + 1}
    await route.consumer("create", route.durable(to, **start))
    await route.put(**route.through(to))
    await route.delete(name)


async def redelivered(route: Route, name: str = "c", to: str = "elsewhere") -> None:
    """The same durable delivers to another subject (D20)."""
    deliver = f"deliver.{route.source}.{to}"
    await route.pause(name)
    await route.drained(name)
    await route.detach()
    await route.consumer("update", route.durable(name, deliver))
    await route.put(**route.through(name, deliver))
    await route.resume(name)
