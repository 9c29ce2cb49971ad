"""Looks at the sources and mirrors of declared streams: INFO of the stream and of each durable; of an origin where needed.

Invariant: reads only, a few at a time, and each has to answer soon: what does not is known to be silent, and holds up nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import structlog

from reconciler.engine.ports import LiveReader
from reconciler.errors import AccessDenied, NatsError
from reconciler.model import units
from reconciler.model.desired import Desired
from reconciler.model.flow import copies
from reconciler.model.identity import Key
from reconciler.model.kinds.common import State
from reconciler.model.marker import read_marker
from reconciler.model.seen.resource import mark_of
from reconciler.model.sourcing import identity_of
from reconciler.procedures.requests import Absent, ConsumerInfo, Copied, LastCopied, Read, StreamInfo
from reconciler.sources.health import NO_HISTORY, PATIENCE, History, SourceHealth, SourceState, judge
from reconciler.sources.incidents import Incident, Trail, leap, wants_origin
from reconciler.sources.look import UNASKED, Answer, Entrance, Look, Position, entrances
from reconciler.sources.symptoms import found

log = structlog.get_logger(__name__)

SIDE_BY_SIDE = 64
"""Small requests; and a domain at the end of a dead line keeps as many for as long as `ANSWER_SECONDS`."""
ANSWER_SECONDS = 2.0
"""A domain that does not answer within that time is not there for now."""


@dataclass(frozen=True, slots=True)
class WatchedSource:
    """An entry, and what is known of it."""

    entrance: Entrance
    history: History = NO_HISTORY
    incidents: tuple[Incident, ...] = ()
    """What this look has brought to light."""
    missing: bool = False
    """The server says that its durable is not there."""
    refused: str = ""
    """Why the stream that has it may not be looked at."""

    @property
    def name(self) -> tuple[Key, str]:
        """Tells one entry from another."""
        return self.entrance.aggregate, identity_of(self.entrance.entry)


Known = Mapping[tuple[Key, str], WatchedSource]


@dataclass
class Looks:
    """Looks through one reader."""

    reader: LiveReader
    now: Callable[[], int]
    procedure_of: Callable[[Key], str] = lambda _: ""
    """The procedure that owns a live key; empty: none."""
    patience: int = PATIENCE
    _room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(SIDE_BY_SIDE))

    async def everything(self, desired: Desired, before: Known, level: int) -> dict[tuple[Key, str], WatchedSource]:
        """One look at all sources, those of before among them that nobody could see this time."""
        found_ = await asyncio.gather(*(self._one(desired, key, before, level) for key in aggregates(desired)))
        return {source.name: source for sources in found_ for source in sources}

    async def _one(self, desired: Desired, key: Key, before: Known, level: int) -> Iterable[WatchedSource]:
        """One stream; a fault about it leaves the others alone, and nobody knows how its sources fare."""
        try:
            return await self._stream(desired, key, before, level)
        except Exception:
            log.exception("source.crashed", stream=str(key))
            return [_unknown(source) for source in before.values() if source.entrance.aggregate == key]

    async def _stream(self, desired: Desired, key: Key, before: Known, level: int) -> Iterable[WatchedSource]:
        stream = await self._answer(StreamInfo(key), refusal_counts=True)
        declared = desired.streams[key].config
        there = entrances(desired, key, stream.info["config"] if stream.info else declared)
        return await asyncio.gather(*(self._entry(entrance, stream, before, level) for entrance in there))

    async def _entry(self, entrance: Entrance, stream: Answer, before: Known, level: int) -> WatchedSource:
        source = WatchedSource(entrance)
        known = before.get(source.name, source)
        durable = await self._answer(ConsumerInfo(entrance.durable)) if entrance.durable and stream.info else UNASKED
        look = Look(
            at=self.now(),
            entrance=entrance,
            stream=stream,
            durable=durable,
            level=level,
            procedure=self._owner(entrance, durable),
        )
        position = Position.of(durable.info) if durable.info else None
        odd = found(look, known.history.stuck_since, 0) is not None
        wanted = odd or wants_origin(known.history.trail, position, mirror=entrance.mirror)
        answers = stream.info and not durable.silence  # who is silent about the one is so about the other
        if entrance.origin and answers and wanted:
            look = replace(look, origin=await self._answer(StreamInfo(entrance.origin)))
        if _may_be_another(known.history.trail, look):
            copied = await self._copied(entrance)
            look = replace(look, copied=(copied.seq, copied.time)) if copied else look
        if start := leap(known.history.trail, look):
            look = replace(look, stored_below=await self._stored_below(entrance, start))
        history, incidents = judge(look, known.history, self.patience)
        return WatchedSource(entrance, history, incidents, durable.gone, stream.silence if stream.refused else "")

    async def _stored_below(self, entrance: Entrance, below: int) -> int | None:
        """The last origin sequence before `below` that the stream has stored; None where that cannot be told."""
        copied = await self._copied(entrance, below)
        return copied.seq if copied and (copied.seq or copied.complete) else None

    async def _copied(self, entrance: Entrance, below: int = 0) -> Copied | None:
        identity = "" if entrance.mirror else identity_of(entrance.entry)
        try:
            async with self._room, asyncio.timeout(ANSWER_SECONDS):
                copied = await self.reader.read(LastCopied(entrance.aggregate, identity, below))
        except (TimeoutError, NatsError):
            return None
        return copied if isinstance(copied, Copied) else None

    def _owner(self, entrance: Entrance, durable: Answer) -> str:
        """What works on it: a procedure of this process, or of another one that left its journal there."""
        journal = read_marker(durable.info["config"].get("metadata"), mark_of(durable.info)).journal if durable.info else None
        keys = (entrance.aggregate, *((entrance.durable,) if entrance.durable else ()))
        return next(filter(None, map(self.procedure_of, keys)), journal.name if journal else "")

    async def _answer(self, read: Read, *, refusal_counts: bool = False) -> Answer:
        """What may not be asked beside the stream itself is done without: that is no silence of the other side."""
        try:
            async with self._room, asyncio.timeout(ANSWER_SECONDS):
                fact = await self.reader.read(read)
        except TimeoutError:
            return Answer(silence=f"no answer within {ANSWER_SECONDS:g} s")
        except AccessDenied as error:
            return Answer(silence=str(error), refused=True) if refusal_counts else UNASKED
        except NatsError as error:
            return Answer(silence=str(error))
        if isinstance(fact, Absent):
            return Answer(gone=True)
        return Answer(fact) if isinstance(fact, dict) else UNASKED


def _may_be_another(trail: Trail, look: Look) -> bool:
    """Whether it is worth to ask what was copied before the first look: most origins are older than what copies them."""
    origin, stream = look.origin.info, look.stream.info
    if trail.origin_made or origin is None or stream is None or look.entrance.mirror or look.procedure:
        return False
    return units.parse_time(origin["created"]) > units.parse_time(stream["created"])


def _unknown(source: WatchedSource) -> WatchedSource:
    health = SourceHealth(state=SourceState.UNKNOWN, message="the last look crashed; the log says more")
    return WatchedSource(source.entrance, replace(source.history, health=health))


def aggregates(desired: Desired) -> list[Key]:
    """The declared streams that copy from others."""
    there = ((key, one) for key, one in desired.streams.items() if one.intent.state is not State.ABSENT and copies(one.wire))
    return [key for key, one in there if one.config.get("sources") or one.config.get("mirror")]
