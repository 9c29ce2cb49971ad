"""Updating consumers through the engine, against bare pairs of INFO and UPDATE with the same bodies, one pair after the other.

That is what an update with a look inside its turn costs at least: of everything that changes what exists, one is on its way.
"""

from __future__ import annotations

import statistics
from pathlib import Path

import orjson

from reconciler.engine.apply.outcome import Verdict
from reconciler.engine.apply.run_once import ApplyOptions, apply_plan
from reconciler.engine.planning import Planned, make_plan
from reconciler.jetstream.domains import DomainApis
from reconciler.manifests.files.loader import Loader
from reconciler.model.desired import Desired
from reconciler.plan.change import Action, Rules
from tools.bench.measure import Measure, rounded, seconds
from tools.bench.workload import IN_FLIGHT, documents, fill, ports, write_by_stream

LIMIT = 0.8
_STREAMS = 20
_RULES = Rules(max_change_percent=100)


async def updating(apis: DomainApis, directory: Path, consumers: int, rounds: int) -> Measure:
    """Rate through the engine ÷ bare rate, the two taking turns in going first; each edits what the other has left."""
    edited: list[Desired] = []
    for number in range(2):
        tries = f"maxDeliver: {10 + number}"
        texts = ((stream, text.replace("maxDeliver: 10", tries)) for stream, text in documents(consumers, _STREAMS))
        edited.append(Loader().load([str(write_by_stream(directory / f"update-{number}", texts))]).desired)
    await fill(apis, edited[0])
    ratios, rates, turn = [], [], 0
    for number in range(rounds + 1):
        taken: dict[str, float] = {}
        for way in ("bare", "engine") if number % 2 else ("engine", "bare"):
            turn += 1
            planned = await make_plan(edited[turn % 2], _RULES, ports(apis).reader)
            taken[way] = await (_bare(apis, planned) if way == "bare" else _engine(apis, planned))
        if number:  # the first round warms up
            ratios.append(taken["bare"] / taken["engine"])
            rates.append(consumers / taken["engine"])
    ratio = statistics.median(ratios)
    return Measure(
        measure=f"updating {consumers} consumers",
        value=rounded(statistics.median(rates)),
        unit="consumers/s",
        ratio=rounded(ratio),
        limit=LIMIT,
        ok=ratio >= LIMIT,
    )


async def _engine(apis: DomainApis, planned: Planned) -> float:
    async def work() -> None:
        applied = await apply_plan(planned, ports(apis), ApplyOptions(timeout=600.0, concurrency=IN_FLIGHT))
        if applied.verdict is not Verdict.IN_PLACE:
            msg = f"apply ended with {applied.verdict!r}: {[outcome.why for outcome in applied.outcomes if outcome.why][:3]}"
            raise RuntimeError(msg)

    return await seconds(work)


async def _bare(apis: DomainApis, planned: Planned) -> float:
    """The changes of the plan; what it takes to plan again afterwards is paid here as well."""
    api = apis("")
    bodies = {
        change.key: orjson.dumps({"stream_name": change.key.stream, "action": "update", "config": orjson.Fragment(change.config)})
        for change in planned.plan.changes
        if change.action is Action.UPDATE
    }

    async def work() -> None:
        for key, body in bodies.items():
            await api.consumer_info(key.stream, key.name)
            await api.call_raw(f"CONSUMER.CREATE.{key.stream}.{key.name}", body, write=True)
        await make_plan(planned.desired, planned.rules, ports(apis).reader)

    return await seconds(work)
