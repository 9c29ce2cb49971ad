"""Creating consumers through the engine, against bare requests with the same bodies at the same concurrency.

Into memory, which is the hard case: with file storage the disk sets the pace, and whatever the engine does hides behind it.
"""

from __future__ import annotations

import statistics
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson

from reconciler.engine.apply.outcome import Verdict
from reconciler.engine.apply.run_once import ApplyOptions, apply_plan
from reconciler.engine.planning import Planned, make_plan
from reconciler.jetstream.domains import DomainApis
from reconciler.manifests.files.loader import Loader
from reconciler.plan.change import Rules
from reconciler.procedures.requests import CreateConsumer, CreateStream
from tools.bench.measure import Measure, rounded, seconds
from tools.bench.workload import IN_FLIGHT, creations, documents, make_streams, ports, spread, write_by_stream

LIMIT = 0.8
_STREAMS = 20


async def creating(apis: DomainApis, directory: Path, consumers: int, rounds: int) -> Measure:
    """Rate through the engine ÷ bare rate, the two taking turns in going first."""
    manifests = write_by_stream(directory / f"create-{consumers}", documents(consumers, _STREAMS))
    desired = Loader().load([str(manifests)]).desired
    streams, writes = creations(desired)
    ratios, rates = [], []
    for number in range(rounds + 1):
        taken: dict[str, float] = {}
        for way in ("bare", "engine") if number % 2 else ("engine", "bare"):
            async with _streams(apis, streams):
                planned = await make_plan(desired, Rules(), ports(apis).reader)
                taken[way] = await (_bare(apis, writes) if way == "bare" else _engine(apis, planned))
        if number:  # the first round warms up
            ratios.append(taken["bare"] / taken["engine"])
            rates.append(consumers / taken["engine"])
    ratio = statistics.median(ratios)
    return Measure(
        measure=f"creating {consumers} consumers",
        value=rounded(statistics.median(rates)),
        unit="consumers/s",
        ratio=rounded(ratio),
        limit=LIMIT,
        ok=ratio >= LIMIT,
    )


@asynccontextmanager
async def _streams(apis: DomainApis, streams: list[CreateStream]) -> AsyncIterator[None]:
    """Empty streams, gone afterwards."""
    await make_streams(apis, streams)
    try:
        yield
    finally:
        for write in streams:
            await apis("").delete_stream(write.stream.name)


async def _engine(apis: DomainApis, planned: Planned) -> float:
    async def work() -> None:
        applied = await apply_plan(planned, ports(apis), ApplyOptions(timeout=600.0, concurrency=IN_FLIGHT))
        if applied.verdict is not Verdict.IN_PLACE:
            msg = f"apply ended with {applied.verdict!r}"
            raise RuntimeError(msg)

    return await seconds(work)


async def _bare(apis: DomainApis, writes: list[CreateConsumer]) -> float:
    api = apis("")
    bodies = {write.consumer: body(write) for write in writes}

    async def send(write: CreateConsumer) -> None:
        await api.call_raw(f"CONSUMER.CREATE.{write.consumer.stream}.{write.consumer.name}", bodies[write.consumer], write=True)

    return await seconds(lambda: spread(send, writes, IN_FLIGHT))


def body(write: CreateConsumer) -> bytes:
    """Of the request."""
    return orjson.dumps({"stream_name": write.consumer.stream, "config": orjson.Fragment(write.config), "action": "create"})
