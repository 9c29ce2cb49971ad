"""A small JetStream in memory, as far as procedures can tell: what was measured on real servers, and nothing else.

It exists so that every procedure can be crashed at every step in milliseconds; that it behaves like the real thing is
shown by the same procedures on real servers. Invariant: one request is one transition, and nothing happens between requests
except what the test does (publish, deliver, acknowledge, let time pass).
"""

from __future__ import annotations

import contextlib
import copy
import enum
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson

from reconciler.errors import ApiError, NoAnswer
from reconciler.model import subjects, units
from reconciler.model.flow import filters_of
from reconciler.model.identity import Key
from reconciler.procedures.requests import (
    Absent,
    ConsumerInfo,
    CreateConsumer,
    CreateStream,
    DeleteConsumer,
    DeleteStream,
    Fact,
    LastCopied,
    Message,
    NextMessage,
    PauseConsumer,
    PurgeStream,
    Read,
    ResetConsumer,
    StreamInfo,
    UpdateConsumer,
    UpdateStream,
    Write,
)
from tests.support.world.checks import check_entries, check_flow_control
from tests.support.world.copying import Sourcing
from tests.support.world.state import Consumer, Stream, matches, shown_time

START = units.parse_time("2026-01-01T00:00:00Z")
IMMUTABLE = ("deliver_policy", "opt_start_seq", "opt_start_time", "ack_policy", "replay_policy", "mem_storage", "max_waiting")
DEFAULTS = {"deliver_policy": "all", "ack_policy": "none", "replay_policy": "instant", "max_waiting": 512}


class Fate(enum.Enum):
    """What becomes of a write."""

    ANSWERED = "answered"
    UNHEARD = "unheard"
    """It is executed, and the answer is lost."""
    LATE = "late"
    """Nobody answers; it is executed when `land` is called."""


def error(err_code: int, text: str) -> ApiError:
    """The answer of a server that refuses."""
    return ApiError(400, err_code, text)


