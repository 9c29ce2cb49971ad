"""Somebody at work on streams that daemons keep, all the time: edits them, publishes to them, consumes from them.

Invariant: no edit is like an earlier one, every message is counted, and an ack floor that goes back is an error at once.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass, field

import nats.errors

from tests.support.account.wire import Wire
from tests.support.values.catalogues import Json

PATIENCE = 30.0
_EVERY = 0.03
"""Seconds between two edits."""


@dataclass
class Work:
    """Somebody who edits, publishes and consumes."""

    wire: Wire
    names: tuple[str, ...]
    dice: random.Random
    edits: int = 0
    paused: bool = False
    over: bool = False
    """Asked for so, since a request that is cancelled in the moment of its answer goes on in Python 3.11."""
    declared: dict[str, Json] = field(default_factory=dict)
    published: dict[str, int] = field(default_factory=dict)
    floors: dict[str, tuple[int, int]] = field(default_factory=dict)

    async def learn(self) -> None:
        """Remembers what is there now as what is declared."""
        for name in self.names:
            self.declared[name] = (await self.wire.stream_info(name))["config"]
            self.declared[f"{name}/c"] = (await self.wire.consumer_info(name, "c"))["config"]

    async def keep_editing(self) -> None:
        """Until it is over, but for pauses."""
        while not self.over:
            if not self.paused:
                await self.edit()
            await asyncio.sleep(_EVERY)

    async def keep_publishing(self) -> None:
        """Until it is over; and what is published is consumed."""
        while not self.over:
            for name in self.names:
                await self.publish(name)
                await self.consume(name)
            await asyncio.sleep(_EVERY)

    async def edit(self) -> None:
        """Changes something, to what it never was before."""
        self.edits += 1
        name = self.dice.choice(self.names)
        if self.dice.random() < 0.5:
            config = {**self.declared[name], "max_msgs": 1_000_000 + self.edits}
            await self.wire.expect(f"STREAM.UPDATE.{name}", config)
        else:
            config = {**self.declared[f"{name}/c"], "max_ack_pending": 1000 + self.edits}
            await self.wire.expect(f"CONSUMER.CREATE.{name}.c", {"stream_name": name, "config": config, "action": "update"})

    async def publish(self, name: str) -> None:
        """One more message, stored right behind the last one."""
        number = self.published[name] = self.published.get(name, 0) + 1
        (sequence,) = await self.wire.publish(f"{name}.x", first=number)
        assert sequence == number, (name, sequence, number)

    async def consume(self, name: str) -> None:
        """One message is acknowledged, if there is any; the ack floor must not go back."""
        subject = self.wire.subject(f"CONSUMER.MSG.NEXT.{name}.c")
        with suppress(nats.errors.TimeoutError):  # the consumer is being changed: it comes again
            message = await self.wire.client.request(subject, b'{"batch":1,"no_wait":true}', timeout=1, old_style=True)
            if message.reply:
                await self.wire.client.request(message.reply, b"+ACK", timeout=1)
        info = await self.wire.consumer_info(name, "c")
        floor = info["ack_floor"]["consumer_seq"], info["ack_floor"]["stream_seq"]
        before = self.floors.get(name, (0, 0))
        assert floor[0] >= before[0], (name, before, floor)
        assert floor[1] >= before[1], (name, before, floor)
        self.floors[name] = floor

    async def differing(self) -> list[str]:
        """What is not as declared (yet)."""
        live: dict[str, Json] = {}
        for name in self.names:
            live[name] = (await self.wire.stream_info(name))["config"]
            live[f"{name}/c"] = (await self.wire.consumer_info(name, "c"))["config"]
        return [key for key, config in live.items() if config != self.declared[key]]

    async def lost(self) -> list[str]:
        """Streams that do not hold exactly what was published, or whose consumer has not acknowledged all of it."""
        bad = []
        for name in self.names:
            count = self.published.get(name, 0)
            with suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE):
                    while self.floors[name][1] < count:
                        await self.consume(name)
            state = (await self.wire.stream_info(name))["state"]
            held = (state["messages"], state["last_seq"], state.get("num_deleted", 0))
            if held != (count, count, 0) or self.floors[name][1] != count:
                bad.append(f"{name}: {count} published, {held} held, acknowledged up to {self.floors[name]}")
        return bad
