"""kick-source: an entry that was taken away is put back, whatever crashes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest

from reconciler.model.identity import Key
from reconciler.model.sourcing import detached, placeholder
from reconciler.procedures.machine import Abort, Ask, Do, Done, Observation, Wait
from reconciler.procedures.requests import Absent, ConsumerInfo, Fact, Read, StreamInfo, UpdateStream
from reconciler.sources.kick import PATIENCE, KickSource

A, C = Key("Stream", "A"), Key("Consumer", "c", "S")
ENTRY: dict[str, Any] = {"name": "S", "consumer": {"name": "c", "deliver_subject": "d"}}
OTHER: dict[str, Any] = {"name": "T"}
MACHINE = KickSource(A, orjson.dumps(ENTRY), C)


@dataclass
class Server:
    """A stream with two sources, of which the server attaches one when it is put back."""

    sources: list[dict[str, Any]] = field(default_factory=lambda: [OTHER, ENTRY])
    attaches: bool = True
    bound: bool = False
    heard: bool = True
    now: int = 10**9
    writes: list[list[str]] = field(default_factory=list)
    durable: bool = True

    def read(self, read: Read) -> Fact:
        """INFO."""
        if isinstance(read, ConsumerInfo):
            return {"push_bound": self.bound} if self.durable else Absent()
        assert read == StreamInfo(A)
        told = [self.told(one) for one in self.sources]
        return {"config": {"name": "A", "max_msgs": 7, "sources": list(self.sources)}, "sources": told}

    def told(self, entry: dict[str, Any]) -> dict[str, Any]:
        """How an entry fares; all others than the one that is kicked are heard."""
        parts = ("name", "external", "filter_subject")
        heard = entry != ENTRY or (self.bound and self.heard)
        return {name: entry[name] for name in parts if name in entry} | {"active": 10**8 if heard else -1}

    def write(self, config: bytes) -> None:
        """UPDATE."""
        sent = orjson.loads(config)
        assert sent["max_msgs"] == 7
        self.sources = sent["sources"]
        self.writes.append([detached(one) or one["name"] for one in self.sources])
        self.bound = self.attaches and ENTRY in self.sources


def run(server: Server, crash: int = -1) -> Done | Abort | None:
    """To its end, or until it dies after that many writes."""
    memory: Any = None
    facts: dict[Read, Fact] = {}
    for _ in range(100):
        step = MACHINE.step(Observation(server.now, facts), memory)
        if isinstance(step, Done | Abort):
            return step
        memory, facts = step.memory, {}
        if isinstance(step, Ask):
            facts = {read: server.read(read) for read in step.reads}
        elif isinstance(step, Wait):
            server.now = step.until
        else:
            assert isinstance(step, Do)
            assert isinstance(step.write, UpdateStream)
            server.write(step.write.config)
            if len(server.writes) == crash:
                return None
    pytest.fail("it never ends")


def test_it_is_taken_away_and_put_back_in_its_place() -> None:
    server = Server()
    assert run(server) == Done(("it flows",))
    assert server.writes == [["T", "c"], ["T", "S"]]
    assert server.sources == [OTHER, ENTRY]


@pytest.mark.parametrize("crash", [1, 2])
def test_after_a_crash_it_is_put_back(crash: int) -> None:
    server = Server()
    assert run(server, crash) is None
    assert run(server) == Done(("it flows",))
    assert server.sources == [OTHER, ENTRY]
    assert len(server.writes) == 2


def test_what_flows_already_is_left_alone() -> None:
    server = Server(bound=True)
    assert run(server) == Done(("it flows",))
    assert not server.writes


def test_what_another_origin_of_that_name_is_heard_of_is_not_taken_for_it() -> None:
    elsewhere = {"name": "S", "external": {"api": "$JS.leaf.API"}, "consumer": {"name": "c", "deliver_subject": "e"}}
    server = Server(sources=[elsewhere, ENTRY], bound=True, heard=False)
    run(server)
    assert server.writes == [["S", "c"], ["S", "S"]]


def test_it_ends_when_that_does_not_help() -> None:
    server = Server(attaches=False)
    began = server.now
    assert run(server) == Done(("it does not flow yet",))
    assert len(server.writes) == 2
    assert PATIENCE <= server.now - began <= 2 * PATIENCE


@pytest.mark.parametrize("server", [Server(sources=[OTHER]), Server(durable=False), Server(sources=[placeholder({"name": "T"})])])
def test_what_it_does_not_know_it_does_not_touch(server: Server) -> None:
    assert isinstance(run(server), Abort)
    assert not server.writes


def test_a_refusal_ends_it() -> None:
    assert MACHINE.step(Observation(1, {}, "no"), None) == Abort("refused", "no")
