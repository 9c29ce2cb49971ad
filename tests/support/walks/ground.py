"""The model server of a walk: who publishes, copies and works there, what happens to it, and what became of each message.

Invariant: messages are judged by ids; time goes by here only as far as the clock says.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import dataclass, field

from reconciler.model.identity import Key
from reconciler.procedures.requests import CreateConsumer, PauseConsumer, UpdateStream, Write
from tests.support.walks.courses import Course, Lane
from tests.support.world.deeds import Deeds
from tests.support.world.server import ModelServer
from tests.support.world.state import Consumer, Stream

WORKERS = (Key("Consumer", "c", "W"), Key("Consumer", "e", "W"))
_BUSY = 60
"""So many moments somebody publishes all the time; then now and then."""
_SELDOM = 0.1
_LAGGING = 12
"""Moments that are kept before a leader lags behind them."""
_PERSON = 20 * 10**9
_NEVER = 1 << 62
_NOBODYS = Lane(0, "", "")


@dataclass(frozen=True)
class Published:
    """One message that was stored, or dropped by a stream that keeps nothing."""

    id: str
    subject: str
    at: int


@dataclass
class Ground:
    """Everything but the process."""

    course: Course
    dice: random.Random
    server: ModelServer = field(init=False)
    deeds: Deeds = field(init=False)
    published: dict[str, list[Published]] = field(default_factory=dict)
    """By the stream that is copied from."""
    refused: int = 0
    """Messages that no stream listened to."""
    to_move: list[int] = field(default_factory=list)
    handled: set[int] = field(default_factory=set)
    again: list[int] = field(default_factory=list)
    stored: dict[int, str] = field(default_factory=dict)
    flowing: dict[int, int] = field(default_factory=dict)
    """Since when each lane certainly copies, by its number."""
    late: list[tuple[int, Write]] = field(default_factory=list)
    landed: bool = False
    """One of them has: a pause among them ends by itself."""
    happened: Counter[str] = field(default_factory=Counter)
    excused: str = ""
    """What the servers do twice by themselves."""
    busy: int = 0
    outlasted: bool = False
    """Nobody came back before a pause ran out."""
    quiet: bool = False
    """Nobody publishes any more."""
    _subjects: list[tuple[str, str]] = field(default_factory=list)
    _remembering: int = 0
    _lags_until: int = 0

    def __post_init__(self) -> None:
        self.server = ModelServer(self.course.level)
        lanes = [one for lane in self.course.lanes for one in (lane, lane.at(self.course.changes))]
        self._subjects = sorted({(lane.origin, subject) for lane in lanes for subject in lane.subjects})
        self.deeds = Deeds(self.server)
        if self.course.mood.elected:
            self.server.leaders = Counter()

    # -- time --------------------------------------------------------------------------------------------------------

    def moment(self) -> None:
        """What goes on between any two requests."""
        server = self.server
        server.now = time.time_ns()
        for due, write in [one for one in self.late if one[0] <= server.now]:
            self.late.remove((due, write))
            server.late = [write]
            server.land()
            self.landed = True
        self._publish()
        server.sourcing.pass_time()
        self._work()
        self._lag()

    def begin(self) -> None:
        """A process starts: there is much to do for a while."""
        self.busy = _BUSY

    def _publish(self) -> None:
        if self.quiet or self.dice.random() > (0.5 if self.busy > 0 else _SELDOM):
            return
        self.busy -= 1
        for origin, subject in self._subjects:
            self._to(origin, subject)
        if self.course.worked and "W" in self.server.streams:
            subject = self.dice.choice(("w.a", "w.b"))
            seq = self.server.publish(subject)
            if seq in self.server.streams["W"].messages:
                assert seq is not None
                self.stored[seq] = subject
        if self.course.moves:
            self.refused += self.server.publish(self.dice.choice(("p.a", "p.b", "p.x"))) is None

    def _to(self, origin: str, subject: str) -> None:
        stream = self.server.streams.get(origin)
        seq = self.server.publish(subject) if stream is not None else None
        if stream is not None and seq is not None:
            self.published.setdefault(origin, []).append(Published(stream.id_of(seq), subject, self.server.now))

    def _work(self) -> None:
        for key in WORKERS:
            for _ in range(2):
                seq = self.server.deliver(key)
                if seq is None:
                    break
                if seq in self.handled:
                    self.again.append(seq)
                self.handled.add(seq)
                self.server.acknowledge(key, seq)

    # -- what happens ------------------------------------------------------------------------------------------------

    def executed(self, write: Write) -> None:
        """A request that changes something, on the server."""
        elections = self.server.sourcing.elections
        if isinstance(write, UpdateStream) and write.stream.name in elections:
            before = {source.identity for source in self.server.sourcing.sources.get(write.stream.name, [])}
            self.server.write(write)
            after = {source.identity for source in self.server.sourcing.sources.get(write.stream.name, [])}
            if after - before:
                self.excused = "an entry came while its stream had a new leader"
            return
        self.server.write(write)

    def elect(self) -> None:
        """Some stream or durable gets another leader."""
        places = [(name, "") for name in self.server.streams] + list(self.server.consumers)
        stream, consumer = self.dice.choice(places)
        if stream not in self.server.sourcing.elections:
            self.server.elect(stream, consumer)
            self.happened["elections"] += 1

    def lag(self) -> None:
        """Leaders will show for a while what was some moments ago."""
        if not self._remembering and not self.server.behind:
            self._remembering = _LAGGING
            self.happened["lags"] += 1

    def _lag(self) -> None:
        server = self.server
        if self._remembering:
            self._remembering -= 1
            server.remember()
            if not self._remembering:
                streams = [Key("Stream", name) for name in server.streams]
                keys = streams + [Key("Consumer", name, stream) for stream, name in server.consumers]
                some = keys if self.dice.random() < 0.3 else [self.dice.choice(keys)]
                server.behind = dict.fromkeys(some, self.dice.choice((2, 4, 8)))
                self._lags_until = server.now + self.dice.choice((0, 5 * 10**8))
        elif server.behind and server.now > self._lags_until:
            server.behind, server.past = {}, []

    def meddle(self) -> None:
        """A person does something."""
        lane = self.dice.choice([one for one in self.course.lanes if not one.chosen] or [_NOBODYS])
        deed = self.dice.choice(("pause", "resume", "delete", "wipe", "wipe A"))
        if "A" not in self.server.streams:
            return
        here = [name for name in lane.durables if (lane.origin, name) in self.server.consumers]
        self.happened["deeds"] += 1
        if deed == "pause":
            key = Key("Consumer", self.dice.choice(here), lane.origin) if here else WORKERS[0]
            if (key.stream, key.name) in self.server.consumers and not self.server.paused(self._at(key)):
                self._at(key).pause(self.server.now + _PERSON)
                self.deeds.done.append(f"pause {key}")
            return
        self.deeds.do(deed, Key("Consumer", self.dice.choice(here or lane.durables), lane.origin))

    def _at(self, key: Key) -> Consumer:
        return self.server.consumers[key.stream, key.name]

    # -- what became of it -------------------------------------------------------------------------------------------

    def position(self) -> tuple[int, ...]:
        """Stays the same when nothing moves any more."""
        streams = (number for one in self.server.streams.values() for number in (one.last, len(one.messages)))
        return (*streams, *(one.floor for one in self.server.consumers.values()), len(self.handled), len(self.late))

    def aggregate(self) -> Stream:
        """What copies."""
        return self.server.streams["A"]

    def held(self) -> Counter[str]:
        """How often each id is in the aggregate."""
        stream = self.aggregate()
        return Counter(copy.id for seq, copy in stream.copies.items() if seq in stream.messages)

    def lost(self) -> list[str]:
        """What was published where a lane certainly copied, and is nowhere."""
        held = self.held()
        found = []
        for lane in self.course.lanes:
            since = self._owed_since(lane)
            owed = (one for one in self.published.get(lane.origin, ()) if one.subject in lane.subjects and one.at >= since)
            found += [one.id for one in owed if lane.origin not in self.deeds.lost and not held[one.id]]
        if self.course.worked:
            wanted = {f"w.{one}" for one in self.course.wishes[-1].worked if one.isalpha()}
            found += [f"W:{seq}" for seq, text in self.stored.items() if text in wanted and seq not in self.handled]
        return found

    def _owed_since(self, lane: Lane) -> int:
        """An interest stream drops what comes before its reader."""
        return self.flowing.get(lane.number, _NEVER) if lane.retention == "interest" and lane.since else 0

    def twice(self) -> list[str]:
        """What is in the aggregate more often than once, or was handled and given out again for no reason."""
        found = [one for one, count in self.held().items() if count > 1 and _origin(one) not in self.deeds.again]
        moved = len({wish.worked for wish in self.course.wishes}) > 1
        return found + ([] if moved or self.outlasted else [f"W:{seq}" for seq in self.again])

    def stuck(self) -> list[str]:
        """What an origin still holds though it was copied."""
        held = self.held()
        found = []
        for name in {lane.origin for lane in self.course.lanes} - self.deeds.left:
            stream = self.server.streams[name]
            if stream.retention != "limits":
                found += [stream.id_of(seq) for seq in stream.messages if held[stream.id_of(seq)]]
        return found

    def disordered(self) -> list[str]:
        """Identities whose copies did not come in the order of their origin."""
        stream, found = self.aggregate(), dict[str, list[int]]()
        for seq in sorted(stream.messages):
            if seq in stream.copies:
                found.setdefault(stream.copies[seq].identity, []).append(stream.copies[seq].seq)
        origins = {name: one for name, one in found.items() if name.split(" ")[0].split(":")[0] not in self.deeds.again}
        return [name for name, seqs in origins.items() if seqs != sorted(seqs)]


def _origin(one: str) -> str:
    return one.partition("@")[0]


def harmless_late(write: Write) -> bool:
    """What may land at any time."""
    return isinstance(write, CreateConsumer) or (isinstance(write, PauseConsumer) and bool(write.until))
