"""A pass that changes nothing, against fetching and discarding the very same pages.

Two kinds: the first look of a process, and every later one, which recognises what it has seen before.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from reconciler.engine.planning import make_plan
from reconciler.engine.ports import Ports
from reconciler.jetstream.domains import DomainApis
from reconciler.model.desired import Desired
from reconciler.plan.change import Rules
from tests.support.account.wire import Wire
from tests.support.server.process import Server
from tools.bench.measure import Measure, alternating, rounded
from tools.bench.workload import CLIENT, ports

LIMIT = 3.0
AUDITED_UP_TO = 10_000
"""The audit repeats every answer; with more consumers, it is the audit that is measured."""
_PAGE = 256
_PER_STREAM = 1
"""Requests: the last page of each stream need not be full."""
_ALWAYS = 4
_READS = frozenset({"INFO", "STREAM.LIST", "STREAM.INFO", "CONSUMER.LIST", "CONSUMER.INFO"})


class NoopPass:
    """Passes over a server that is as declared."""

    def __init__(self, apis: DomainApis, desired: Desired, rounds: int) -> None:
        self._api = apis("")
        self._apis = apis
        self._desired = desired
        self._rounds = rounds
        self._counts = {key.name: len(consumers) for key, consumers in desired.consumers.items()}
        self._ports = ports(apis)

    @property
    def most_requests(self) -> int:
        """How many a pass may make."""
        return -(-sum(self._counts.values()) // _PAGE) + _PER_STREAM * len(self._counts) + _ALWAYS

    async def measures(self) -> list[Measure]:
        """Elapsed, first and later, and requests."""
        total = sum(self._counts.values())
        first = await alternating(self._first_pass, self.fetch, self._rounds)
        later = await alternating(self._later_pass, self.fetch, self._rounds)
        found = [
            Measure(
                measure=f"no-op pass, {name}, {total} consumers",
                value=rounded(seconds),
                unit="s",
                ratio=rounded(ratio),
                limit=LIMIT,
                ok=ratio <= LIMIT,
                detail={"fetch_seconds": rounded(fetch)},
            )
            for name, (seconds, fetch, ratio) in (("first", first), ("later", later))
        ]
        return [*found, await self._requests(total)]

    async def audited(self, server: Server) -> Measure:
        """What the server itself says was asked of it."""
        async with await Wire.connect(server.url) as wire:
            before = sum(self._api.requests.values())
            async with wire.audit() as audit:
                await self._later_pass()
        asked, writes = audit.subjects(CLIENT), audit.writes(CLIENT)
        ok = not writes and len(asked) == sum(self._api.requests.values()) - before
        return Measure(measure="no-op pass, writes by the server's audit", value=len(writes), unit="requests", limit=0, ok=ok)

    async def _first_pass(self) -> None:
        await self._pass(ports(self._apis))

    async def _later_pass(self) -> None:
        await self._pass(self._ports)

    async def _pass(self, through: Ports) -> None:
        planned = await make_plan(self._desired, Rules(), through.reader)
        if planned.plan.changes or planned.plan.unchanged != len(self._desired.resources):
            msg = f"this should be a no-op: {planned.plan.summary}"
            raise RuntimeError(msg)

    async def fetch(self) -> None:
        """The same requests with the same concurrency, their replies thrown away."""
        await asyncio.gather(self._api.account_info(), self._drain_streams())
        await asyncio.gather(*(self._drain(stream, count) for stream, count in self._counts.items()))

    async def _drain_streams(self) -> None:
        async for _ in self._api.stream_pages():
            pass

    async def _drain(self, stream: str, count: int) -> None:
        async for _ in self._api.consumer_pages(stream, count):
            pass

    async def _requests(self, total: int) -> Measure:
        before = Counter(self._api.requests)
        await self._later_pass()
        made = Counter(self._api.requests) - before
        limit = self.most_requests
        writes = sum(number for operation, number in made.items() if operation not in _READS)
        return Measure(
            measure=f"no-op pass, requests, {total} consumers",
            value=sum(made.values()),
            unit="requests",
            limit=limit,
            ok=sum(made.values()) <= limit and not writes,
            detail={"writes": writes},
        )
