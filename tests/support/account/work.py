"""Publishers and workers of one consumer, and the bookkeeping of the numbers they saw.

Invariant: ids are compared, never counts. `handled` is what a worker acknowledged and the server confirmed; a stored match
that never gets there is lost, and whatever is delivered a second time is a duplicate.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import nats.errors
from nats.aio.msg import Msg

from tests.support.account.wire import Json, Wire, owes
from tests.support.clock.until import SECONDS, glances

GIVEN_UP_SECONDS = 20.0
"""When a request that nobody answers counts as gone with its consumer."""
_PAUSE = 0.02


@dataclass
class Work:
    """One consumer, its stream's publishers and its workers."""

    wire: Wire
    stream: str
    consumer: str = "c"
    published: dict[int, str] = field(default_factory=dict)
    """Every number the server has confirmed, and its subject."""
    delivered: set[int] = field(default_factory=set)
    handled: set[int] = field(default_factory=set)
    duplicates: list[int] = field(default_factory=list)
    unfinished: dict[int, str] = field(default_factory=dict)
    """Where to acknowledge what a worker sits on."""

    async def publish(self, *subjects: str) -> None:
        """One message each, numbered on."""
        for subject in subjects:
            number = len(self.published)
            await self.wire.publish(subject, first=number)
            self.published[number] = subject

    async def pull(self, count: int, *, finish: bool = True) -> int:
        """Take up to that many messages, and acknowledge them or not; how many there were.

        A server may say that there is nothing although something is pending: it is asked again as long as INFO says so. One that
        never gives what it calls pending is believed after a long time.
        """
        taken = await self._pull_once(count, finish=finish)
        with suppress(TimeoutError):
            async with asyncio.timeout(SECONDS):
                async for _ in glances():
                    if taken >= count or not await owes(self.wire, self.stream, self.consumer):
                        break
                    taken += await self._pull_once(count - taken, finish=finish)
        return taken

    async def _pull_once(self, count: int, *, finish: bool) -> int:
        messages = await self._fetch(count)
        for message in messages:
            number = int(message.data)
            if number in self.delivered:
                self.duplicates.append(number)
            self.delivered.add(number)
            if finish:
                await self.wire.client.request(message.reply, b"+ACK", timeout=SECONDS)
                self.handled.add(number)
            else:
                self.unfinished[number] = message.reply
        return len(messages)

    async def finish(self) -> None:
        """The worker acknowledges what it sits on."""
        for number, reply in self.unfinished.items():
            await self.wire.client.request(reply, b"+ACK", timeout=SECONDS)
            self.handled.add(number)
        self.unfinished.clear()

    async def drain(self) -> None:
        """Work until nothing is pending and nothing unacknowledged, redeliveries included."""
        async with asyncio.timeout(SECONDS):
            while True:
                if await self._pull_once(100, finish=True):
                    continue
                info = await self.wire.consumer_info(self.stream, self.consumer)
                if not info["num_pending"] and not info["num_ack_pending"]:
                    return
                await asyncio.sleep(_PAUSE)

    def lost(self, *subjects: str) -> list[int]:
        """What was published on these subjects and never handled."""
        return [number for number, subject in self.published.items() if subject in subjects and number not in self.handled]

    @asynccontextmanager
    async def publishing(self, *subjects: str) -> AsyncIterator[None]:
        """Meanwhile: a publisher that goes round these subjects."""
        over = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._publish_on(subjects, over))
            try:
                yield
            finally:
                over.set()

    @asynccontextmanager
    async def going_on(self, *subjects: str) -> AsyncIterator[None]:
        """Meanwhile: a publisher, and a worker that handles what comes."""
        over = asyncio.Event()
        async with asyncio.TaskGroup() as group, self.publishing(*subjects):
            group.create_task(self._work_on(over))
            try:
                yield
            finally:
                over.set()

    async def _publish_on(self, subjects: tuple[str, ...], over: asyncio.Event) -> None:
        while not over.is_set():
            for subject in subjects:
                # Nobody listens while a subject moves: it was not stored, so trying again stores it once.
                with suppress(nats.errors.NoRespondersError):
                    await self.publish(subject)
            await asyncio.sleep(_PAUSE)

    async def _work_on(self, over: asyncio.Event) -> None:
        while not over.is_set():
            if not await self._pull_once(5, finish=True):
                await asyncio.sleep(_PAUSE)

    async def _fetch(self, count: int) -> list[Msg]:
        """A pull that does not wait; a consumer that is away for a moment has nothing."""
        client = self.wire.client
        inbox = client.new_inbox()
        subscription = await client.subscribe(inbox)
        messages: list[Msg] = []
        try:
            request = f'{{"batch": {count}, "no_wait": true}}'.encode()
            await client.publish(self.wire.subject(f"CONSUMER.MSG.NEXT.{self.stream}.{self.consumer}"), request, reply=inbox)
            while len(messages) < count:
                message = await subscription.next_msg(timeout=GIVEN_UP_SECONDS)
                if (message.headers or {}).get("Status"):
                    break
                messages.append(message)
        except nats.errors.TimeoutError:
            pass  # the consumer went away with the request
        finally:
            await subscription.unsubscribe()
        return messages


def no_leftovers(config: Json, others: set[str]) -> None:
    """Neither a journal nor a pause in a consumer, and no hold beside it."""
    metadata = config.get("metadata", {})
    assert "reconciler.procedure" not in metadata, metadata
    assert not [name for name in others if name.startswith("_reconciler")], others
