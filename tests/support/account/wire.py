"""Another client of the same servers: speaks raw `$JS.API` JSON, and overhears what others ask.

Invariant: nothing of `reconciler` is used here, so a test never checks the product with itself.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from time import monotonic
from typing import Any, Self

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from tests.support.clock.until import SECONDS, glances

Json = dict[str, Any]
TIMEOUT_SECONDS = 30.0
IN_FLIGHT = 256
_ALL_OF_IT = (("filter_subject", ">"), ("filter_subjects", [">"]))
AUDIT_SUBJECT = "$JS.EVENT.ADVISORY.API"
HEARD_SECONDS = 5.0
KNOCKS = 5
LAG_SECONDS = 0.3
"""How long one report is waited for before the next one is asked for."""
_READ = re.compile(
    r"\$JS\.(?:[^.]+\.)?API\.(?:INFO$|DIRECT\.GET\.|(?:STREAM|CONSUMER)\.(?:INFO|NAMES|LIST|MSG\.GET|MSG\.NEXT)(?:\.|$))"
)


class _Client(Client):
    """A PONG that nobody waits for any more ends the reading of nats-py's own client: it stays connected, and hears nothing."""

    async def _process_pong(self) -> None:
        if self._pongs and self._pongs[0].done():
            self._pongs.pop(0)
            self._pings_outstanding = 0
        else:
            await super()._process_pong()


class Wire:
    """One connection, one JetStream domain."""

    def __init__(self, client: Client, domain: str = "") -> None:
        self.client = client
        self._prefix = f"$JS.{domain}.API" if domain else "$JS.API"

    @classmethod
    async def connect(cls, url: str, *, domain: str = "", **options: Any) -> Self:
        """Connect; options are those of `nats.connect` (`name`, `user`, `password`, …)."""
        client = _Client()
        await client.connect(url.split(","), **{"name": "wire", "max_reconnect_attempts": -1, **options})
        return cls(client, domain)

    async def close(self) -> None:
        """Close the connection."""
        await self.client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def name(self) -> str:
        """The connection's name, as advisories show it."""
        return str(self.client.options["name"])

    def subject(self, request: str) -> str:
        """The full subject of an API request such as `STREAM.CREATE.X`."""
        return f"{self._prefix}.{request}"

    async def call(self, request: str, payload: Json | None = None) -> Json:
        """Send one API request, `STREAM.CREATE.X`; the whole answer, its `error` included."""
        body = b"" if payload is None else json.dumps(payload).encode()
        answer = await self.client.request(self.subject(request), body, timeout=TIMEOUT_SECONDS)
        return _object(answer.data)

    async def expect(self, request: str, payload: Json | None = None) -> Json:
        """Like `call`, for requests that the test takes for granted: fails when the answer is an error."""
        answer = await self._answer_of(request, payload)
        assert "error" not in answer, f"{request}: {answer['error']}"
        return answer

    async def _answer_of(self, request: str, payload: Json | None) -> Json:
        """What is made is asked for once more where a leader may have gone with the request: the same again is no other."""
        try:
            return await self.call(request, payload)
        except nats.errors.TimeoutError:
            if ".CREATE." not in request:
                raise
            return await self.call(request, payload)

    async def publish(self, subject: str, count: int = 1, *, first: int = 0) -> list[int]:
        """Publish `first`, `first + 1`, … as payloads, wait for every ack, return the stored sequences in that order."""
        bodies = [str(number).encode() for number in range(first, first + count)]
        # The first one alone: until a cluster has told every server of new subjects, nobody listens (and nothing is stored).
        sequences = [await self._first_heard(subject, bodies.pop(0))] if bodies else []
        for start in range(0, len(bodies), IN_FLIGHT):
            batch = bodies[start : start + IN_FLIGHT]
            # Sent one after the other, so they are stored in order; only the waiting for the acks is concurrent.
            sequences += await asyncio.gather(*(self._publish_one(subject, body) for body in batch))
        return sequences

    async def payloads(self, stream: str) -> list[str]:
        """What the stream holds now, in order: compare ids, since counts hide a loss behind a duplicate."""
        state = (await self.stream_info(stream))["state"]
        found: list[str] = []
        for sequence in range(state["first_seq"], state["last_seq"] + 1):
            message = await self.call(f"STREAM.MSG.GET.{stream}", {"seq": sequence})
            if "message" in message:
                found.append(_decoded(message["message"]))
        return found

    async def stream_info(self, stream: str) -> Json:
        """INFO of a stream that exists."""
        return await self.expect(f"STREAM.INFO.{stream}")

    async def consumer_info(self, stream: str, consumer: str) -> Json:
        """INFO of a consumer that exists."""
        return await self.expect(f"CONSUMER.INFO.{stream}.{consumer}")

    def audit(self) -> AbstractAsyncContextManager[Audit]:
        """Collect the account's JetStream API requests, whoever sends them, until the block ends (but not this wire's INFO)."""
        return Audit(self).listening()

    async def _first_heard(self, subject: str, body: bytes) -> int:
        deadline = monotonic() + SECONDS
        while True:
            try:
                return await self._publish_one(subject, body)
            except nats.errors.NoRespondersError:
                if monotonic() > deadline:
                    raise
            await asyncio.sleep(0.05)

    async def _publish_one(self, subject: str, body: bytes) -> int:
        ack = _object((await self.client.request(subject, body, timeout=TIMEOUT_SECONDS)).data)
        assert "error" not in ack, f"publish to {subject}: {ack['error']}"
        return int(ack["seq"])


