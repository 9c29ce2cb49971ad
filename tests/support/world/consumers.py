"""A model server with one stream, its publisher and the workers of one consumer, and the bookkeeping of what they saw.

Invariant: `handled` holds what a worker finished at least once; a later delivery of it is a duplicate, a stored match that
never gets there is lost. Ids are compared, never counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson

from reconciler.model import subjects
from reconciler.model.identity import Key
from reconciler.model.marker import PROCEDURE, Marker
from reconciler.procedures.consumer import ConsumerTarget
from reconciler.procedures.holds import HOLD_PREFIX
from reconciler.procedures.requests import ConsumerInfo, CreateConsumer, CreateStream
from tests.support.world.server import ModelServer

STREAM = Key("Stream", "S")
C = Key("Consumer", "c", "S")
OTHER = Key("Consumer", "other", "S")
OWNED = Marker(owner="test", spec="old", key=C.mark).to_metadata()
TARGETED = Marker(owner="test", spec="new", key=C.mark).to_metadata()
BASE = {"durable_name": "c", "ack_policy": "explicit", "ack_wait": 2 * 10**9}


def config(*filters: str, **fields: Any) -> bytes:
    """A consumer's wire configuration."""
    return orjson.dumps({**BASE, "filter_subjects": list(filters), "metadata": OWNED, **fields})


@dataclass
class World:
    """Stream S on `s.>`, consumer c, and on interest another consumer that keeps everything."""

    retention: str = "limits"
    level: int = 5
    server: ModelServer = field(init=False)
    handled: set[int] = field(default_factory=set)
    seen: set[int] = field(default_factory=set)
    duplicates: list[int] = field(default_factory=list)
    stored: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.server = ModelServer(self.level)
        stream = {"name": "S", "subjects": ["s.>"], "retention": self.retention}
        self.server.write(CreateStream(STREAM, orjson.dumps(stream)))

    def consume(self, *filters: str, **fields: Any) -> None:
        """Create c (and on interest the other one)."""
        self.server.write(CreateConsumer(C, config(*filters, **fields)))
        if self.retention == "interest":
            self.server.write(CreateConsumer(OTHER, orjson.dumps({"durable_name": "other", "ack_policy": "explicit"})))

    def target(self, *filters: str, **fields: Any) -> ConsumerTarget:
        """What c shall become."""
        return ConsumerTarget(
            key=C,
            config=config(*filters, **{"metadata": TARGETED, **fields}),
            level=self.level,
            retention=self.retention,
        )

    def publish(self, *names: str) -> None:
        """Store one message each on `s.<name>`."""
        for name in names:
            seq = self.server.publish(f"s.{name}")
            assert seq is not None
            if seq in self.server.streams["S"].messages:
                self.stored[seq] = f"s.{name}"

    def work(self, count: int = 1, *, finish: bool = True) -> int:
        """Workers pull up to `count` messages, and finish them or sit on them; how many they got."""
        for done in range(count):
            seq = self.server.deliver(C)
            if seq is None:
                return done
            if seq in self.handled:
                self.duplicates.append(seq)
            self.seen.add(seq)
            if finish:
                self.finish(seq)
        return count

    def finish(self, seq: int) -> None:
        """A worker acknowledges."""
        self.handled.add(seq)
        self.server.acknowledge(C, seq)

    def finish_all(self) -> None:
        """Workers acknowledge what they sit on."""
        consumer = self.server.consumers.get(("S", "c"))
        for seq in sorted(consumer.pending if consumer else ()):
            self.finish(seq)

    def drain(self) -> None:
        """Work until nothing comes any more, redeliveries included."""
        self.server.expire(C)
        while self.work():
            pass

    def act(self, operation: str) -> None:
        """One event of a history: something a worker does, or the last token of what is published."""
        if operation == "take":
            self.work(1, finish=False)
        elif operation == "work":
            self.work(1)
        elif operation == "rush":
            self.work(1000)
        elif operation == "finish":
            self.finish_all()
        elif operation == "expire":
            self.server.expire(C)
        elif operation != "idle":
            self.publish(operation)

    def living(self, *operations: str) -> Callable[[], None]:
        """For the driver: before each step the next events (words), after the last ones nothing."""
        events = iter(operations)

        def live() -> None:
            for operation in next(events, "idle").split():
                self.act(operation)

        return live

    @property
    def consumer_filters(self) -> list[str]:
        """What c delivers now."""
        return self.server.consumers["S", "c"].filters

    def info(self) -> dict[str, Any]:
        """INFO of the consumer."""
        fact = self.server.read(ConsumerInfo(C))
        assert isinstance(fact, dict)
        return fact

    def lost(self) -> list[int]:
        """Stored matches of c's filters that no worker ever finished; drain first."""
        wanted = [seq for seq, text in self.stored.items() if subjects.covered(text, self.consumer_filters)]
        return [seq for seq in wanted if seq not in self.handled]

    def assert_tidy(self, target: ConsumerTarget) -> None:
        """Nothing left over: the target's configuration, no journal, no hold, not paused."""
        live = self.server.read_config(C)
        assert PROCEDURE not in live["metadata"]
        assert {**live, "metadata": None} == {**target.wire, "metadata": None} or "reconciler.residue" in live["metadata"]
        assert live["metadata"].items() >= target.wire["metadata"].items()
        assert self.server.consumers["S", "c"].paused_until <= self.server.now
        assert not [name for _, name in self.server.consumers if name.startswith(HOLD_PREFIX)]