class ModelServer:
    """Streams and consumers of one account; `level` is the API level it claims."""

    def __init__(self, level: int = 5) -> None:
        self.level = level
        self.now = START
        self.streams: dict[str, Stream] = {}
        self.consumers: dict[tuple[str, str], Consumer] = {}
        self.sourcing = Sourcing(self)
        self.leaders: Counter[str] | None = None
        """How often each stream, and each consumer, has got another leader; None: there is only one server."""
        self.elected: dict[str, int] = {}
        """When each got the leader that it has, unless it is the first."""
        self.veto: Callable[[Write], None] = lambda _: None
        """Called before every write; raises to refuse it."""
        self.fate: Callable[[Write], Fate] = lambda _: Fate.ANSWERED
        """Asked before every write."""
        self.late: list[Write] = []
        """What is on its way and was given up by who sent it."""
        self.past: list[ModelServer] = []
        """As it was at some moments of late, the last one first."""
        self.behind: dict[Key, int] = {}
        """By how many of those moments the leader of a stream or a consumer lags: what it shows is that old, but for the time."""

    def advance(self, seconds: float) -> None:
        """Let time pass: streams copy from each other."""
        self.now += int(seconds * 10**9)
        self.sourcing.pass_time()

    def elect(self, stream: str, consumer: str = "") -> None:
        """Another leader for a stream, or for one of its consumers."""
        assert self.leaders is not None, "there is only one server"
        self.leaders[f"{stream} {consumer}"] += 1
        self.elected[f"{stream} {consumer}"] = self.now
        if not consumer:
            self.sourcing.elect(stream)
        elif (stream, consumer) in self.consumers:
            seen = self.consumers[stream, consumer]
            seen.cursor = min(seen.cursor, seen.delivered + 1)  # what was passed without being delivered is passed again

    def land(self) -> None:
        """What was on its way arrives; nobody hears what becomes of it."""
        late, self.late = self.late, []
        for write in late:
            with contextlib.suppress(ApiError, NoAnswer):
                self._execute(write)

    def _cluster(self, stream: str, consumer: str = "") -> dict[str, Any]:
        if self.leaders is None:
            return {}
        place = f"{stream} {consumer}"
        born = self.consumers[stream, consumer].born if consumer else self.streams[stream].born
        led = {"leader": f"n{self.leaders[place]}", "leader_since": shown_time(max(born, self.elected.get(place, 0)))}
        return {"cluster": {"name": "C", **led, "replicas": [{"name": "another", "current": True}]}}

    # -- what the tests do -------------------------------------------------------------------------------------------

    def publish(self, subject: str) -> int | None:
        """Store a message; None when no stream listens. An interest stream without interest drops it (and counts it)."""
        for name, stream in self.streams.items():
            if matches(subject, tuple(stream.subjects)):
                stream.last += 1
                readers = (one for (owner, _), one in self.consumers.items() if owner == name)
                if stream.retention != "interest" or any(one.wants(subject) for one in readers):
                    stream.messages[stream.last] = (subject, self.now)
                return stream.last
        return None

    def deliver(self, key: Key) -> int | None:
        """One pull: what must be redelivered, else the next match; finding none moves the cursor to the end."""
        consumer = self.consumers.get((key.stream, key.name))
        if consumer is None or self.paused(consumer):
            return None
        stream = self.streams[key.stream]
        if consumer.redeliver and (again := consumer.redeliver & stream.messages.keys()):
            seq = min(again)
            consumer.redeliver = again - {seq}
            return seq
        if consumer.cursor > stream.last:
            return None
        filters, ahead = tuple(consumer.filters), range(consumer.cursor, stream.last + 1)
        seq = next((seq for seq in ahead if seq in stream.messages and matches(stream.messages[seq][0], filters)), 0)
        if not seq:
            consumer.cursor = max(consumer.cursor, stream.last + 1)
            return None
        consumer.cursor, consumer.delivered, consumer.count = seq + 1, seq, consumer.count + 1
        consumer.pending.add(seq)
        return seq

    def acknowledge(self, key: Key, seq: int) -> None:
        """A worker is done with a message."""
        consumer = self.consumers.get((key.stream, key.name))
        if consumer is None or not consumer.acknowledge(seq):
            return
        stream = self.streams[key.stream]
        others = (one for (name, _), one in self.consumers.items() if name == key.stream and one is not consumer)
        if stream.retention == "workqueue" and seq in stream.messages:
            text = stream.messages[seq][0]
            if not any(one.needs()(seq, text) for one in others):  # only beside a durable that the server made itself
                del stream.messages[seq]
        self.forget_unneeded(key.stream, seq)  # nobody's need of any other changes with that

    def expire(self, key: Key) -> None:
        """Acknowledgements are overdue: everything in flight will be delivered again."""
        consumer = self.consumers.get((key.stream, key.name))
        if consumer is not None:
            consumer.redeliver |= consumer.pending

    def paused(self, consumer: Consumer) -> bool:
        """Whether it stands still."""
        return consumer.paused_until > self.now

    def read_config(self, key: Key) -> dict[str, Any]:
        """A consumer's configuration as it was sent."""
        return self.consumers[key.stream, key.name].config

    # -- what a procedure reads --------------------------------------------------------------------------------------

    def read(self, read: Read) -> Fact:
        """The answer to one read."""
        place = read.consumer if isinstance(read, ConsumerInfo) else read.stream
        behind = self.behind.get(place, 0)
        return self._as_before(behind).read(read) if behind and self.past else self._read(read)

    def remember(self) -> None:
        """What leaders that lag will show."""
        past, self.past = self.past, []
        self.past = [copy.deepcopy(self), *past]

    def _as_before(self, moments: int) -> ModelServer:
        earlier = self.past[min(moments, len(self.past)) - 1]
        earlier.now = self.now
        return earlier

    def _read(self, read: Read) -> Fact:
        if isinstance(read, StreamInfo):
            stream = self.streams.get(read.stream.stream_name)
            return self._stream_info(stream, read.subjects) if stream else Absent()
        if isinstance(read, NextMessage):
            if read.stream.stream_name not in self.streams:
                return Absent()
            found = self.streams[read.stream.stream_name].messages
            match = min((s for s, (text, _) in found.items() if s >= read.seq and subjects.covers(read.subject, text)), default=0)
            return Message(match, shown_time(found[match][1])) if match else Absent()
        if isinstance(read, LastCopied):
            stream = self.streams.get(read.stream.stream_name)
            if stream is None:
                return Absent()
            return stream.newest(read.identity, read.subject) if read.subject else stream.last_copied(read.identity)
        consumer = self.consumers.get((read.consumer.stream, read.consumer.name))
        return self._consumer_info(read.consumer.name, consumer) if consumer else Absent()

    def _stream_info(self, stream: Stream, counted: str = "") -> dict[str, Any]:
        first, count = stream.messages.get(stream.first, ("", self.now))[1], len(stream.messages)
        state: dict[str, Any] = {"messages": count, "first_seq": stream.first, "last_seq": stream.last}
        state["consumer_count"] = self._consumers_of(stream.config["name"])
        state |= {"bytes": 100 * count, "first_ts": shown_time(first)}
        if counted:
            state["subjects"] = dict(Counter(text for text, _ in stream.messages.values() if subjects.covers(counted, text)))
        info = {"config": stream.config, "state": state, "ts": shown_time(self.now), **self._cluster(stream.config["name"])}
        info["created"] = shown_time(stream.born)
        return info | ({"sources": shown} if (shown := self.sourcing.shown(stream.config["name"])) else {})

    def _consumer_info(self, name: str, consumer: Consumer) -> dict[str, Any]:
        pause = {"pause_until": shown_time(consumer.paused_until)} if consumer.paused_until else {}
        floor = consumer.floor if consumer.count or self.level > 1 else 0  # 2.11 shows 0 before the first acknowledgement
        key = next(place for place, one in self.consumers.items() if one is consumer)
        stream, filters = self.streams[key[0]], tuple(consumer.filters)
        ahead = (seq for seq in range(consumer.cursor, stream.last + 1) if seq in stream.messages)
        info: dict[str, Any] = {
            "stream_name": key[0],
            "name": name,
            "created": shown_time(consumer.born),
            "config": {**DEFAULTS, **consumer.config, **pause},
            "delivered": {"consumer_seq": consumer.count, "stream_seq": consumer.delivered},
            "ack_floor": {"stream_seq": floor},
            "num_ack_pending": len(consumer.pending),
            "num_pending": sum(matches(stream.messages[seq][0], filters) for seq in ahead),
            "ts": shown_time(self.now),
            **self._cluster(key[0], name),
        }
        bound = self.sourcing.bound(Key("Consumer", name, key[0]))
        return info | ({"paused": True} if self.paused(consumer) else {}) | ({"push_bound": True} if bound else {})

    # -- what a procedure writes -------------------------------------------------------------------------------------

    def write(self, write: Write) -> None:
        """Execute one request, or raise ApiError; NoAnswer where nobody tells."""
        self.veto(write)
        fate = self.fate(write)
        if fate is Fate.LATE:
            self.late.append(write)
            msg = "lost on the way"
            raise NoAnswer(msg)
        self._execute(write)
        if fate is Fate.UNHEARD:
            msg = "the answer is lost"
            raise NoAnswer(msg)

    def _execute(self, write: Write) -> None:
        match write:
            case CreateStream(key, config) | UpdateStream(key, config):
                self._put_stream(key.stream_name, orjson.loads(config), new=isinstance(write, CreateStream))
            case DeleteStream(key):
                del self.streams[key.stream_name]
                self.sourcing.deleted(key.stream_name)
                self.consumers = {place: one for place, one in self.consumers.items() if place[0] != key.stream_name}
            case CreateConsumer(key, config):
                self._create(key, orjson.loads(config))
            case UpdateConsumer(key, config):
                self._update(key, orjson.loads(config))
            case DeleteConsumer(key):
                self._there(key)
                del self.consumers[key.stream, key.name]
                self.forget_unneeded(key.stream)
            case PurgeStream(key, before, subject):
                self.streams[key.stream_name].purge(before, subject or ">")
            case PauseConsumer(key, until):
                self._there(key).pause(units.parse_time(until) if until else 0)
            case ResetConsumer(key, seq):
                self._reset(key, seq)

    def _there(self, key: Key) -> Consumer:
        if (key.stream, key.name) not in self.consumers:
            raise ApiError(404, 10014, "consumer not found")
        return self.consumers[key.stream, key.name]

    def _put_stream(self, name: str, config: dict[str, Any], *, new: bool) -> None:
        config = {"name": name, **config}
        if new == (name in self.streams):
            raise error(10058, "stream name already in use") if new else ApiError(404, 10059, "stream not found")
        check_entries(config, self.level)
        wanted = Stream(config).subjects
        for other, stream in self.streams.items():
            if other != name and any(subjects.overlap(one, two) for one in wanted for two in stream.subjects):
                raise error(10065, "subjects overlap with an existing stream")
        if any(subjects.overlap(one, two) for place, one in enumerate(wanted) for two in wanted[:place]):
            raise ApiError(500, 10052, "subjects overlap")
        if new:
            self.streams[name] = Stream(config, born=self.now)
        else:
            self.streams[name].config = config
        self.sourcing.configured(name)

    def _create(self, key: Key, config: dict[str, Any]) -> None:
        if (key.stream, key.name) in self.consumers:
            raise error(10148, "consumer already exists")
        pause = config.pop("pause_until", "")
        self._check(key, config)
        if 0 < self.streams[key.stream].config.get("max_consumers", -1) <= self._consumers_of(key.stream):
            raise error(10026, "maximum consumers limit reached")
        cursor = max(self._start(self.streams[key.stream], config), 1)
        made = Consumer(config, cursor, cursor - 1, cursor - 1, born=self.now)
        made.paused_until = units.parse_time(pause) if pause else 0
        self.consumers[key.stream, key.name] = made

    def _consumers_of(self, stream: str) -> int:
        return sum(name == stream for name, _ in self.consumers)

    def _start(self, stream: Stream, config: dict[str, Any]) -> int:
        policy = config.get("deliver_policy", "all")
        if policy == "by_start_sequence":
            return int(max(config["opt_start_seq"], stream.first))
        if policy == "by_start_time":
            since = units.parse_time(config["opt_start_time"])
            return min((seq for seq, (_, time) in stream.messages.items() if time >= since), default=stream.last + 1)
        return stream.first if policy == "all" else stream.last + (policy == "new")

    def _update(self, key: Key, config: dict[str, Any]) -> None:
        consumer = self.consumers.get((key.stream, key.name))
        if consumer is None:
            raise error(10149, "consumer does not exist")
        config.pop("pause_until", None)
        for name in IMMUTABLE:
            if config.get(name, DEFAULTS.get(name)) != consumer.config.get(name, DEFAULTS.get(name)):
                raise ApiError(500, 10012, f"{name} can not be updated")
        self._check(key, config)
        gone = filters_of(consumer.config) and not filters_of(config)
        assert not gone, f"a real server would let {key} go deaf to new messages, and on interest drop them"
        if config.get("deliver_subject") != consumer.config.get("deliver_subject") and self.sourcing.bound(key):
            raise error(10013, "consumer name already in use")
        consumer.config = config
        self.forget_unneeded(key.stream)

    def _check(self, key: Key, config: dict[str, Any]) -> None:
        mine = Consumer(config, 1, 0, 0).filters
        if any(subjects.covers(one, two) for one in mine for two in mine if one is not two):
            raise error(10138, "consumer subject filters cannot overlap")
        check_flow_control(config, self.streams[key.stream].subjects)
        if self.streams[key.stream].retention != "workqueue":
            return
        if config.get("deliver_policy", "all") != "all":
            raise error(10101, "consumer must be deliver all on workqueue stream")
        for (stream, name), other in self.consumers.items():
            if stream != key.stream or name == key.name or other.config.get("sourcing"):
                continue
            if any(subjects.overlap(a, b) for a in mine for b in other.filters):
                filtered = config.get("filter_subject") or config.get("filter_subjects")
                raise error(10100 if filtered else 10099, "consumer not unique on workqueue stream")

    def _reset(self, key: Key, seq: int) -> None:
        if self.level < 4 or (key.stream, key.name) not in self.consumers:
            msg = "a server below level 4 does not answer a RESET, nor any of a consumer that is not there"
            raise NoAnswer(msg)
        consumer, stream = self.consumers[key.stream, key.name], self.streams[key.stream]
        assert seq <= stream.last + 1, "a real server would skip what comes next"
        assert stream.retention != "interest" or stream.config.get("num_replicas", 1) == 1, "a real server would delete messages"
        policy = consumer.config.get("deliver_policy", "all")
        if policy not in ("all", "by_start_sequence", "by_start_time"):
            raise error(10204, "invalid reset: not allowed")
        if seq < consumer.config.get("opt_start_seq", 0):
            raise error(10204, "invalid reset: below start seq")
        if policy == "by_start_time" and seq < self._start(stream, consumer.config):
            raise error(10204, "invalid reset: below start time")
        made = replace(consumer, cursor=seq, delivered=seq - 1, floor=seq - 1, count=0, pending=set(), redeliver=set())
        self.consumers[key.stream, key.name] = made
        self.forget_unneeded(key.stream)

    def forget_unneeded(self, name: str, only: int | None = None) -> None:
        """An interest stream drops what no consumer needs; `only` looks at one message."""
        stream = self.streams[name]
        if stream.retention == "interest":
            needs = [one.needs() for (owner, _), one in self.consumers.items() if owner == name]
            looked_at = list(stream.messages) if only is None else [only] if only in stream.messages else []
            for seq in looked_at:
                if not any(need(seq, stream.messages[seq][0]) for need in needs):
                    del stream.messages[seq]