class Audit:
    """API requests as one server reported them; two that came close together may be reported in either order.

    For some milliseconds after a subscription a busy server may leave out what it would have to send to it. So nothing is counted
    before a first report was heard. A report that is missing all the same is waited for patiently; then what is there now is
    compared with what was there before. Is it the same, configurations and messages, then no request that was left out changed
    anything, and what the test says of writes is true of what was reported; otherwise nobody can tell, and that is a failure.
    """

    def __init__(self, wire: Wire) -> None:
        self.records: list[Json] = []
        self._wire = wire
        self._counted = 0
        self._before: Json = {}
        self._knock = f"STREAM.INFO.{wire.client.new_inbox().rpartition('.')[2]}"
        self._awake = asyncio.Event()
        self.patience = SECONDS

    async def hear(self, message: Msg) -> None:
        """Take one advisory."""
        record = _object(message.data)
        if str(record["subject"]).endswith(self._knock):
            self._awake.set()  # none of the test's requests, whenever it comes
        else:
            self.records.append(record)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Self]:
        """Hears everything until the block ends; complete when it has ended."""
        self._before = await everything_of(self._wire)
        subscription = await self._wire.client.subscribe(AUDIT_SUBJECT, cb=self.hear)
        try:
            for _ in range(KNOCKS):
                await self._wake()
            self.records.clear()
            await self.begin()
            yield self
            await self.settle()
        finally:
            await subscription.unsubscribe()

    async def begin(self) -> None:
        """Note how many requests the server has counted so far."""
        self._counted = await self._count()

    async def settle(self) -> None:
        """Wait until everything asked before now has been reported.

        The server counts a request, answers it, and only then reports it; so the answer of a later request proves nothing.
        """
        await self.complete(await self._count() - self._counted + 1)  # INFO does not count itself, but is reported
        own = (self._wire.name, self._wire.subject("INFO"))
        self.records = [record for record in self.records if (record["client"].get("name"), record["subject"]) != own]

    async def complete(self, expected: int) -> None:
        """Wait for so many reports; what is missing in the end must have changed nothing."""
        try:
            await eventually(lambda: len(self.records) >= expected, self.patience)
        except TimeoutError:
            missing = f"{expected - len(self.records)} of {expected} requests were not reported"
            assert await everything_of(self._wire) == self._before, f"{missing}, and something has changed"

    async def _wake(self) -> None:
        """Ask for something until it is reported.

        A server answers a request before it reports it, so what was asked before may be reported now; by the time it has answered
        and reported several more, one after the other, it has long come to that.
        """
        self._awake.clear()
        async with asyncio.timeout(SECONDS):
            while not self._awake.is_set():
                await self._wire.call(self._knock)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._awake.wait(), HEARD_SECONDS)

    def subjects(self, client: str = "") -> list[str]:
        """Subjects of all requests, or of those sent by connections of that name."""
        return [record["subject"] for record in self.records if not client or record["client"].get("name") == client]

    def writes(self, client: str = "") -> list[str]:
        """Like `subjects`, without the requests that only read."""
        return [subject for subject in self.subjects(client) if not _READ.match(subject)]

    async def _count(self) -> int:
        return int((await self._wire.expect("INFO"))["api"]["total"])


async def eventually(condition: Callable[[], bool], seconds: float = SECONDS) -> None:
    """Poll until the condition holds; raises TimeoutError when it does not within the time."""
    async with asyncio.timeout(seconds):
        async for _ in glances():
            if condition():
                return


async def everything_of(wire: Wire) -> Json:
    """All streams and consumers, how they are made and what they hold; of buckets, which anybody may write, only how."""
    found: Json = {}
    for stream in await _listed(wire, "STREAM.LIST", "streams"):
        name, config = stream["config"]["name"], stream["config"]
        held = (
            {} if name.startswith("KV_") else {part: stream["state"].get(part) for part in ("messages", "first_seq", "last_seq")}
        )
        found[name] = (stream["created"], config, held)
        for consumer in await _listed(wire, f"CONSUMER.LIST.{name}", "consumers"):
            found[f"{name}/{consumer['name']}"] = (consumer["created"], consumer["config"], consumer["delivered"])
    return found


async def _listed(wire: Wire, request: str, what: str) -> list[Json]:
    found: list[Json] = []
    while True:
        answer = await wire.expect(request, {"offset": len(found)})
        page: list[Json] = answer.get(what) or []
        found += page
        if not page or len(found) >= answer["total"]:
            return found


async def owes(wire: Wire, stream: str, consumer: str) -> bool:
    """Whether a worker could get something of this consumer that was never delivered.

    For some milliseconds after a message was stored a busy server says too little, in pulls and in INFO alike; so where the
    consumer has not come to the stream's end, a "nothing" counts only when it is said again.
    """
    for pause in (LAG_SECONDS, 0.0):
        info = await wire.call(f"CONSUMER.INFO.{stream}.{consumer}")
        if "error" in info or info.get("paused"):
            return False
        if info["num_pending"]:
            return True
        if info["delivered"]["stream_seq"] >= (await wire.stream_info(stream))["state"]["last_seq"]:
            return False
        await asyncio.sleep(pause)
    return False


def without_everything(config: Json) -> Json:
    """A configuration in which `>` as the only filter and no filter at all, which mean the same, are the same."""
    return {name: value for name, value in config.items() if (name, value) not in _ALL_OF_IT}


def _object(data: bytes) -> Json:
    document = json.loads(data)
    assert isinstance(document, dict), document
    return document


def _decoded(message: Json) -> str:
    return base64.b64decode(message.get("data", "")).decode()
