"""One walk on a model server, and what became of it.

Invariant: the same seed takes the same way, as long as strings are hashed alike (PYTHONHASHSEED).
"""

from __future__ import annotations

import asyncio
import gc
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from structlog.testing import capture_logs

from reconciler.model.desired import Desired
from reconciler.model.sourcing import durables_read
from reconciler.plan.change import Rules
from tests.support.walks import virtual
from tests.support.walks.courses import Course, course_of
from tests.support.walks.ground import Ground
from tests.support.walks.process import CALM, LATEST, Ended, lived
from tests.support.world.deeds import resumed_by_hand
from tests.support.world.keeper import planned
from tests.support.world.kept import leftovers

_TICK, _IDLE = 0.1, 0.4
"""Seconds between two moments, besides those that requests bring; also when there is not much to do any more."""
_AWAY = (0, 0, 1, 3, 200)
"""Seconds until somebody starts another process."""
_PAUSE = 130
"""Seconds after which a pause of ours ends: a consumer that was made anew begins where it is, if nobody has moved it by then."""
_FENCE = 2.0
_TRIES = 4
"""Processes that each manifest gets, at most, before the next one comes; the last one gets as many calm ones besides."""
_QUIET = {5: 12, 4: 45}
"""Seconds in which nothing moves, after which nothing will: by level, since older servers look for a durable every 40 s."""


