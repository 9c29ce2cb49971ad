"""Listing consumers with hundreds of filters: pages of megabytes must never cut the connection."""

from __future__ import annotations

import asyncio

from reconciler.jetstream.domains import DomainApis
from reconciler.jetstream.read.reader import JetStreamReader
from reconciler.model.seen.wanted import EVERYTHING
from tools.bench.measure import Measure, rounded, seconds, tell

_STREAM = "BIG"
_IN_FLIGHT = 16
_TELL_EVERY = 1_000


async def big_consumers(apis: DomainApis, consumers: int, filters: int) -> Measure:
    """Seconds to list them all; fails when the connection was lost or anything is missing."""
    await _make(apis, consumers, filters)
    found: list[int] = []

    async def listed() -> None:
        live = await JetStreamReader(apis).snapshot(EVERYTHING)
        found.append(0 if live.unknown else sum(len(named) for named in live.consumers.values()))

    taken = await seconds(listed)
    cuts = apis.connection.reconnects
    return Measure(
        measure=f"listing {consumers} consumers of {filters} filters",
        value=rounded(taken),
        unit="s",
        ok=found == [consumers] and not cuts and apis.connection.connected,
        detail={"listed": found[0], "connections_cut": cuts},
    )


async def _make(apis: DomainApis, consumers: int, filters: int) -> None:
    api = apis("")
    stream = {"name": _STREAM, "subjects": ["big.>"], "storage": "memory", "max_consumers": consumers}
    await api.create_stream(_STREAM, stream)
    subjects = [f"big.some-tool.some-chamber.{number:04}.completion" for number in range(filters)]
    left = iter(range(consumers))

    async def make() -> None:
        for number in left:
            name = f"worker-{number:05}"
            config = {"name": name, "durable_name": name, "ack_policy": "explicit", "filter_subjects": subjects}
            await api.create_consumer(_STREAM, name, config)
            if number % _TELL_EVERY == 0:
                tell(f"made {number} of {consumers} consumers with {filters} filters")

    await asyncio.gather(*(make() for _ in range(_IN_FLIGHT)))
