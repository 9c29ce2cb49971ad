"""One thing that happens in a cluster, at one place of the way to what is declared; and what became of the messages.

Invariant: a way is the same each time but for its trouble, so that its places can be numbered.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from reconciler.errors import NatsError
from reconciler.model import units
from reconciler.model.desired import Desired
from reconciler.model.identity import Key
from reconciler.plan.change import NO_MEMORY, Action, Remembered
from reconciler.procedures.consumer import ConsumerSeen
from reconciler.procedures.machine import Procedure
from reconciler.procedures.requests import DeleteConsumer, PauseConsumer
from tests.support.world.keeper import SYNC, Keeper, planned
from tests.support.world.server import Fate, ModelServer

LAGS = (2, 4, 8)
"""By so many steps a leader lags: a write, two, and what happens in about a second."""
GLIMPSE, LONG = 0, 5 * 10**8
"""For how long it does: one look, or half a second."""
OURS = 130 * 10**9
PERSON = 3600 * 10**9
ATTEMPTS = 30
_BLIND = PauseConsumer | DeleteConsumer
"""Between the look and such a write nobody can tell: the engine looks once more just before it sends one."""


class Kept(Protocol):
    """A world in which a keeper makes everything."""

    server: ModelServer

    def publish(self) -> None:
        """Something comes in."""
        ...

    def settle(self) -> None:
        """Nothing comes in any more; wait until nothing moves."""
        ...

    def wrong(self, keeper: Keeper, /) -> str:
        """What is not as it has to be once all is quiet; empty for nothing."""
        ...


@dataclass(frozen=True)
class Trouble:
    """One of them."""

    kind: str
    """`lag`, `unheard`, `late`, `paused again` or `elected`."""
    at: int
    """The step or, of a write that is `unheard` or `late`, its number."""
    on: tuple[Key, ...] = ()
    """Whose leader lags, or what is paused."""
    by: int = 0
    """How far a leader lags, or before which step a late write lands."""
    lasting: int = 0
    """How long a leader lags."""

    def __str__(self) -> str:
        on = ",".join(map(str, self.on))
        return f"{self.kind} at {self.at}, {on}, {self.by}, {self.lasting / 10**9:g} s"


UNTROUBLED = Trouble("", -1)


class _Course:
    """A keeper on its way, with a trouble."""

    def __init__(self, world: Kept, trouble: Trouble, memory: Remembered) -> None:
        self.world = world
        self.trouble = trouble
        self.person = 0
        """Until when a person has paused something."""
        self.made = False
        """It was made by the procedure itself, which may take it away again."""
        self._lagging_until = 0
        self._writes = 0
        self.keeper = Keeper(world, memory=memory)  # type: ignore[arg-type]  # all that it needs of a world
        self.keeper.hook = self._before
        self.server.fate = lambda _: self._fate()

    @property
    def server(self) -> ModelServer:
        return self.world.server

    def _fate(self) -> Fate:
        number, self._writes = self._writes, self._writes + 1
        if number != self.trouble.at or self.trouble.kind not in ("unheard", "late"):
            return Fate.ANSWERED
        return Fate.LATE if self.trouble.kind == "late" else Fate.UNHEARD

    def _before(self, step: int) -> None:
        trouble = self.trouble
        if trouble.kind == "late" and step >= trouble.by:
            self.server.land()
        if trouble.kind == "paused again" and step == trouble.at:
            self._pause_again()
        if trouble.kind == "lag":
            self._lag(step)
        if trouble.kind == "elected" and step == trouble.at:
            self._elect()

    def _elect(self) -> None:
        for key in self.trouble.on:
            if key.kind == "Consumer":
                self.server.elect(key.stream, key.name)
            elif key.stream_name in self.server.streams:
                self.server.elect(key.stream_name)

    def _lag(self, step: int) -> None:
        trouble, server = self.trouble, self.server
        if trouble.at - max(LAGS) <= step < trouble.at:
            server.remember()
        if step == trouble.at:
            server.behind = dict.fromkeys(trouble.on, trouble.by)
            self._lagging_until = server.now + trouble.lasting
        elif step > trouble.at and server.now >= self._lagging_until:
            server.behind, server.past = {}, []

    def _pause_again(self) -> None:
        """Our pause runs out, messages flow, and a person pauses it."""
        for key in self.trouble.on:
            seen = self.server.consumers.get((key.stream, key.name))
            if seen is None or not self.server.paused(seen):
                continue
            if seen.paused_until < self.server.now + PERSON:
                seen.paused_until = self.server.now
                for _ in range(4):
                    self.world.publish()
                    self.server.advance(0.5)
            marked = ConsumerSeen({"stream_name": key.stream, "name": key.name, "config": seen.config})
            self.made = marked.data.get("made") is True
            self.person = self.server.now + PERSON
            self.server.write(PauseConsumer(key, units.format_time(self.person)))

    def go(self, wanted: Desired | Procedure) -> None:
        """Until there is nothing to do, or nothing that may be done."""
        for _ in range(ATTEMPTS):
            if not isinstance(wanted, Desired):
                if self.keeper.run(wanted):
                    return
                continue
            found = planned(wanted, self.server, SYNC, self.keeper.memory)
            if not [change for change in found.changes if change.action is not Action.BLOCKED]:
                return
            ends = len(self.keeper.ends)
            self.keeper.apply(found)
            if len(self.keeper.ends) > ends:
                self.server.advance(1.0)  # it is tried again later
            if self.person and any("paused-by-person" in str(end) for end in self.keeper.ends[ends:]):
                return
        msg = f"no end: {self.keeper.ends[-3:]}"
        raise AssertionError(msg)

    def lift(self) -> str:
        """The person resumes what was paused; what is wrong about that pause."""
        paused = [place for place, one in self.server.consumers.items() if one.paused_until == self.person]
        for stream, name in paused:
            self.server.write(PauseConsumer(Key("Consumer", name, stream), ""))
        gone = not any((key.stream, key.name) in self.server.consumers for key in self.trouble.on)
        return "" if paused or self.made or gone else "a person's pause was lifted"


def taken(
    world: Kept, wanted: Desired | Procedure, trouble: Trouble = UNTROUBLED, memory: Remembered = NO_MEMORY
) -> tuple[Keeper, str]:
    """The way of a copy of the world, and what is wrong at its end."""
    course = _Course(copy.deepcopy(world), trouble, memory)
    keeper = course.keeper
    found = ""
    try:
        course.go(wanted)
        if course.person:
            found = course.lift()
            course.go(wanted)
        if course.server.late:
            course.server.land()
            course.world.settle()
            course.go(wanted)
        course.server.behind = {}
        if trouble.kind == "late":
            course.server.advance(OURS / 10**9)  # a pause of ours that landed runs out
        left = planned(wanted, course.server, SYNC, keeper.memory).changes if isinstance(wanted, Desired) else ()
        found = found or (f"left to do: {[str(change.key) for change in left]}, {keeper.ends[-1:]}" if left else "")
        return keeper, found or course.world.wrong(keeper)
    except (AssertionError, NatsError) as error:
        return keeper, f"broken: {str(error)[:300]}"


def places(keeper: Keeper) -> list[int]:
    """The steps of a way, but one for many of the same waiting: what is before each that has a name of its own, and it."""
    found, before = [0], ""
    for number, title in enumerate(keeper.trail):
        if title and title != before:
            found += [number, number + 1]
            before = title
    return sorted(set(found))


def brought(keeper: Keeper, at: int) -> bool:
    """Whether a step brings an entry that copies at once: an election just then is the server's own affair."""
    title = keeper.trail[at] if at < len(keeper.trail) else ""
    return title.startswith("attach ") or (title.startswith("read ") and " without " in title)


