"""How streams of the model server copy from each other, as it was measured on real servers.

A stream keeps, for ever, how far it got under each identity of an entry. An entry reads the origin itself (from a stream with
limits), through a durable `JS_SRC_*` that the server makes (from one with interest or a workqueue), or through the durable it
names. What a durable delivered is stored at once and acknowledged only at the next beat. What an entry had in its queue when
it was taken away is stored a while after the answer.

When the stream has got another leader, nothing is copied until that attaches every entry anew, a moment later, which sends each
durable back to its ack floor. An entry that comes meanwhile is attached at once, and then again: what was stored through it in
between is not known any more.

Invariant: nothing is copied but by `pass_time`, and each entry copies at most its quota in one.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any, Protocol

from reconciler.model import subjects, units
from reconciler.model.identity import Key
from reconciler.model.sourcing import copied_subjects, identity_of
from tests.support.world.state import Consumer, Copy, Stream, matches

BEAT = 10**9
"""Flow control is answered, and so acknowledged, with the heartbeat."""
LATE = BEAT // 2
"""What was queued when an entry was taken away is stored this long after."""
NEVER_HEARD = -1
RETRIED = {True: 5 * BEAT, False: 40 * BEAT}
"""How long a stream waits for a durable that was not there, by whether the server is of 2.15."""
ELECTED = BEAT
_MADE = "JS_SRC_"


class Server(Protocol):
    """What sourcing needs of the model server."""

    level: int
    now: int
    streams: dict[str, Stream]
    consumers: dict[tuple[str, str], Consumer]

    def deliver(self, key: Key) -> int | None:
        """The next message of a consumer."""
        ...

    def acknowledge(self, key: Key, seq: int) -> None:
        """One message is done with."""
        ...

    def forget_unneeded(self, name: str) -> None:
        """An interest stream drops what no consumer needs."""
        ...


@functools.cache
def _consumer(stream: str, name: str) -> Key:
    return Key("Consumer", name, stream)


@dataclass
class Source:
    """One entry at work."""

    entry: dict[str, Any]
    since: int
    deliver: str = ""
    """Where its durable has to deliver; what it was attached with, whatever the configuration says by now."""
    made: str = ""
    """The durable that the server made for it."""
    cursor: int = 1
    """Where it reads on, without a durable."""
    attached: bool = False
    heard: int = NEVER_HEARD
    _known: tuple[dict[str, Any], str] | None = None

    @property
    def identity(self) -> str:
        """What it is remembered by; asked for all the time, and reckoned once for each entry."""
        if self._known is None or self._known[0] is not self.entry:
            self._known = self.entry, identity_of(self.entry)
        return self._known[1]

    @property
    def durable(self) -> Key | None:
        """The consumer it reads through."""
        name = self.made or (self.entry.get("consumer") or {}).get("name", "")
        return _consumer(self.entry["name"], name) if name else None


@dataclass
class Late:
    """A copy that waits in the queue of an entry that is gone."""

    due: int
    identity: str
    copied: tuple[str, int, str]


@dataclass
class Election:
    """A stream that has got another leader, which has not attached its entries yet."""

    due: int
    known: dict[tuple[str, int], int]
    """How far it got under each identity when that was elected."""


@dataclass
class Sourcing:
    """All entries of all streams of a model server."""

    server: Server
    quota: int = 3
    """How many messages an entry copies at a time."""
    queued: int = 3
    """How many are in its queue when it is taken away."""
    sources: dict[str, list[Source]] = field(default_factory=dict)
    late: dict[str, list[Late]] = field(default_factory=dict)
    beaten: int = 0
    elections: dict[str, Election] = field(default_factory=dict)
    electing: int = ELECTED
    """How long a new leader takes to attach the entries."""
    hasty: bool = True
    """An entry that comes meanwhile is attached at once, and then again."""

    # -- elections ---------------------------------------------------------------------------------------------------

    def elect(self, name: str) -> None:
        """A stream gets another leader."""
        self.elections[name] = Election(self.server.now + self.electing, dict(self.server.streams[name].remembered))
        for source in self.sources.get(name, []):
            source.attached = False

    def _elected(self) -> None:
        for name, election in list(self.elections.items()):
            if election.due > self.server.now:
                continue
            del self.elections[name]
            if name not in self.server.streams:
                continue
            self.server.streams[name].remembered = election.known
            for source in self.sources.get(name, []):
                made = self.server.consumers.get((source.entry["name"], source.made)) if source.made else None
                if made is None:
                    self._attach(name, source)
                else:
                    made.rewind()
                    source.attached = True

    # -- configuration -----------------------------------------------------------------------------------------------

    def configured(self, name: str) -> None:
        """The stream has got these entries: those with a known identity stay as they are."""
        wanted = {identity_of(entry): entry for entry in self.server.streams[name].config.get("sources") or ()}
        for source in self.sources.get(name, []):
            if source.identity not in wanted:
                self._detach(name, source)
        kept = [source for source in self.sources.get(name, []) if source.identity in wanted]
        known = {source.identity for source in kept}
        self.sources[name] = kept + [Source(entry, self.server.now) for key, entry in wanted.items() if key not in known]
        for source in self.sources[name]:
            source.entry = wanted[source.identity]
            if source.identity not in known and (self.hasty or name not in self.elections):
                self._attach(name, source)

    def deleted(self, name: str) -> None:
        """The stream is gone."""
        for source in self.sources.pop(name, []):
            self._drop_made(source)
        self.late.pop(name, None)

    def bound(self, key: Key) -> bool:
        """Whether a stream listens to what a consumer delivers."""
        consumer = self.server.consumers.get((key.stream, key.name))
        everything = [source for sources in self.sources.values() for source in sources]
        return any(source.durable == key and self._hears(source, consumer) for source in everything)

    def _hears(self, source: Source, consumer: Consumer | None) -> bool:
        if consumer is None or not source.attached or consumer.config.get("ack_policy") != "flow_control":
            return False
        return bool(consumer.config.get("deliver_subject") == source.deliver)

    def _attach(self, name: str, source: Source) -> None:
        origin = self.server.streams.get(source.entry["name"])
        source.since = self.server.now
        if origin is None:
            return
        start = self._start(self.server.streams[name], origin, source)
        if "consumer" in source.entry:
            self._attach_durable(source)
        elif origin.retention == "limits" or self.server.level < 4:
            source.attached, source.cursor = True, start
        else:
            self._make_durable(name, source, start)

    def _attach_durable(self, source: Source) -> None:
        """The server resets the consumer to its ack floor, and listens from then on."""
        source.deliver = source.entry["consumer"]["deliver_subject"]
        key = source.durable
        consumer = self.server.consumers.get((key.stream, key.name)) if key else None
        if consumer is None:
            return
        source.attached = True
        if self._hears(source, consumer):
            consumer.rewind()

    def _make_durable(self, name: str, source: Source, start: int) -> None:
        source.made = f"{_MADE}{identity_of({'name': name, 'external': {'api': source.identity}})[-12:-4]}"
        source.deliver, source.attached = f"$JS.S.{source.made}", True
        chosen = copied_subjects(source.entry)
        config = {
            "durable_name": source.made,
            "name": source.made,
            "ack_policy": "flow_control",
            "deliver_subject": source.deliver,
            "sourcing": True,
            "metadata": {"_nats.src.stream": name},
            **({"filter_subjects": list(chosen)} if chosen else {}),
        }
        self.server.consumers[source.entry["name"], source.made] = Consumer(config, start, start - 1, start - 1)

    def _start(self, stream: Stream, origin: Stream, source: Source) -> int:
        """Behind what is remembered, else where the entry says."""
        entry = source.entry
        remembered = stream.remembered.get(self._remembered_as(source.identity, origin), 0)
        if remembered:
            return max(remembered + 1, origin.first)
        if entry.get("opt_start_time"):
            since = units.parse_time(entry["opt_start_time"])
            return min((seq for seq, (_, time) in origin.messages.items() if time >= since), default=origin.last + 1)
        return max(entry.get("opt_start_seq") or 1, origin.first)

    def _detach(self, name: str, source: Source) -> None:
        taken = [one for one in (self._take(source) for _ in range(self.queued)) if one]
        due = self.server.now + LATE
        self.late.setdefault(name, []).extend(Late(due, source.identity, one) for one in taken)
        source.attached = False
        self._drop_made(source)

    def _drop_made(self, source: Source) -> None:
        name = source.entry["name"]
        gone = self.server.consumers.pop((name, source.made), None)
        if gone:
            self.server.forget_unneeded(name)

    # -- copying -----------------------------------------------------------------------------------------------------

    def pass_time(self) -> None:
        """What happens by now: late copies arrive, deliveries are acknowledged, and messages flow."""
        self._store_late()
        self._elected()
        if self.server.now - self.beaten >= BEAT:
            self.beaten = self.server.now
            self._acknowledge()
        for name, sources in list(self.sources.items()):
            for source in sources:
                self._retry(name, source)
                self._copy(name, source)
                if self._alive(source):
                    source.heard = self.server.now

    def _copy(self, name: str, source: Source) -> None:
        for _ in range(self.quota):
            taken = self._take(source)
            if taken is None:
                return
            self._store(name, source.identity, taken)

    def _take(self, source: Source) -> tuple[str, int, str] | None:
        """The next message of the origin: its subject, its sequence and its id."""
        origin = self.server.streams.get(source.entry["name"])
        seq = self._next(source, origin) if origin and self._alive(source) else None
        if origin is None or seq is None:
            return None
        return _transformed(source.entry, origin.messages[seq][0]), seq, origin.id_of(seq)

    def _next(self, source: Source, origin: Stream) -> int | None:
        if source.durable:
            return self.server.deliver(source.durable)
        if source.cursor > origin.last:
            return None
        chosen, messages = tuple(copied_subjects(source.entry) or (">",)), origin.messages
        ahead = (seq for seq in range(source.cursor, origin.last + 1) if seq in messages and matches(messages[seq][0], chosen))
        seq = next(ahead, None)
        source.cursor = origin.last + 1 if seq is None else seq + 1
        return seq

    def _store(self, name: str, identity: str, copied: tuple[str, int, str]) -> None:
        """What is known under this identity already is not stored again."""
        stream, origin = self.server.streams[name], self.server.streams.get(identity.partition(" ")[0].partition(":")[0])
        subject, seq, text = copied
        place = self._remembered_as(identity, origin)
        if seq > stream.remembered.get(place, 0):
            stream.remembered[place] = seq
            stream.last += 1
            stream.messages[stream.last] = (subject, self.server.now)
            stream.copies[stream.last] = Copy(identity, seq, text)

    def _remembered_as(self, identity: str, origin: Stream | None) -> tuple[str, int]:
        """Servers of 2.15 tell an origin from an earlier one of the same name."""
        return identity, origin.born if origin and self.server.level > 4 else 0

    def _store_late(self) -> None:
        for name, waiting in self.late.items():
            for one in waiting:
                if one.due <= self.server.now:
                    self._store(name, one.identity, one.copied)
            self.late[name] = [one for one in waiting if one.due > self.server.now]

    def _acknowledge(self) -> None:
        for (stream, name), consumer in list(self.server.consumers.items()):
            key = Key("Consumer", name, stream)
            if self.bound(key):
                for seq in sorted(consumer.pending):
                    self.server.acknowledge(key, seq)

    def _alive(self, source: Source) -> bool:
        key = source.durable
        if key is None:
            return source.attached and source.entry["name"] in self.server.streams
        return self._hears(source, self.server.consumers.get((key.stream, key.name)))

    def _retry(self, name: str, source: Source) -> None:
        """A durable, or an origin, that was not there may be there by now."""
        silent = self.server.now - max(source.since, source.heard)
        if name not in self.elections and not self._alive(source) and silent >= RETRIED[self.server.level > 4]:
            self._attach(name, source)

    # -- what INFO shows ---------------------------------------------------------------------------------------------

    def shown(self, name: str) -> list[dict[str, Any]]:
        """The `sources` of a stream's INFO."""
        return [self._shown(name, source) for source in self.sources.get(name, [])]

    def _shown(self, name: str, source: Source) -> dict[str, Any]:
        parts = ("name", "external", "filter_subject", "subject_transforms")
        info: dict[str, Any] = {part: source.entry[part] for part in parts if part in source.entry}
        heard = self.server.now if self._alive(source) else source.heard
        info |= {"lag": 0, "active": self.server.now - heard if heard != NEVER_HEARD else NEVER_HEARD}
        origin = self.server.streams.get(source.entry["name"])
        seq = self.server.streams[name].remembered.get(self._remembered_as(source.identity, origin), 0)
        return info | ({"seq": seq} if seq and self.server.level > 4 else {})


def _transformed(entry: dict[str, Any], subject: str) -> str:
    """Where a copy is stored; destinations with wildcards are taken to be as their sources."""
    for transform in entry.get("subject_transforms") or ():
        if subjects.covers(transform.get("src") or ">", subject):
            return str(transform["dest"]) if subjects.is_literal(transform.get("dest") or ">") else subject
    return subject
