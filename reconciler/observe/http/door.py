"""Who is connected over HTTP, how many, and for how long: nobody keeps others out by holding on to connections.

Invariants: never more connections than `MOST`; a new one is always let in, and when there is no room for it the one that has
kept us waiting longest goes. So a probe, which is answered in a millisecond, gets through whatever the others hold on to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import cast

import structlog

MOST = 128
ASKING_SECONDS = 10.0
"""From the first byte of a request, or from the beginning of a connection, to the end of the headers."""
ANSWERED_SECONDS = 120.0
"""From the end of the headers to the last byte of the answer."""
IDLE_SECONDS = 75.0

log = structlog.get_logger(__name__)


@dataclass
class Door:
    """Makes the protocols of a server's connections, and lets them in."""

    handler: Callable[[], asyncio.Protocol]
    """Speaks HTTP on one connection."""
    most: int = MOST
    asking_seconds: float = ASKING_SECONDS
    guests: dict[asyncio.BaseTransport, Guest] = field(default_factory=dict)
    """In the order in which they came."""
    turned_out: int = 0
    """How many had to make room since the last word about it."""

    def __call__(self) -> Guest:
        """For one connection."""
        return Guest(self, self.handler())

    @contextmanager
    def answering(self, transport: asyncio.BaseTransport | None) -> Iterator[None]:
        """Around answering a request whose headers are read."""
        guest = self.guests.get(transport) if transport is not None else None
        if guest is None:
            yield
            return
        guest.wait(ANSWERED_SECONDS, answered=True)
        try:
            yield
        finally:
            guest.wait(IDLE_SECONDS)

    def let_in(self, guest: Guest, transport: asyncio.BaseTransport) -> None:
        """Makes room for one."""
        if len(self.guests) >= self.most:
            longest = min(self.guests.values(), key=lambda one: (one.answered, one.since))
            self.turned_out += 1
            if self.turned_out == 1:
                asyncio.get_running_loop().call_later(60.0, self._tell)
                log.warning("http.full", connections=len(self.guests))
            longest.turn_out()
        self.guests[transport] = guest

    def _tell(self) -> None:
        if self.turned_out > 1:
            log.warning("http.turned_out", connections=self.turned_out, seconds=60)
        self.turned_out = 0


class Guest(asyncio.Protocol):
    """One connection: passes on what it hears, and watches the time."""

    def __init__(self, door: Door, handler: asyncio.Protocol) -> None:
        self.since = 0.0
        """Since when it does what it does now."""
        self.answered = False
        """Its request is being answered: it waits for us, and not we for it."""
        self._door = door
        self._handler = handler
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._idle = False

    def wait(self, seconds: float, *, answered: bool = False) -> None:
        """Something else is waited for now, and not for longer than that."""
        loop = asyncio.get_running_loop()
        self.since, self.answered, self._idle = loop.time(), answered, seconds == IDLE_SECONDS
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._timer = loop.call_later(seconds, self.turn_out)

    def turn_out(self) -> None:
        """Ends the connection at once."""
        if self._transport is not None:
            self._door.guests.pop(self._transport, None)
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody comes in."""
        self._transport = cast("asyncio.Transport", transport)
        self._door.let_in(self, transport)
        self.wait(self._door.asking_seconds)
        self._handler.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """More of a request, or the first of it."""
        if self._idle:
            self.wait(self._door.asking_seconds)
        self._handler.data_received(data)

    def eof_received(self) -> bool | None:
        """Nothing more comes."""
        return self._handler.eof_received()

    def pause_writing(self) -> None:
        """What was written is not read."""
        self._handler.pause_writing()

    def resume_writing(self) -> None:
        """It is read again."""
        self._handler.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """It has ended."""
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._door.guests.pop(self._transport, None)
        self._transport = None
        self._handler.connection_lost(exc)