def looks(keeper: Keeper) -> list[int]:
    """The steps that look."""
    return [number for number in places(keeper) if number < len(keeper.trail) and not keeper.trail[number]]


def every_trouble(
    world: Kept, wanted: Desired | Procedure, paused: Sequence[Key], others: Sequence[Key], memory: Remembered = NO_MEMORY
) -> Iterator[Trouble]:
    """Each at every place."""
    smooth, wrong = taken(world, wanted, memory=memory)
    assert not wrong, wrong
    yield from every_lag(smooth, [*paused, *others])
    yield from (Trouble("unheard", number) for number in range(len(smooth.writes)))
    yield from every_late(world, wanted, len(smooth.writes), memory)
    yield from (Trouble("elected", at, (key,)) for at in places(smooth) if not brought(smooth, at) for key in (*paused, *others))
    blind = {at for at, write in zip(smooth.written_at, smooth.writes, strict=True) if isinstance(write, _BLIND)}
    between = [at for at in places(smooth) if at not in blind and not brought(smooth, at)]
    yield from (Trouble("paused again", at, (key,)) for at in between for key in paused)


def every_lag(smooth: Keeper, keys: Sequence[Key]) -> Iterator[Trouble]:
    """Each leader alone, and all together."""
    for at in looks(smooth):
        for on in ((key,) for key in keys):
            yield from (Trouble("lag", at, on, by, lasting) for by in LAGS for lasting in (GLIMPSE, LONG))
        yield from (Trouble("lag", at, tuple(keys), by, lasting) for by in LAGS for lasting in (GLIMPSE, LONG))


def every_late(world: Kept, wanted: Desired | Procedure, writes: int, memory: Remembered = NO_MEMORY) -> Iterator[Trouble]:
    """Each write lands before each later step, or when all is over."""
    for number in range(writes):
        lost, _ = taken(world, wanted, Trouble("late", number, by=10**9), memory)
        steps = [step for step in places(lost) if step > _step_of(lost, number)]
        yield from (Trouble("late", number, by=step) for step in [*steps, 10**9])


def _step_of(keeper: Keeper, write: int) -> int:
    return keeper.written_at[write] if write < len(keeper.written_at) else 0
