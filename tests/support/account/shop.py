"""A stream on a real server, the consumer that a procedure changes, and its workers.

Invariant: every shop has a stream of its own, so that many fit on one server one after the other.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import orjson

from reconciler.model.identity import Key
from reconciler.model.marker import PROCEDURE, Marker
from reconciler.procedures.consumer import ConsumerTarget
from tests.support.account.wire import Json, Wire, owes
from tests.support.clock.until import SECONDS, glances

names = (f"S{number}" for number in itertools.count())


@dataclass
class Shop:
    """A fresh stream with one consumer under change, its workers, and on interest another one that keeps everything."""

    wire: Wire
    level: int
    retention: str = "limits"
    replicas: int = 1
    stream: str = field(default_factory=lambda: next(names))
    taken: list[int] = field(default_factory=list)
    """Stream sequences in the order of their deliveries."""
    unfinished: dict[int, str] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        """The consumer."""
        return Key("Consumer", "c", self.stream)

    def config(self, *filters: str, spec: str, **fields: Any) -> Json:
        """A consumer's wire configuration."""
        marker = Marker(owner="test", spec=spec, key=self.key.mark).to_metadata()
        named = [f"{self.stream}.{name}" for name in filters]
        plain = {"durable_name": "c", "ack_policy": "explicit", "ack_wait": 5 * 10**8, "filter_subjects": named}
        return plain | {"metadata": marker} | fields

    def target(self, *filters: str, **fields: Any) -> ConsumerTarget:
        """What the consumer shall become."""
        config = orjson.dumps(self.config(*filters, spec="new", **fields))
        return ConsumerTarget(key=self.key, config=config, level=self.level, retention=self.retention, replicas=self.replicas)

    async def open(self, *filters: str, **fields: Any) -> None:
        """Create stream and consumers."""
        stream = {"name": self.stream, "subjects": [f"{self.stream}.>"], "retention": self.retention}
        await self.wire.expect(f"STREAM.CREATE.{self.stream}", stream | {"num_replicas": self.replicas})
        await self.create("c", self.config(*filters, spec="old", **fields))
        if self.retention == "interest":
            await self.create("other", {"durable_name": "other", "ack_policy": "explicit"})

    async def create(self, name: str, config: Json) -> None:
        """Create a consumer."""
        body = {"stream_name": self.stream, "action": "create", "config": {"name": name, **config}}
        await self.wire.expect(f"CONSUMER.CREATE.{self.stream}.{name}", body)

    async def publish(self, tokens: str) -> None:
        """One message for each letter."""
        for token in tokens:
            await self.wire.publish(f"{self.stream}.{token}")

    async def pull(self, count: int = 100, *, finish: bool = True) -> list[int]:
        """What a worker gets without waiting; finished, or sat on.

        A server may say that there is nothing although something is pending (its consumer has only just been made, say): it is
        asked again as long as INFO says so. One that never gives what it calls pending is believed after a long time.
        """
        got = await self._pull_once(count, finish=finish)
        with suppress(TimeoutError):
            async with asyncio.timeout(SECONDS):
                async for _ in glances():
                    if len(got) >= count or not await owes(self.wire, self.stream, "c"):
                        break
                    got += await self._pull_once(count - len(got), finish=finish)
        return got

    async def _pull_once(self, count: int, *, finish: bool) -> list[int]:
        inbox = self.wire.client.new_inbox()
        replies = await self.wire.client.subscribe(inbox)
        request = json.dumps({"batch": count, "no_wait": True}).encode()
        await self.wire.client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{self.stream}.c", request, reply=inbox)
        got: list[int] = []
        while len(got) < count:
            message = await replies.next_msg(timeout=SECONDS)
            if not message.reply:
                break  # 404: nothing more
            seq = int(message.reply.split(".")[5])
            got.append(seq)
            self.unfinished[seq] = message.reply
        await replies.unsubscribe()
        self.taken += got
        if finish:
            await self.finish(*got)
        return got

    async def finish(self, *sequences: int) -> None:
        """A worker acknowledges, and knows that the server took note."""
        for seq in sequences:
            await self.wire.client.request(self.unfinished.pop(seq), b"+ACK", timeout=SECONDS)

    async def pull_everything(self, *expected: int) -> list[int]:
        """Pull until these have come (late redeliveries included) and nothing more does."""
        fresh: list[int] = []
        async with asyncio.timeout(SECONDS):
            async for _ in glances():
                if set(expected) <= set(self.taken):
                    break
                fresh += await self.pull()
        return fresh + await self.pull()

    async def exists(self) -> bool:
        """Whether the consumer is there."""
        return "error" not in await self.wire.call(f"CONSUMER.INFO.{self.stream}.c")

    async def outlast_pause(self) -> None:
        """Wait until the consumer is not (or no longer) paused, and take what it has then."""
        async with asyncio.timeout(SECONDS):
            async for _ in glances():
                if not (await self.wire.call(f"CONSUMER.INFO.{self.stream}.c")).get("paused"):
                    break
        await self.pull()

    async def assert_tidy(self) -> None:
        """No journal, no hold, no pause."""
        info = await self.wire.consumer_info(self.stream, "c")
        assert PROCEDURE not in info["config"]["metadata"]
        assert info["config"]["metadata"]["reconciler.spec"] == "new"
        assert not info.get("paused")
        listed = await self.wire.expect(f"CONSUMER.NAMES.{self.stream}")
        assert set(listed["consumers"]) <= {"c", "other"}


async def shop_at(wire: Wire, **fields: Any) -> Shop:
    """A shop that knows what its server can do."""
    level = (await wire.expect("INFO"))["api"]["level"]
    return Shop(wire, level, **fields)
