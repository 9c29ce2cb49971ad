"""Each field is set, unset, raised and lowered on real servers while messages are stored, waiting, in flight and redelivered.

What is lost then has a rule: the plan for the same change is blocked, and the table of hazards says so.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import nats.errors
import pytest
import pytest_asyncio
from nats.aio.msg import Msg

from reconciler.model.desired import Declared
from reconciler.model.identity import Kind
from reconciler.model.kinds.fields import Mutability, table
from reconciler.plan.comparing.display import spec_model
from reconciler.plan.comparing.hazards import HAZARDS
from tests.support.account.wire import Json, Wire
from tests.support.choice import some
from tests.support.daemon.engine import Engine, Start
from tests.support.server.process import Server
from tests.support.values.build import consumer, marked, stream
from tests.support.values.risky import Step, steps

pytestmark = pytest.mark.differs

SEED = int(os.environ.get("RECONCILER_SEED", "0")) or random.randrange(1, 1 << 32)
EVERY_DAY = 60
AT_ONCE = 24
PUBLISHED = 12
WAIT = 0.8
"""Seconds after which whatever an update takes away is gone."""
QUIET = 2.5
"""Seconds without a message after which none comes any more: longer than it takes until one is given again."""
NOT_THERE = 10014
_ONLY_READING = ("ack_wait", "backoff", "headers_only", "max_batch", "max_expires", "max_bytes")
"""What only changes how and when it is given messages: it reads on as it did before."""
_MUTABLE = {Mutability.MUTABLE, Mutability.ONE_WAY, Mutability.PARTLY, Mutability.REMOVABLE}


@pytest.mark.parametrize("kind", ["Stream", "Consumer"])
def test_every_field_that_can_change_has_a_word_on_what_it_can_lose(kind: Kind) -> None:
    mutable = {name for name, column in table(spec_model(kind)).items() if column.wire.mutability in _MUTABLE}
    assert set(HAZARDS[kind]) == mutable


@dataclass
class Trial:
    """One step on a stream of its own."""

    step: Step
    name: str
    engine: Engine
    wire: Wire
    level: int
    given: dict[int, int] = field(default_factory=dict)
    """How often each message was delivered."""
    handled: set[int] = field(default_factory=set)

    async def run(self) -> str:
        """What went wrong; empty when nothing was lost, or the plan would have refused it."""
        if self.level < self.step.level:
            return ""
        before, after = self._declared(after=False), self._declared(after=True)
        applied = await self.engine.apply(*before)
        if applied.refused or any(outcome.why for outcome in applied.outcomes):
            return ""  # no server has that, or not this one
        await self._use()
        if self.step.wire == "max_age":
            await asyncio.sleep(WAIT)  # until all of it is older than the shortest age
        owed = await self._owed()
        planned = await self.engine.plan(*after)
        changes = [change for change in planned.plan.changes if self.name in (change.key.name, change.key.stream)]
        codes = {reason.code for change in changes for reason in change.reasons}
        hard = {change.machine.name for change in changes if change.machine}
        answer = await self._update(after)
        if "error" in answer:
            return ""
        await asyncio.sleep(WAIT)
        lost = owed - await self._still_given(before)
        if not lost or hard:
            return ""  # a procedure is not that update, and has tests of its own
        known = HAZARDS[self.step.kind][self.step.wire].code
        if codes and known in codes:
            return ""
        return f"{self.step}: lost {sorted(lost)} of {sorted(owed)}; plan: {sorted(codes) or 'nothing'}, table: {known!r}"

    def _declared(self, *, after: bool) -> tuple[Declared, Declared]:
        spec = self.step.spec(self.name, after=after)
        own = {"subjects": [f"{self.name}.*"], "retention": self.step.retention, "storage": "memory"}
        reader = {"filterSubjects": [f"{self.name}.a", f"{self.name}.b"], "ackWait": "1s"}
        of_stream = own | (spec if self.step.kind == "Stream" else {})
        if self.step.wire == "retention" and "retention" not in spec:
            of_stream.pop("retention")
        return stream(self.name, of_stream), consumer(self.name, "c", reader | (spec if self.step.kind == "Consumer" else {}))

    async def _use(self) -> None:
        """Two are handled, two were delivered twice, two once; the others wait."""
        for number in range(PUBLISHED):
            await self.wire.client.publish(f"{self.name}.{'ab'[number % 2]}", str(number).encode())
        await self.wire.client.flush()
        for message in await self._fetch(2):
            await self._acknowledge(message)
        for message in await self._fetch(2):
            await self.wire.client.publish(message.reply, b"-NAK")
        await self._fetch(2)
        await self._fetch(2)

    async def _owed(self) -> set[int]:
        """What its reader has still to be given."""
        info = await self.wire.call(f"CONSUMER.INFO.{self.name}.c")
        if "error" in info:
            return set()  # what it was before had taken it away already
        most = info["config"].get("max_deliver", -1)
        filters = info["config"].get("filter_subjects") or [info["config"].get("filter_subject") or f"{self.name}.*"]
        stored = {int(text) for text in await self.wire.payloads(self.name)}
        wanted = {number for number in stored if f"{self.name}.{'ab'[number % 2]}" in filters or f"{self.name}.*" in filters}
        return {number for number in wanted - self.handled if most < 0 or self.given.get(number, 0) < most}

    async def _update(self, after: tuple[Declared, Declared]) -> Json:
        """As a client would send it that asks nobody."""
        if self.step.kind == "Stream":
            return await self.wire.call(f"STREAM.UPDATE.{self.name}", marked(after[0]))
        body = {"stream_name": self.name, "config": marked(after[1]), "action": "update"}
        return await self.wire.call(f"CONSUMER.CREATE.{self.name}.c", body)

    async def _still_given(self, before: tuple[Declared, Declared]) -> set[int]:
        """What its reader gets, once it can read as it did; what is still stored counts where its consumer has gone."""
        gone = (await self.wire.call(f"CONSUMER.INFO.{self.name}.c")).get("error", {}).get("err_code") == NOT_THERE
        stored = {int(text) for text in await self.wire.payloads(self.name)}
        if gone:
            return stored
        if self.step.kind == "Consumer" and self.step.wire in _ONLY_READING:
            body = {"stream_name": self.name, "config": marked(self._readable(before[1])), "action": "update"}
            await self.wire.expect(f"CONSUMER.CREATE.{self.name}.c", body)
        quiet = 0.0
        while quiet < QUIET:
            messages = await self._fetch(1)
            for message in messages:
                await self._acknowledge(message)
            quiet = 0.0 if messages else quiet + 0.1
            await asyncio.sleep(0 if messages else 0.1)
        gone = (await self.wire.call(f"CONSUMER.INFO.{self.name}.c")).get("error", {}).get("err_code") == NOT_THERE
        return self.handled | stored if gone else self.handled

    def _readable(self, before: Declared) -> Declared:
        spec: dict[str, Any] = {"filterSubjects": [f"{self.name}.a", f"{self.name}.b"], "ackWait": "1s"}
        return consumer(before.key.stream, "c", spec)

    async def _acknowledge(self, message: Msg) -> None:
        await self.wire.client.request(message.reply, b"+ACK", timeout=5)
        self.handled.add(_number(message))

    async def _fetch(self, count: int) -> list[Msg]:
        client = self.wire.client
        inbox = client.new_inbox()
        subscription = await client.subscribe(inbox)
        messages: list[Msg] = []
        try:
            request = f'{{"batch": {count}, "no_wait": true}}'.encode()
            await client.publish(self.wire.subject(f"CONSUMER.MSG.NEXT.{self.name}.c"), request, reply=inbox)
            while len(messages) < count:
                message = await subscription.next_msg(timeout=1)
                if (message.headers or {}).get("Status"):
                    break
                number = _number(message)
                self.given[number] = self.given.get(number, 0) + 1
                messages.append(message)
        except nats.errors.TimeoutError:
            pass
        finally:
            await subscription.unsubscribe()
        return messages


def _number(message: Msg) -> int:
    """Of the message; one that comes without what is in it is known by where it is stored."""
    return int(message.data) if message.data else int(message.reply.split(".")[5]) - 1


@dataclass(frozen=True)
class Bench:
    """A server for all steps."""

    engine: Engine
    wire: Wire
    level: int


@pytest_asyncio.fixture
async def bench(any_server: Server, start: Start) -> AsyncIterator[Bench]:
    """Each version under test."""
    async with await Wire.connect(any_server.url) as wire:
        yield Bench(await start(any_server), wire, (await wire.expect("INFO"))["api"].get("level", 0))


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_whatever_an_update_of_a_field_loses_has_a_rule(bench: Bench) -> None:
    chosen = some(list(steps()), EVERY_DAY, random.Random(SEED))
    room = asyncio.Semaphore(AT_ONCE)

    async def tried(number: int, step: Step) -> str:
        async with room:
            try:
                return await Trial(step, f"L{number}", bench.engine, bench.wire, bench.level).run()
            except Exception as error:
                error.add_note(str(step))
                raise
            finally:
                await bench.wire.call(f"STREAM.DELETE.L{number}")  # a plan looks at everything in the account

    found = await asyncio.gather(*(tried(number, step) for number, step in enumerate(chosen)))
    wrong = [said for said in found if said]
    assert not wrong, f"seed {SEED}\n" + "\n".join(wrong)
