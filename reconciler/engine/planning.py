"""The first half of a pass: look, make sure it is the right server, plan, and answer what the plan asks.

Invariant: nothing here writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace

import structlog

from reconciler.engine.ports import LiveReader
from reconciler.errors import NatsError, Refused
from reconciler.model.desired import Desired
from reconciler.model.identity import Key
from reconciler.model.seen.live import Live, Server
from reconciler.model.seen.wanted import Wanted
from reconciler.model.sourcing import durables_read
from reconciler.plan.bounds.scope import touched_by
from reconciler.plan.change import NO_MEMORY, Plan, Remembered, Rules
from reconciler.plan.plan import plan as plan_of
from reconciler.procedures.requests import Fact, Read, Unanswered
from reconciler.sources.aspect import SOURCES

log = structlog.get_logger(__name__)

ASPECTS = (SOURCES,)
"""What the planner is handed, in this order."""
ROUNDS = 3
"""An answer may lead to another question, but not for ever."""
_INLINE = 2_000
"""Declared consumers: a plan for no more than that is over in a few milliseconds."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan with what it was made from."""

    desired: Desired
    rules: Rules
    memory: Remembered
    live: Live
    plan: Plan


async def make_plan(desired: Desired, rules: Rules, reader: LiveReader, memory: Remembered = NO_MEMORY) -> Planned:
    """Look and plan, changing nothing; raises Refused when the server is not the one the manifests expect."""
    live = await reader.snapshot(wanted_by(desired, rules))
    check_expectation(desired, live.server)
    return await plan_from(desired, live, rules, memory, reader)


async def plan_from(  # noqa: PLR0913, PLR0917 - all that a plan is made of
    desired: Desired, live: Live, rules: Rules, memory: Remembered, reader: LiveReader, scope: frozenset[Key] | None = None
) -> Planned:
    """Plan from what was seen, and answer what the plan asks; with a `scope`, only for these keys (see `plan.plan`).

    `Planned.live` has the answers with it, which hold for this plan alone: what is kept for later is the Live given here.
    """
    live = replace(live, facts={})
    aside = scope is None or _size(desired, scope) > _INLINE

    async def plan() -> Plan:
        if aside:  # a hundred thousand resources take seconds, and whoever renews the lease needs this loop meanwhile
            return await asyncio.to_thread(plan_of, desired, live, rules, memory, scope, aspects=ASPECTS)
        return plan_of(desired, live, rules, memory, scope, aspects=ASPECTS)

    found = await plan()
    rounds = 0
    while found.questions:
        rounds += 1
        live = await answered(live, found.questions, reader) if rounds <= ROUNDS else given_up(live, found.questions)
        found = await plan()
    for key, trace in found.faults.items():
        log.error("plan.fault", resource=str(key), trace=trace)
    return Planned(desired, rules, memory, live, found)


def _size(desired: Desired, scope: frozenset[Key]) -> int:
    """How many declared consumers a plan for these keys looks at."""
    return sum(len(desired.consumers.get(stream, ())) for stream in touched_by(scope, desired))


def wanted_by(desired: Desired, rules: Rules) -> Wanted:
    """Which part of the live state this plan is about."""
    origins = (key.stream_key for key in durables_read(desired))
    streams = frozenset((*desired.streams, *desired.consumers, *(pool.stream for pool in desired.pools.values()), *origins))
    return Wanted(
        domains=frozenset(key.domain for key in streams) or frozenset({""}),
        streams=streams,
        owner=rules.owner,
        everything=rules.policy == "sync" or not streams,
    )


def check_expectation(desired: Desired, server: Server) -> None:
    """The right manifests must never reach the wrong cluster."""
    expected = (("cluster", desired.expect.cluster, server.cluster), ("domain", desired.expect.domain, server.domain))
    reasons = tuple(
        f"wrong {what}: environment {desired.environment or '(none)'} expects {wanted!r}, connected to {found!r}"
        for what, wanted, found in expected
        if wanted is not None and wanted != found
    )
    if reasons:
        raise Refused(reasons)


async def answered(live: Live, questions: Iterable[Read], reader: LiveReader) -> Live:
    """The same Live with the answers, silence among them."""
    reads = list(questions)
    answers = await asyncio.gather(*(_answer(reader, read) for read in reads))
    return replace(live, facts={**live.facts, **dict(zip(reads, answers, strict=True))})


def given_up(live: Live, questions: Iterable[Read]) -> Live:
    """A plan with an open question must never be carried out: what hangs on it is blocked instead."""
    return replace(live, facts={**live.facts, **dict.fromkeys(questions, Unanswered("one answer led to another too often"))})


async def _answer(reader: LiveReader, read: Read) -> Fact:
    try:
        return await reader.read(read)
    except NatsError as error:
        return Unanswered(str(error))
