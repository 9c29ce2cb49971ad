"""Those who only use the streams: publishers, and the workers that read one consumer of a family.

Invariant: a number counts as published when the server has confirmed it, and is sent again under the same id until it has.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

import nats.errors
from nats.aio.msg import Msg

from tests.support.account.wire import Wire
from tests.support.clock.until import until
from tools.soak.families import READ, Family
from tools.soak.ledger import Ledger

_ANSWER = 5.0
_PATIENCE = 120.0
_ROUND = 4.0
"""Seconds from one pull of a worker to the next."""
_BATCH = 500


class NotStored(Exception):
    """A stream took no message for two minutes."""


async def publish(wire: Wire, family: Family, ledger: Ledger, count: int = 1) -> None:
    """The next messages of a family, whose lock the caller holds."""
    account = ledger.accounts[family.stream]
    for _ in range(count):
        number = account.published
        subject = number % len(family.subjects)
        identity = f"{family.stream}.{number}"
        deadline = time.monotonic() + _PATIENCE
        while not await _stored(wire, family.subjects[subject], identity):
            if time.monotonic() > deadline:
                raise NotStored(identity)
            await asyncio.sleep(0.1)
        account.confirmed(subject)


async def _stored(wire: Wire, subject: str, identity: str) -> bool:
    try:
        answer = await wire.client.request(subject, identity.encode(), _ANSWER, headers={"Nats-Msg-Id": identity})
    except (nats.errors.NoRespondersError, nats.errors.TimeoutError):
        return False
    return "error" not in json.loads(answer.data)


@dataclass
class Traffic:
    """All of it, on a connection of its own."""

    wire: Wire
    ledger: Ledger
    families: list[Family]
    rate: float
    """Messages a second."""
    over: asyncio.Event = field(default_factory=asyncio.Event)

    async def publishing(self) -> None:
        """Goes round all families until it is over; one that somebody works on is left out."""
        began, number = time.monotonic(), 0
        while not self.over.is_set():
            family = self.families[number % len(self.families)]
            number += 1
            if not family.lock.locked():
                async with family.lock:
                    await publish(self.wire, family, self.ledger)
            ahead = began + number / self.rate - time.monotonic()
            if ahead > 0:
                await asyncio.sleep(ahead)
            elif ahead < -1:
                began = time.monotonic() - number / self.rate

    async def reading(self) -> None:
        """Each worker in turn asks for what there is, and acknowledges it, until this is cancelled."""
        inbox = self.wire.client.new_inbox()
        await self.wire.client.subscribe(inbox, cb=self._given)
        read = [family for family in self.families if family.read]
        while True:
            for family in read:
                await self._pull(family, inbox)
                await asyncio.sleep(_ROUND / len(read))

    async def read_out(self, families: Iterable[Family], seconds: float) -> list[Family]:
        """Waits until the workers were given everything; the families that lack some all the same."""
        lacking = list(families)

        async def nothing_lacks() -> bool:
            lacking[:] = [family for family in lacking if self.ledger.unread(family)]
            return not lacking

        with suppress(TimeoutError):
            await until(nothing_lacks, seconds)
        return lacking

    async def _pull(self, family: Family, inbox: str) -> None:
        body = json.dumps({"batch": _BATCH, "no_wait": True}).encode()
        await self.wire.client.publish(self.wire.subject(f"CONSUMER.MSG.NEXT.{family.stream}.{READ}"), body, reply=inbox)

    async def _given(self, message: Msg) -> None:
        if message.headers and "Status" in message.headers:
            return  # nothing (more) to give
        if not message.reply:
            return  # nobody there to ask
        stream, _, number = message.data.decode().rpartition(".")
        self.ledger.delivered(stream, int(number))
        await self.wire.client.publish(message.reply, b"+ACK")
