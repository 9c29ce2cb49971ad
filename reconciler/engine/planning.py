"""The first half of a pass: look, make sure it is the right server, plan, and answer what the plan asks.

Invariant: nothing here writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace

from reconciler.engine.ports import LiveReader
from reconciler.errors import NatsError, Refused
from reconciler.model.desired import Desired
from reconciler.model.live import Live, Server
from reconciler.model.wanted import Wanted
from reconciler.plan.change import NO_MEMORY, Memory, Plan, Rules
from reconciler.plan.plan import plan as plan_of
from reconciler.procedures.requests import Fact, Read, Unanswered

_ROUNDS = 3
"""An answer may lead to another question, but not for ever."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan with what it was made from."""

    desired: Desired
    rules: Rules
    memory: Memory
    live: Live
    plan: Plan


async def make_plan(desired: Desired, rules: Rules, reader: LiveReader, memory: Memory = NO_MEMORY) -> Planned:
    """Look and plan, changing nothing; raises Refused when the server is not the one the manifests expect."""
    live = await reader.snapshot(wanted_by(desired, rules))
    check_expectation(desired, live.server)
    # In a thread: a hundred thousand changes take seconds, and whoever renews the lease needs this loop meanwhile.
    plan = await asyncio.to_thread(plan_of, desired, live, rules, memory)
    rounds = 0
    while plan.questions:
        rounds += 1
        live = await _answered(live, plan.questions, reader) if rounds <= _ROUNDS else _given_up(live, plan.questions)
        plan = await asyncio.to_thread(plan_of, desired, live, rules, memory)
    return Planned(desired, rules, memory, live, plan)


def wanted_by(desired: Desired, rules: Rules) -> Wanted:
    """Which part of the live state this plan is about."""
    declared = {key.stream_key for key in desired.resources if key.is_stream}
    streams = frozenset((*declared, *desired.consumers, *(pool.stream for pool in desired.pools.values())))
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


async def _answered(live: Live, questions: Iterable[Read], reader: LiveReader) -> Live:
    """The same Live with the answers, silence among them."""
    reads = list(questions)
    answers = await asyncio.gather(*(_answer(reader, read) for read in reads))
    return replace(live, facts={**live.facts, **dict(zip(reads, answers, strict=True))})


def _given_up(live: Live, questions: Iterable[Read]) -> Live:
    """A plan with an open question must never be carried out: what hangs on it is blocked instead."""
    return replace(live, facts={**live.facts, **dict.fromkeys(questions, Unanswered("one answer led to another too often"))})


async def _answer(reader: LiveReader, read: Read) -> Fact:
    try:
        return await reader.read(read)
    except NatsError as error:
        return Unanswered(str(error))
