"""What servers, or anybody in their name, publish unasked: read frugally, so that no flood of it costs us anything else.

Invariant: a connection of its own, no queue, and never more than the budget for long (unless it is told to stay on). What
was more than the budget is dropped with its connection, wherever it waits.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

import structlog

from reconciler.errors import NatsError
from reconciler.jetstream.transport.connection import Connection
from reconciler.jetstream.transport.settings import ConnectionSettings
from reconciler.jetstream.transport.subscription import Tap

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much of it is borne, and for how long it is left alone when it was more."""

    budget: float = 3_000.0
    """Messages a second."""
    window: float = 2.0
    """Seconds over which they are counted."""
    retry: float = 60.0
    trial: float = 3.0


def _nothing(_: str) -> None:
    """Nobody has to be told."""


def _untold(_: str, __: float) -> None:
    """Nobody has to be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """Who is told, in the middle of reading: all of these must be quick."""

    take: Callable[[str, bytes], bool]
    """A message; whether it counts."""
    lost: Callable[[str], None]
    """Something may have gone unheard, for this reason."""
    state: Callable[[str, float], None] = _untold
    """The state is now `on`, `off`, `shed` or `denied`, at so many messages a second."""
    deaf: Callable[[str], None] = _nothing
    """Nothing of it was heard until now, or is from now on: look yourself."""


@dataclass(kw_only=True)
class Overhearing:
    """Hears some subjects, and lets them be while they are too much."""

    what: str
    """For people: `the API audit`."""
    settings: ConnectionSettings
    name: str
    subjects: Iterable[str]
    listener: Listener
    limits: Limits
    stays: bool = False
    """However much it is."""
    state: str = field(default="", init=False)
    rate: float = field(default=0.0, init=False)
    """Messages a second, at the last count."""
    heard: int = field(default=0, init=False)
    """How many messages there were since the start."""
    _task: asyncio.Task[None] | None = field(default=None, init=False)
    _first: tuple[Connection | None, list[Tap]] | None = field(default=None, init=False)
    _enough: float = field(default=0.0, init=False)
    """With so many heard, nobody has to wait for the end of the window."""
    _full: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    async def start(self, *, at_once: bool = False) -> None:
        """Listens as soon as it can; `at_once`: when this returns, if we are let in."""
        self._first = await self._connected() if at_once else None
        self._task = asyncio.get_running_loop().create_task(self._run(), name=self.name)
        self._task.add_done_callback(_report)

    async def stop(self) -> None:
        """Ends for good."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._first is not None and self._first[0] is not None:  # it ended before it began
            await self._first[0].close()

    def tell(self, state: str) -> None:
        """It is like that now."""
        if state != self.state:
            self.state = state
            self.listener.state(state, self.rate)

    async def _run(self) -> None:
        shed = False
        first, self._first = self._first, None
        connection, taps = first or await self._connected()
        if first is None:
            self.listener.deaf(f"{self.what} are heard from now on")
        while True:
            if connection is not None:
                async with connection:
                    if not shed or await self._bearable():
                        shed = False
                        await self._listen(connection, taps)
                shed = True
                if self.state != "shed":
                    self.tell("shed")
                    log.warning("overhearing.shed", what=self.what, rate=round(self.rate), budget=self.limits.budget)
                self.listener.deaf(f"{self.what}: more than {self.limits.budget:g} messages a second")
            await asyncio.sleep(self.limits.retry)
            connection, taps = await self._connected()

    async def _connected(self) -> tuple[Connection | None, list[Tap]]:
        """A connection that hears, or that will when there is a server; None: we are not let in."""
        try:
            connection = await Connection.start(self.settings, self.name)
        except NatsError as error:
            log.warning("overhearing.refused", what=self.what, error=str(error))
            self.tell("denied")
            return None, []
        connection.on_state_change(self._on_state_change)
        try:
            taps = [await connection.tap(subject, self._take, calm=True) for subject in self.subjects]
            with suppress(NatsError):  # lost meanwhile: it is subscribed again on the next link
                await connection.flush()
        except BaseException:
            await connection.close()
            raise
        return connection, taps

    async def _bearable(self) -> bool:
        """Whether a trial stays within the budget."""
        await self._measure(self.limits.trial)
        if self.rate > self.limits.budget:
            return False
        self.tell("on")
        self.listener.lost(f"{self.what}: not listened to while it was too much")
        return True

    async def _listen(self, connection: Connection, taps: list[Tap]) -> None:
        """Until it is too much."""
        while True:
            if any(tap.denied for tap in taps):
                self.tell("denied")
            else:
                self.tell("on" if connection.connected else "off")
            await self._measure(self.limits.window)
            if not self.stays and self.rate > self.limits.budget:
                return

    async def _measure(self, seconds: float) -> None:
        before, started = self.heard, time.monotonic()
        self._enough = before + self.limits.budget * seconds
        self._full.clear()
        waiting = asyncio.sleep(seconds) if self.stays else asyncio.wait_for(self._full.wait(), seconds)
        with suppress(TimeoutError):
            await waiting
        self.rate = (self.heard - before) / (time.monotonic() - started)

    def _take(self, subject: str, data: bytes) -> None:
        if self.listener.take(subject, data):
            self.heard += 1
            if self.heard > self._enough:
                self._full.set()

    def _on_state_change(self, connected: bool) -> None:  # noqa: FBT001 - a StateListener
        if self.state == "shed":
            return
        if not connected:
            self.tell("off")
        else:
            self.listener.lost(f"{self.what}: its connection was away")


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("overhearing.failed", exc_info=task.exception())
