"""Durable sourcing through the engine, against the bare requests that have the same effect.

A first message: from manifests that nothing is there of to a message in the aggregate. A migration: from the changed manifests to
the end, at full rate; the bare side waits as long as the server's ways demand (see `tests.support.sources.bare`), and looks
twice, 1.2 s apart, whether a durable is at rest, since a cluster needs that. The milliseconds that either side does not sleep or
wait are reported: planning, requests, journals, and looking again after each write and between two waits.

Invariant: after every migration, on either side, each message is in the aggregate once; else there is no figure.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from reconciler.engine.apply.outcome import Verdict
from reconciler.engine.apply.run_once import ApplyOptions, apply_plan
from reconciler.engine.planning import make_plan
from reconciler.jetstream.clock import SystemClock
from reconciler.jetstream.domains import DomainApis
from reconciler.manifests.files.loader import Loader
from reconciler.plan.change import Rules
from tests.support.account.wire import Wire
from tests.support.sources import aggregate
from tests.support.sources.bare import Route, redelivered, renamed, to_durable, to_ephemeral
from tests.support.sources.load import RATE, publishing
from tests.support.values.catalogues import Json, write
from tools.bench.measure import Measure, rounded, tell
from tools.bench.workload import connected, ports

LIMIT = 1.5
_APART = 1.2
"""Seconds between two looks at a durable that is to be at rest."""
_REST = 1.0
"""Seconds of silence after which what was queued is stored."""
_UNDER_LOAD = 0.5
"""Seconds before and after a migration."""
_GLANCE = 0.002
_PATIENCE = 30.0


@dataclass
class _Patient(Route):
    """Keeps account of what it waits."""

    waited: float = 0.0

    async def drained(self, name: str = "c") -> int:
        """Looks twice, as we do."""
        began = time.perf_counter()
        await super().drained(name)
        await asyncio.sleep(_APART)
        floor = await super().drained(name)
        self.waited += time.perf_counter() - began
        return floor

    async def copied(self) -> int:
        """Until nothing more arrives."""
        began = time.perf_counter()
        found = await super().copied()
        self.waited += time.perf_counter() - began
        return found


class _Observed(SystemClock):
    """Keeps account of what is slept, and of how long answers were awaited."""

    def __init__(self) -> None:
        self.slept = self.asked = self._last = 0.0

    def answered(self, _kind: str, _result: str, seconds: float) -> None:
        """A request was answered just now; what two of them took together counts once."""
        now = time.monotonic()
        self.asked += now - max(now - seconds, self._last)
        self._last = now

    async def sleep(self, seconds: float) -> None:
        """Sleeps."""
        began = time.perf_counter()
        try:
            await super().sleep(seconds)
        finally:
            self.slept += time.perf_counter() - began


@dataclass(frozen=True)
class _Row:
    """One migration, as manifests and as bare requests."""

    name: str
    before: Json
    after: Json
    bare: Callable[[Route], Awaitable[None]]
    durable: bool
    """Whether the bare side begins with one."""
    demanded: float
    """Seconds that nothing may happen in between, whoever does it."""


def _managed(name: str) -> Json:
    return {"consumer": {"name": name, "serverManaged": True}}


def _declared(deliver: str) -> Json:
    return {"consumer": {"name": "c", "deliverSubject": f"deliver.{deliver}"}}


async def _leave(route: Route) -> None:
    await to_ephemeral(route, filter_subject=route.subject)


_ROWS = (
    _Row("ephemeral to managed", {}, _managed("c"), to_durable, durable=False, demanded=_REST),
    _Row("managed, renamed", _managed("c"), _managed("d"), renamed, durable=True, demanded=_APART),
    _Row("managed to ephemeral", _managed("c"), {}, _leave, durable=True, demanded=_APART),
    _Row("another deliver subject", _declared("one"), _declared("two"), redelivered, durable=True, demanded=_APART),
)


@dataclass(frozen=True)
class _Taken:
    """Seconds, and how many of them were waited."""

    wall: float
    waited: float
    asked: float = 0.0
    """Waiting for the answers of a server."""

    @property
    def awake(self) -> float:
        return self.wall - self.waited


@dataclass
class Sourcing:
    """All measures on one server; each run has streams of its own."""

    url: str
    apis: DomainApis
    wire: Wire
    scratch: Path
    rounds: int
    rate: int
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    async def measures(self) -> AsyncIterator[Measure]:
        """First messages, then each migration."""
        tell("first messages of fresh durable sources")
        yield _measure("sourcing, first message", await self._pairs(self._first_by_engine, self._first_bare))
        for row in _ROWS:
            tell(f"migrations at {self.rate} messages/s: {row.name}")
            engine, bare = functools.partial(self._migrated, row), functools.partial(self._migrated_bare, row)
            yield _measure(f"sourcing, {row.name}", await self._pairs(engine, bare), row.demanded)

    async def _pairs(
        self, engine: Callable[[_Patient], Awaitable[_Taken]], bare: Callable[[_Patient], Awaitable[_Taken]]
    ) -> list[tuple[_Taken, _Taken]]:
        """Engine and bare, in turn."""
        return [(await self._alone(engine), await self._alone(bare)) for _ in range(self.rounds)]

    async def _alone(self, work: Callable[[_Patient], Awaitable[_Taken]]) -> _Taken:
        number = next(self._numbers)
        source = f"S{number}"
        route = _Patient(source, f"A{number}", f"{source}.>", self.wire, self.wire)
        try:
            return await work(route)
        finally:
            for name in (route.aggregate, source):
                await self.wire.call(f"STREAM.DELETE.{name}")

    async def _first_by_engine(self, route: _Patient) -> _Taken:
        await self._apply(route, None)
        await self.wire.publish(f"{route.source}.a")
        began = time.perf_counter()
        clock = await self._apply(route, _managed("c"))
        await self._arrived(route)
        return _Taken(time.perf_counter() - began, clock.slept, clock.asked)

    async def _first_bare(self, route: _Patient) -> _Taken:
        await self._source(route)
        await self.wire.publish(f"{route.source}.a")
        began = time.perf_counter()
        await route.consumer("create", route.durable())
        await self._reading(route, route.through())
        await self._arrived(route)
        return _Taken(time.perf_counter() - began, 0.0)

    async def _migrated(self, row: _Row, route: _Patient) -> _Taken:
        await self._apply(route, row.before)
        return await self._loaded(route, functools.partial(self._apply_timed, route, row.after))

    async def _migrated_bare(self, row: _Row, route: _Patient) -> _Taken:
        await self._source(route)
        if row.durable:
            await route.consumer("create", route.durable())
        await self._reading(route, route.through() if row.durable else {})

        async def work() -> tuple[float, float]:
            await row.bare(route)
            return route.waited, 0.0

        return await self._loaded(route, work)

    async def _loaded(self, route: _Patient, work: Callable[[], Awaitable[tuple[float, float]]]) -> _Taken:
        """The work at full rate; `work` tells what it has waited, and what of the rest for answers."""
        async with publishing(self.url, [f"{route.source}.a"], rate=self.rate) as load:
            await asyncio.sleep(_UNDER_LOAD)
            began = time.perf_counter()
            waited, asked = await work()
            taken = _Taken(time.perf_counter() - began, waited, asked)
            await asyncio.sleep(_UNDER_LOAD)
            sent = await load.stop()
        await aggregate.settled(self.wire, route.aggregate, sent.count)
        verdict = aggregate.judge(await aggregate.held(self.url, route.aggregate), [sent])
        if not verdict.exact:
            msg = f"{route.aggregate}: {verdict}"
            raise RuntimeError(msg)
        return taken

    async def _apply_timed(self, route: _Patient, entry: Json) -> tuple[float, float]:
        clock = await self._apply(route, entry)
        return clock.slept, clock.asked

    async def _apply(self, route: _Patient, entry: Json | None) -> _Observed:
        """Manifests written, loaded, planned, applied; None: the source alone."""
        file = self.scratch / f"{route.source}.yaml"
        write(file, _documents(route, entry))
        clock = _Observed()
        self.apis("").on_answer = clock.answered
        neighbours = replace(ports(self.apis), clock=clock)
        planned = await make_plan(Loader().load([str(file)]).desired, Rules(), neighbours.reader)
        applied = await apply_plan(planned, neighbours, ApplyOptions())
        if applied.verdict is not Verdict.IN_PLACE:
            msg = f"apply ended with {applied.verdict!r}: {applied.refused} {applied.outcomes}"
            raise RuntimeError(msg)
        return clock

    async def _source(self, route: _Patient) -> None:
        await self.wire.expect(f"STREAM.CREATE.{route.source}", {"name": route.source, "subjects": [route.subject]})

    async def _reading(self, route: _Patient, through: Json) -> None:
        config = {"name": route.aggregate, "sources": [route.entry(**through)]}
        await self.wire.expect(f"STREAM.CREATE.{route.aggregate}", config)

    async def _arrived(self, route: _Patient) -> None:
        async with asyncio.timeout(_PATIENCE):
            while not (await self.wire.stream_info(route.aggregate))["state"]["messages"]:  # noqa: ASYNC110 - a server's doing
                await asyncio.sleep(_GLANCE)


def _documents(route: Route, entry: Json | None) -> list[Json]:
    documents = [_document("Stream", route.source, {"subjects": [route.subject]})]
    if entry is not None:
        documents.append(_document("Stream", route.aggregate, {"sources": [{"name": route.source, **entry}]}))
        deliver = entry.get("consumer", {}).get("deliverSubject")
        if deliver:
            spec = {"stream": route.source, "ackPolicy": "flow_control", "deliverSubject": deliver}
            documents.append(_document("Consumer", "c", spec))
    return documents


def _document(kind: str, name: str, spec: Json) -> Json:
    return {"apiVersion": "reconciler/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def _measure(name: str, pairs: list[tuple[_Taken, _Taken]], demanded: float = 0.0) -> Measure:
    ratio = statistics.median(engine.wall / bare.wall for engine, bare in pairs)
    awake = {side: rounded(1000 * statistics.median(taken.awake for taken in column)) for side, column in _sides(pairs)}
    return Measure(
        measure=name,
        value=rounded(statistics.median(engine.wall for engine, _ in pairs)),
        unit="s",
        ratio=rounded(ratio),
        limit=LIMIT,
        ok=ratio <= LIMIT,
        detail={
            "bare": rounded(statistics.median(bare.wall for _, bare in pairs)),
            "ratio_without_waits": rounded(
                statistics.median((engine.wall - demanded) / (bare.wall - demanded) for engine, bare in pairs)
            ),
            "ms_awake": awake,
            "ms_asking": rounded(1000 * statistics.median(engine.asked for engine, _ in pairs)),
        },
    )


def _sides(pairs: list[tuple[_Taken, _Taken]]) -> list[tuple[str, list[_Taken]]]:
    return [("engine", [engine for engine, _ in pairs]), ("bare", [bare for _, bare in pairs])]


async def sourcing(url: str, scratch: Path, rounds: int, rate: int = RATE) -> AsyncIterator[Measure]:
    """Everything about one server."""
    scratch.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240 - at once
    async with connected(url) as apis, await Wire.connect(url) as wire:
        async for measure in Sourcing(url, apis, wire, scratch, rounds, rate).measures():
            yield measure
