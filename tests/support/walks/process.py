"""The product on a model server: its own engine, from a plan to the last write, in a process that may die at any request.

Invariants: what a process knew is gone with it; of a dead one nothing lands any more once the next one begins, which is what
the fence is for.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

import orjson

from reconciler.engine.apply.outcome import Outcome
from reconciler.engine.apply.run_once import ApplyOptions, apply_plan
from reconciler.engine.planning import make_plan
from reconciler.engine.ports import Ports
from reconciler.engine.writing.throttle import Throttle
from reconciler.engine.writing.writes import Writes
from reconciler.errors import AccessDenied, ApiError, NatsError, NoAnswer
from reconciler.jetstream.clock import SystemClock
from reconciler.model.desired import Desired
from reconciler.model.identity import Key
from reconciler.model.seen.live import Live, LiveConsumer, Patch
from reconciler.model.seen.wanted import Wanted
from reconciler.plan.change import Plan, Rules
from reconciler.procedures.requests import (
    ConsumerInfo,
    DeleteConsumer,
    DeleteStream,
    Fact,
    PurgeStream,
    Read,
    StreamInfo,
    Write,
    changed_by,
    changes_what_exists,
)
from tests.support.walks.courses import Mood
from tests.support.walks.ground import Ground
from tests.support.world.keeper import live_of

CALM = Mood()
TIMEOUT = 2.0
"""Seconds for which an answer is waited for."""
_LATE = 1.5
"""A change without an answer lands no later than that after it was given up: two looks two seconds apart show that it did not."""
LATEST = 20.0
"""The same of what may land at any time."""
_PATIENCE = 240.0
_LATENCY = 0.001
T = TypeVar("T")


@dataclass
class Link:
    """The connection of one process: reader and writer of its engine."""

    ground: Ground
    mood: Mood
    dice: Random
    dead: asyncio.Event = field(default_factory=asyncio.Event)
    requests: int = 0
    trail: list[str] = field(default_factory=list)
    """What was asked of the server, and what became of it."""
    faults: list[str] = field(default_factory=list)
    """What the model server does not put up with."""
    _obstinate: dict[tuple[type, Key], NatsError] = field(default_factory=dict)
    _under_way: int = 0
    _begun: Counter[float] = field(default_factory=Counter)

    # -- reading -----------------------------------------------------------------------------------------------------

    async def snapshot(self, wanted: Wanted) -> Live:  # noqa: ARG002 - see LiveReader
        """All that is live; at times something does not answer."""
        live = await self._ask(lambda: live_of(self.ground.server), "snapshot")
        return self._partly(live) if self.dice.random() < self.mood.silent else live

    async def refresh(self, live: Live, keys: Collection[Key]) -> Patch:  # noqa: ARG002 - see LiveReader
        """What these look like now; of streams, all consumers."""
        at = time.time_ns()
        seen = await self._ask(lambda: live_of(self.ground.server), f"refresh {len(keys)}")
        streams = {key.stream_key for key in keys if key.is_stream}
        return Patch(
            at=at,
            streams={key: seen.streams.get(key) for key in streams},
            lists={key: seen.consumers.get(key, {}) for key in streams if key in seen.streams},
            consumers={key: seen.consumer(key) for key in keys if key.kind == "Consumer"},
        )

    async def read(self, read: Read) -> Fact:
        """One answer, as bytes would bring it."""
        fact = await self._ask(lambda: self.ground.server.read(read), "")
        return orjson.loads(orjson.dumps(fact)) if isinstance(fact, dict) else fact

    async def changed(self, consumer: Key, before: LiveConsumer) -> Fact | None:  # noqa: ARG002 - see LiveReader
        """What is said of a consumer."""
        return await self.read(ConsumerInfo(consumer))

    # -- writing -----------------------------------------------------------------------------------------------------

    def fits(self, write: Write, level: int = 0) -> None:
        """Everything does."""

    async def write(self, write: Write, level: int = 0) -> dict[str, Any]:  # noqa: ARG002 - see LiveWriter
        """The answer, as a server gives it."""
        return await self._ask(lambda: self._written(write), _shown(write), write)

    def _written(self, write: Write) -> dict[str, Any]:
        self.ground.executed(write)
        key = changed_by(write)
        if isinstance(write, DeleteStream | DeleteConsumer | PurgeStream):
            return {"success": True}
        fact = self.ground.server._read(ConsumerInfo(key) if key.kind == "Consumer" else StreamInfo(key))
        found: dict[str, Any] = orjson.loads(orjson.dumps(fact))
        return found

    # -- what may happen to a request --------------------------------------------------------------------------------

    async def _ask(self, act: Callable[[], T], title: str, write: Write | None = None) -> T:
        if self.dead.is_set():
            await _for_ever()
        self.requests += 1
        began = time.monotonic()
        self._under_way += 1
        self._begun[began] += 1
        try:
            await asyncio.sleep(self._latency())
            self._meanwhile(began, write)
            self._may_die(title, write)
            if self.dead.is_set():
                await _for_ever()
            answer = await self._executed(act, title, write)
            await asyncio.sleep(self._latency())
            if self.dead.is_set():
                await _for_ever()
        finally:
            self._under_way -= 1
        return answer

    def _latency(self) -> float:
        slow = self.mood.slow and self.dice.random() < self.mood.slow
        return self.dice.uniform(0.3, 1.5) if slow else self.dice.uniform(0.2, 1.0) * _LATENCY

    def _meanwhile(self, began: float, write: Write | None) -> None:
        self.ground.moment()
        if self.dice.random() < self.mood.elected:
            self.ground.elect()
        if self.dice.random() < self.mood.lags:
            self.ground.lag()
        alone = write is None and self._under_way == 1 and self._begun[began] == 1
        if alone and self.dice.random() < self.mood.meddled:  # between a look and its write nobody could tell
            self.ground.meddle()
            self.trail.append(f"  a person: {self.ground.deeds.done[-1:]}")

    def _may_die(self, title: str, write: Write | None) -> None:
        if self.dice.random() >= self.mood.killed:
            return
        self.ground.happened["kills"] += 1
        fate = self.dice.choice(("never came", "executed", "late")) if write is not None else ""
        self.trail.append(f"  killed at {title or 'a read'} {fate}")
        if write is not None and fate == "executed":
            self._quietly(write)
        elif write is not None and fate == "late":
            self._later(write, _LATE)
        self.dead.set()

    async def _executed(self, act: Callable[[], T], title: str, write: Write | None) -> T:
        self._may_be_refused(title, write)
        if self.dice.random() < self.mood.silent:
            await self._silence(title, write)
        if title:
            self.trail.append(title)
        try:
            return act()
        except AssertionError as error:
            self.faults.append(f"{title}: {error}")
            raise
        except NatsError as error:
            self.trail.append(f"  {error}")
            raise

    def _may_be_refused(self, title: str, write: Write | None) -> None:
        kind = (type(write), changed_by(write)) if write is not None else None
        error = self._obstinate.get(kind) if kind else None
        if error is None and self.dice.random() < self.mood.refused:
            error = self._refusal(write)
            if kind and self.dice.random() < 0.3:
                self._obstinate[kind] = error
                self.ground.outlasted = True  # for all that is known here, longer than any pause lasts
        if error is not None:
            self.ground.happened["refusals"] += 1
            self.trail.append(f"  refused: {title or 'a read'}: {error}")
            raise error

    def _refusal(self, write: Write | None) -> NatsError:
        transient = ApiError(503, 10008, "JetStream system temporarily unavailable")
        if write is None:
            return transient
        return self.dice.choice((transient, ApiError(500, 10000, "refused for good"), AccessDenied("publish", "$JS.API.X")))

    async def _silence(self, title: str, write: Write | None) -> None:
        self.ground.happened["silences"] += 1
        fate = self.dice.choice(("lost", "executed", "late")) if write is not None else "lost"
        self.trail.append(f"  silent, {fate}: {title or 'a read'}")
        if write is not None and fate == "executed":
            self._quietly(write)
        await asyncio.sleep(TIMEOUT)
        if write is not None and fate == "late":
            self._later(write, _LATE if changes_what_exists(write) else LATEST)
        if self.dead.is_set():
            await _for_ever()
        msg = "no answer"
        raise NoAnswer(msg)

    def _quietly(self, write: Write) -> None:
        try:
            self.ground.executed(write)
        except NatsError as error:
            self.trail.append(f"  {error}")

    def _later(self, write: Write, most: float) -> None:
        due = time.time_ns() + int(self.dice.uniform(0.0, most) * 10**9)
        self.ground.late.append((due, write))

    def _partly(self, live: Live) -> Live:
        key = self.dice.choice(sorted(live.streams, key=str))
        self.ground.happened["silences"] += 1
        self.trail.append(f"  silent: {key} in the snapshot")
        streams = {one: seen for one, seen in live.streams.items() if one != key}
        consumers = {one: seen for one, seen in live.consumers.items() if one != key}
        return Live(live.server, live.observed_at, streams, consumers, {key: "it does not answer"})


class _Held:
    """The lease is ours."""

    def check(self) -> None:
        """It still is."""


@dataclass(frozen=True)
class _Steps:
    """Who watches: what procedures wait for is part of the trail."""

    trail: list[str]

    def stepped(self, key: Key, title: str) -> None:
        """Of other steps, the request tells."""
        if title.startswith("waiting"):
            self.trail.append(f"  {key}: {title}")

    def finished(self, outcome: Outcome) -> None:
        """Nothing."""


@dataclass(frozen=True)
class Ended:
    """How a process ended."""

    killed: bool
    left: Plan | None
    """What it still found to do at last; None: it could not look."""
    link: Link
    said: tuple[str, ...] = ()

    @property
    def over(self) -> bool:
        """Whether there is nothing left to do."""
        return self.left is not None and not self.left.changes


async def lived(ground: Ground, wanted: Desired, rules: Rules, mood: Mood, dice: Random) -> Ended:
    """A process, from its start to its end or its death."""
    link = Link(ground, mood, dice)
    ground.begin()
    others = asyncio.all_tasks()
    body = asyncio.ensure_future(_body(link, wanted, rules))
    death = asyncio.ensure_future(link.dead.wait())
    await asyncio.wait({body, death}, return_when=asyncio.FIRST_COMPLETED)
    ended = Ended(killed=True, left=None, link=link) if link.dead.is_set() else body.result()
    mine = asyncio.all_tasks() - others
    for task in mine:
        task.cancel()
    await asyncio.gather(*mine, return_exceptions=True)
    return ended


async def _body(link: Link, wanted: Desired, rules: Rules) -> Ended:
    clock = SystemClock()
    ports = Ports(link, Writes(link, link, clock, Throttle(0, clock)), _Held(), clock, _Steps(link.trail))
    try:
        planned = await make_plan(wanted, rules, link)
    except NatsError as error:
        return Ended(killed=False, left=None, link=link, said=(str(error),))
    if not planned.plan.changes:
        return Ended(killed=False, left=planned.plan, link=link)
    applied = await apply_plan(planned, ports, ApplyOptions(continue_=True, timeout=_PATIENCE))
    said = tuple(f"{outcome.change.key}: {outcome.word} {outcome.why}" for outcome in applied.outcomes if outcome.why)
    refused = tuple(str(reason) for reason in applied.refused)
    return Ended(killed=False, left=applied.remaining, link=link, said=said + refused)


async def _for_ever() -> None:
    await asyncio.get_running_loop().create_future()


def _shown(write: Write) -> str:
    more = getattr(write, "until", None) or getattr(write, "seq", None) or ""
    return f"{type(write).__name__} {changed_by(write)} {more}".rstrip()
