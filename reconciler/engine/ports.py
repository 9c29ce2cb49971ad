"""What the engine needs from outside: one small Protocol per neighbour.

Invariant: the engine talks to JetStream, time and whoever watches only through these; nothing here has behaviour.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from reconciler.engine.apply.outcome import Outcome
from reconciler.model.identity import Key
from reconciler.model.seen.live import Live, LiveConsumer, Patch
from reconciler.model.seen.wanted import Wanted
from reconciler.procedures.requests import Fact, Read, Write

if TYPE_CHECKING:
    from reconciler.engine.writing.writes import Writes


class LiveReader(Protocol):
    """Sees JetStream; never changes it. Implemented by `jetstream.read.reader.JetStreamReader`."""

    async def snapshot(self, wanted: Wanted) -> Live:
        """The live state of all that is wanted; raises NatsError when nothing at all could be seen."""
        ...

    async def refresh(self, live: Live, keys: Collection[Key]) -> Patch:
        """What these keys look like now, for `live.patched`; what does not answer is unknown in it, and raises nothing."""
        ...

    async def read(self, read: Read) -> Fact:
        """One answer; `Absent` only when the server said so."""
        ...

    async def changed(self, consumer: Key, before: LiveConsumer) -> Fact | None:
        """What is said of a consumer; None: the very same as before, so that nothing has to be worked out again."""
        ...


class LiveWriter(Protocol):
    """Changes JetStream, one request at a time. Implemented by `jetstream.writer.JetStreamWriter`."""

    def write(self, write: Write, level: int = 0) -> Awaitable[dict[str, Any]]:
        """The server's answer (with the echoed `config` for creates and updates); raises NatsError.

        With a `level`, the server is asked to refuse when its own API level is lower.
        """
        ...

    def fits(self, write: Write, level: int = 0) -> None:
        """Raises TooLarge for what the server does not take."""
        ...


class Clock(Protocol):
    """Time as data."""

    def now(self) -> int:
        """Nanoseconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Seconds that never jump: for deadlines and durations."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Returns that much later."""
        ...


class Lease(Protocol):
    """The right to write. Implemented by `jetstream.leading.lease.KvLease`."""

    def check(self) -> None:
        """Raises LeaseLost when the right may have ended; called right before every write."""
        ...


class Observer(Protocol):
    """Whoever wants to see the work while it is done: progress lines, logs, metrics."""

    def stepped(self, key: Key, title: str) -> None:
        """A procedure took a step."""
        ...

    def finished(self, outcome: Outcome) -> None:
        """A change came to its end."""
        ...


@dataclass(frozen=True, slots=True)
class Ports:
    """All neighbours of one pass."""

    reader: LiveReader
    writes: Writes
    lease: Lease
    clock: Clock
    observer: Observer
