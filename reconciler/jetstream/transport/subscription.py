"""What a subscriber gets and holds.

Invariant: a message that could not be handed over is counted, never silently lost.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """A message of a subscription."""

    subject: str
    data: bytes
    headers: Mapping[str, str]
    reply: str = ""


Handler = Callable[[ReceivedMessage], Awaitable[None]]
Taker = Callable[[str, bytes], None]
"""Gets the subject and the data of a message the moment it was read; must be quick, since nothing is read meanwhile."""


@dataclass(slots=True, eq=False)
class Subscription:
    """A subscription that outlives the connections it is made on."""

    subject: str
    handler: Handler
    pending_bytes: int = 64 << 20
    """Beyond this many unhandled bytes messages are dropped."""
    dropped: int = 0
    """How many were dropped since the start."""
    denied: bool = False
    """The server does not let us subscribe to this subject (as of the current connection)."""


@dataclass(slots=True, eq=False)
class Tap:
    """A subscription without a queue: its messages are taken while they are read, and what is not read waits at the server."""

    subject: str
    taker: Taker
    calm: bool = False
    """Rest a moment after what was read, so that a stream of small messages is read in few goes."""
    denied: bool = False
    """The server does not let us subscribe to this subject (as of the current connection)."""
