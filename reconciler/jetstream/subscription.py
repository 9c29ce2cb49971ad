"""What a subscriber gets and holds.

Invariant: a message that could not be handed over is counted, never silently lost.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a subscription."""

    subject: str
    data: bytes
    headers: Mapping[str, str]
    reply: str = ""


Handler = Callable[[Message], Awaitable[None]]


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
