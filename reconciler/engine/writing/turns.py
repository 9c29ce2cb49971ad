"""Whose turn it is to change what exists: one at a time in the whole process, whatever it is that changes.

Every update replaces a whole configuration, so the one that a server executes late takes back what somebody else has set since;
with one on its way, at most one can be late.

| rank | who |
|---|---|
| `STILL` | a step of a procedure that holds a consumer still, or lies behind its point of no return |
| `REPAIR` | what others changed, and what a person asks for |
| `STEP` | other steps of procedures |
| `COMMIT` | what the manifests ask for |

Invariant: nobody at the head of a line is passed over more than eight times; of ten turns at most one is a slow one, unless
nobody else waits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from enum import IntEnum

from reconciler.engine.writing.alarms import Alarms

_PATIENCE = 6
"""How often the head of a line is passed over; with two other lines that have waited as long, eight times."""
_BETWEEN_SLOW = 9
"""Turns between two slow ones."""


class Rank(IntEnum):
    """Who goes first."""

    STILL = 0
    REPAIR = 1
    STEP = 2
    COMMIT = 3


_RANKS = tuple(Rank)
_PROMPT = 1.0
"""Seconds for which a change may keep the turn while it waits for its answer."""


class Turn:
    """The right to look, judge and send; to be given back once, later times change nothing."""

    __slots__ = ("_turns",)

    def __init__(self, turns: Turns) -> None:
        self._turns: Turns | None = turns

    def give_back(self) -> None:
        """Somebody else's turn."""
        turns, self._turns = self._turns, None
        if turns is not None:
            turns.end()


class Turns:
    """Hands out one turn after the other."""

    def __init__(self) -> None:
        self._lines: list[deque[asyncio.Future[None]]] = [deque() for _ in _RANKS]
        """By rank."""
        self._passed_over = [0 for _ in _RANKS]
        self._slow: deque[asyncio.Future[None]] = deque()
        self._since_slow = _BETWEEN_SLOW
        self._taken = False
        self.eased = asyncio.Event()
        """Set when a turn ends."""

    @property
    def wanted(self) -> bool:
        """Whether somebody has a turn, or waits for one: then somebody else has it."""
        return self._taken

    async def take(self, rank: Rank, *, slow: bool = False) -> Turn:
        """Returns when it is the caller's turn; a slow one is for who is known to need long."""
        waiting = asyncio.get_running_loop().create_future()
        line = self._slow if slow else self._lines[rank]
        line.append(waiting)
        self._next()
        try:
            await waiting
        except asyncio.CancelledError:
            if not waiting.cancelled():
                self.end()  # it was just handed over
            raise
        return Turn(self)

    def end(self) -> None:
        """The turn is over."""
        self._taken = False
        self._next()
        self.eased.set()

    def _next(self) -> None:
        """Hands over the turn, if it is free and somebody waits."""
        line = None if self._taken else self._line()
        if line is None:
            return
        self._taken = True
        line.popleft().set_result(None)

    def _line(self) -> deque[asyncio.Future[None]] | None:
        """The line whose head is next."""
        for line in (self._slow, *self._lines):
            while line and line[0].cancelled():
                line.popleft()
        ranks = [rank for rank in _RANKS if self._lines[rank]]
        if self._slow and (not ranks or self._since_slow >= _BETWEEN_SLOW):
            self._since_slow = 0
            return self._slow
        if not ranks:
            return None
        chosen = self._chosen(ranks) if len(ranks) > 1 else ranks[0]
        for rank in ranks:
            self._passed_over[rank] = 0 if rank is chosen else self._passed_over[rank] + 1
        self._since_slow += 1
        return self._lines[chosen]

    def _chosen(self, ranks: list[Rank]) -> Rank:
        """Whose turn it is of several."""
        longest = max(ranks, key=lambda rank: (self._passed_over[rank], -rank))
        return longest if self._passed_over[longest] >= _PATIENCE else ranks[0]


class Elsewhere:
    """When the answer to a change takes long, its turn goes on to whoever changes something in another domain."""

    __slots__ = ("_alarms", "_domain", "_late", "_turn", "due")
    due: float

    def __init__(self, alarms: Alarms, late: dict[str, asyncio.Event], domain: str, turn: Turn) -> None:
        self._alarms = alarms
        self._late = late
        self._domain = domain
        self._turn = turn

    def __enter__(self) -> None:
        self._alarms.set(self, _PROMPT)

    def __exit__(self, *_: object) -> None:
        self._alarms.put_away(self)
        if answered := self._late.pop(self._domain, None):
            answered.set()

    def ring(self) -> None:
        """It takes long."""
        self._late[self._domain] = asyncio.Event()
        self._turn.give_back()
