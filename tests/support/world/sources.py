"""A model server with an origin S, an aggregate A that copies it, and somebody who publishes, and what became of each message.

Invariant: messages are told apart by ids, never counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from reconciler.model.identity import Key
from reconciler.procedures.requests import (
    ConsumerInfo,
    CreateConsumer,
    CreateStream,
    DeleteConsumer,
    LastCopied,
    PauseConsumer,
    StreamInfo,
    UpdateConsumer,
    UpdateStream,
)
from tests.support.world.server import ModelServer

S, A = Key("Stream", "S"), Key("Stream", "A")
OWN = ("own.>",)
PLAIN = {"name": "S"}
"""An ephemeral entry for all of S."""
FAR = "2099-01-01T00:00:00Z"
QUIET = 12
"""Seconds in which nothing is copied, after which nothing will be."""


def durable(name: str) -> Key:
    """A consumer of the origin."""
    return Key("Consumer", name, "S")


def through(name: str, deliver: str = "", **fields: Any) -> dict[str, Any]:
    """An entry that reads S through a durable."""
    return {"name": "S", **fields, "consumer": {"name": name, "deliver_subject": deliver or f"dlv.{name}"}}


def flowing(name: str, deliver: str = "", **fields: Any) -> bytes:
    """The configuration of a durable for an entry."""
    config = {"durable_name": name, "ack_policy": "flow_control", "deliver_subject": deliver or f"dlv.{name}"}
    return orjson.dumps({**config, **fields})


@dataclass
class SourceWorld:
    """S listens to `s.>`; A listens to `own.>` and copies what a test tells it to."""

    retention: str = "limits"
    level: int = 5
    burst: int = 3
    """How many messages are published at a time, or before a step."""
    subject: str = "s.a"
    server: ModelServer = field(init=False)
    published: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.server = ModelServer(self.level)
        config = {"name": "S", "subjects": ["s.>"], "retention": self.retention}
        self.server.write(CreateStream(S, orjson.dumps(config)))

    # -- what tests do -----------------------------------------------------------------------------------------------

    def copy(self, *entries: Mapping[str, Any], **fields: Any) -> None:
        """Make A copy these, or from now on these."""
        write = UpdateStream if "A" in self.server.streams else CreateStream
        config = {"name": "A", "subjects": list(OWN), "sources": [dict(entry) for entry in entries], **fields}
        self.server.write(write(A, orjson.dumps(config)))

    def consumer(self, name: str, deliver: str = "", *, paused: bool = False, **fields: Any) -> None:
        """Create a durable of S."""
        until = {"pause_until": FAR} if paused else {}
        self.server.write(CreateConsumer(durable(name), flowing(name, deliver, **until, **fields)))

    def pause(self, name: str) -> None:
        """Let a durable stand still."""
        self.server.write(PauseConsumer(durable(name), FAR))

    def resume(self, name: str) -> None:
        """Let it go on."""
        self.server.write(PauseConsumer(durable(name), ""))

    def redirect(self, name: str, deliver: str) -> None:
        """Let a durable deliver elsewhere."""
        self.server.write(UpdateConsumer(durable(name), flowing(name, deliver)))

    def remove(self, name: str) -> None:
        """Delete a durable."""
        self.server.write(DeleteConsumer(durable(name)))

    def publish(self, count: int = 0) -> None:
        """Publish to S; a message that S drops is published all the same."""
        for _ in range(count or self.burst):
            seq = self.server.publish(self.subject)
            assert seq is not None
            self.published.append(self.server.streams["S"].id_of(seq))

    def live(self, seconds: float = 2.0) -> None:
        """Let time pass while messages are published and copied."""
        for _ in range(round(seconds * 10)):
            self.publish(1)
            self.server.advance(0.1)

    def settle(self) -> None:
        """Nobody publishes any more; wait until nothing moves."""
        still = 0
        while still < QUIET:
            before = self._position()
            self.server.advance(1.0)
            still = still + 1 if self._position() == before else 0

    # -- what became of it -------------------------------------------------------------------------------------------

    def held(self) -> list[str]:
        """The ids of the copies in A, in its order."""
        stream = self.server.streams["A"]
        return [stream.copies[seq].id for seq in sorted(stream.messages) if seq in stream.copies]

    def missing(self) -> list[str]:
        """What was published and is not in A."""
        held = set(self.held())
        return [one for one in self.published if one not in held]

    def duplicates(self) -> list[str]:
        """What is in A more than once; as often as it is too often."""
        return [one for one, count in Counter(self.held()).items() for _ in range(count - 1)]

    def stuck(self) -> list[str]:
        """What a workqueue or interest stream still holds though A has it."""
        if self.retention == "limits":
            return []
        origin, held = self.server.streams["S"], set(self.held())
        return [origin.id_of(seq) for seq in origin.messages if origin.id_of(seq) in held]

    def outcome(self) -> tuple[int, int, int]:
        """How many are missing, too many and stuck, once all is quiet."""
        self.settle()
        return len(self.missing()), len(self.duplicates()), len(self.stuck())

    def assert_exact(self) -> None:
        """Everything that was published is in A once, in order, and nothing is left behind in S."""
        self.settle()
        assert self.missing() == []
        assert self.duplicates() == []
        assert self.held() == self.published
        assert self.stuck() == []

    # -- what servers say --------------------------------------------------------------------------------------------

    def info(self, name: str) -> dict[str, Any]:
        """INFO of a durable of S."""
        fact = self.server.read(ConsumerInfo(durable(name)))
        assert isinstance(fact, dict)
        return fact

    def source(self, place: int = 0) -> dict[str, Any]:
        """What INFO of A shows of an entry."""
        fact = self.server.read(StreamInfo(A))
        assert isinstance(fact, dict)
        shown: dict[str, Any] = fact["sources"][place]
        return shown

    def copied(self, identity: str = "S > >") -> int:
        """The last sequence that A has stored under an identity."""
        fact = self.server.read(LastCopied(A, identity))
        seq: int = fact.seq  # type: ignore[union-attr]  # the stream is there
        return seq

    def floor(self, name: str) -> int:
        """The ack floor of a durable."""
        return int(self.info(name)["ack_floor"]["stream_seq"])

    def drained(self, name: str) -> int:
        """Pause a durable, wait until nothing is in flight, and say how far it got."""
        self.pause(name)
        self.live()
        info = self.info(name)
        assert info["num_ack_pending"] == 0
        assert info["delivered"]["stream_seq"] == self.floor(name)
        return self.floor(name)

    def _position(self) -> tuple[int, ...]:
        floors = (consumer.floor for consumer in self.server.consumers.values())
        return (self.server.streams["A"].last, len(self.server.streams["S"].messages), *floors)


def ephemeral(retention: str = "limits", level: int = 5) -> SourceWorld:
    """A copies S without a durable of ours, and messages flow."""
    world = SourceWorld(retention, level)
    world.copy(PLAIN)
    world.live()
    return world


def attached(retention: str = "limits", level: int = 5) -> SourceWorld:
    """A copies S through the durable `c`, and messages flow."""
    world = SourceWorld(retention, level)
    world.consumer("c")
    world.copy(through("c"))
    world.live()
    return world