@dataclass
class Walked:
    """What became of a walk."""

    course: Course
    happened: Counter[str]
    steps: int = 0
    """Requests of all its processes."""
    messages: int = 0
    lost: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)
    """Why it did not converge, or what else is wrong."""
    excused: str = ""
    trail: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Nothing lost, nothing twice, and in the end there is nothing to do."""
        return not (self.lost or self.stuck or self.trouble or (self.twice and not self.excused))

    def __str__(self) -> str:
        found = {"lost": self.lost, "twice": self.twice, "stuck": self.stuck}
        counts = ", ".join(f"{len(which)} {word} ({', '.join(which[:3])})" for word, which in found.items() if which)
        return f"seed {self.course.seed}: {'; '.join(filter(None, (counts, *self.trouble))) or 'ok'}"


def walk(seed: int) -> Walked:
    """The walk with this seed."""
    random.seed(seed)  # how long the engine waits after a failure
    with capture_logs() as logs:
        walked = virtual.run(_Walk(course_of(seed)).to_end())
    walked.trouble += [f"{line['event']}: {line}" for line in logs if line["log_level"] == "error"]
    gc.unfreeze()  # an apply takes all there is for lasting
    return walked


class _Walk:
    """A course under way."""

    def __init__(self, course: Course) -> None:
        self.course = course
        self.dice = Random(f"walk {course.seed}")
        self.ground = Ground(course, Random(f"ground {course.seed}"))
        self.walked = Walked(course, self.ground.happened)
        self.rules = Rules(policy="sync", adopt=bool(course.mood.meddled), allow=self._allowed(), max_change_percent=100)

    async def to_end(self) -> Walked:
        """All of it."""
        living = asyncio.ensure_future(self._living())
        try:
            await self._begin()
            for number in range(1, self.course.changes + 1):
                await self._change(number)
            await self._converge()
        finally:
            living.cancel()
        self._judge()
        return self.walked

    async def _living(self) -> None:
        while True:
            await asyncio.sleep(_TICK if self.ground.busy > 0 else _IDLE)
            try:
                self.ground.moment()
            except (AssertionError, LookupError) as error:
                self.walked.trouble.append(f"the model server: {error!r}")

    async def _begin(self) -> None:
        self.ground.quiet = True
        self._note(f"manifest 0: {self.course.wishes[0]}")
        ended = await self._process(self.course.manifests(0), calm=True)
        assert ended.over, (self.course.seed, ended.said)
        self.ground.quiet = False
        await asyncio.sleep(self.dice.uniform(0.5, 3.0))

    async def _change(self, number: int) -> None:
        self._note(f"manifest {number}: {self.course.wishes[number]}")
        wanted = self.course.manifests(number)
        for _ in range(self.dice.randint(1, _TRIES)):
            ended = await self._process(wanted)
            if ended.over:
                self._flows(number)
                break
            away = self.dice.choice(_AWAY)
            self.ground.outlasted = self.ground.outlasted or away > _PAUSE
            await asyncio.sleep(away)
        await asyncio.sleep(self.dice.uniform(0.0, 2.0))

    async def _converge(self) -> None:
        """Calm processes, one after the other, then silence."""
        wanted = self.course.manifests(self.course.changes)
        await asyncio.sleep(LATEST)
        if self.ground.landed:
            await asyncio.sleep(_PAUSE)
        for _ in range(3):
            for _ in range(_TRIES):
                ended = await self._process(wanted, calm=True)
                if ended.over:
                    break
                self.ground.quiet = True
                await self._rest()
            self._flows(self.course.changes)
            self.ground.quiet = True
            await self._rest()
            if not (self.course.mood.meddled and resumed_by_hand(self.ground.server)):
                break
        await self._rest()

    async def _process(self, wanted: Desired, *, calm: bool = False) -> Ended:
        self._note("a process")
        mood = CALM if calm else self.course.mood
        ended = await lived(self.ground, wanted, self.rules, mood, self.dice)
        self.walked.trail += ended.link.trail
        self.walked.steps += ended.link.requests
        self.walked.trouble += ended.link.faults
        for said in ended.said:
            self._note(f"  {said}")
        if ended.killed:
            await asyncio.sleep(_FENCE)
        return ended

    def _flows(self, number: int) -> None:
        for lane in self.course.lanes:
            if lane.since <= number:
                self.ground.flowing.setdefault(lane.number, self.ground.server.now)

    async def _rest(self) -> None:
        still, before = 0, self.ground.position()
        while still < _QUIET[self.course.level]:
            await asyncio.sleep(1.0)
            now = self.ground.position()
            still, before = (still + 1 if now == before else 0), now

    def _judge(self) -> None:
        ground, walked = self.ground, self.walked
        walked.messages = sum(map(len, ground.published.values())) + len(ground.stored)
        walked.lost, walked.twice, walked.stuck = ground.lost(), ground.twice(), ground.stuck()
        walked.excused = ground.excused
        wanted = self.course.manifests(self.course.changes)
        ground.server.behind = {}
        left = planned(wanted, ground.server, self.rules).changes
        walked.trouble += [f"left to do: {one.key} {one.action} {'; '.join(map(str, one.reasons))}" for one in left]
        walked.trouble += list(self._left_behind(wanted))
        if not walked.excused:
            walked.trouble += [f"not in order: {one}" for one in ground.disordered()]

    def _left_behind(self, wanted: Desired) -> Iterator[str]:
        kept = [key.name for key in (*wanted.resources, *durables_read(wanted)) if key.kind == "Consumer"]
        kept += [deed.rpartition("/")[2] for deed in self.ground.deeds.done if deed.startswith("wipe ")]  # nobody's by then
        if not self.ground.deeds.left:
            yield from leftovers(self.ground.server, tuple(kept))
        subjects = ("p.a", "p.b", "p.x") if self.course.moves else ()
        yield from (f"nobody listens to {one}" for one in subjects if self.ground.server.publish(one) is None)

    def _allowed(self) -> frozenset[tuple[str, str]]:
        """Durables that were made and are not wanted any more before anything read through them have all before them."""
        durables = [f"Consumer/{lane.origin}/{name}" for lane in self.course.lanes for name in lane.durables]
        return frozenset(("data-loss", key) for key in (*durables, *(("Stream/A",) if self.course.mood.meddled else ())))

    def _note(self, text: str) -> None:
        self.walked.trail.append(text)
