"""What is looked at, and what is listened to, for the durables that sources read through."""

from __future__ import annotations

import time
from typing import Any

import pytest

from reconciler.engine.daemon.assembly import make_state
from reconciler.engine.daemon.state import DaemonOptions, DaemonState
from reconciler.engine.planning import wanted_by
from reconciler.model.desired import Declared, Desired
from reconciler.model.identity import Key, Location
from reconciler.model.sourcing import with_durables
from reconciler.observe.metrics import Metrics
from reconciler.observe.status.board import Board, Process
from reconciler.plan.change import Rules
from tests.support.daemon.telling import Sink, telemetry_of
from tests.support.values.build import NOW, desired, stream

MANAGED: dict[str, Any] = {"name": "S", "consumer": {"name": "c", "serverManaged": True}}
FAR: dict[str, Any] = {
    "name": "EV",
    "external": {"domain": "leaf"},
    "consumer": {"name": "far", "deliverSubject": "d", "unmanaged": True},
}
IMPORTED: dict[str, Any] = {"name": "X", "external": {"api": "other.API"}, "consumer": {"name": "x", "deliverSubject": "e"}}
PLAIN: dict[str, Any] = {"name": "P"}


def everything() -> Desired:
    return with_durables(desired(stream("A", {"sources": [MANAGED, FAR, IMPORTED, PLAIN]})), "default")


def state_of(declared: Desired) -> DaemonState:
    board = Board(lambda: NOW, Process(pid=7, host="box", version="1", owner="default"))
    state = make_state(DaemonOptions(), lambda _: Rules(), telemetry_of(Metrics(), Sink()), board)
    state.declared = declared
    return state


def test_the_origins_of_durables_are_looked_at_wherever_they_live() -> None:
    wanted = wanted_by(everything(), Rules())
    assert wanted.streams == {Key("Stream", "A"), Key("Stream", "S"), Key("Stream", "EV", "", "leaf")}
    assert wanted.domains == {"", "leaf"}


@pytest.mark.parametrize(
    ("key", "matters"),
    [
        (Key("Consumer", "c", "S"), True),
        (Key("Consumer", "far", "EV", "leaf"), True),
        (Key("Stream", "S"), True),
        (Key("Stream", "EV", "", "leaf"), True),
        (Key("Consumer", "other", "S"), False),
        (Key("Consumer", "far", "EV"), False),
        (Key("Stream", "P"), False),
        (Key("Stream", "X"), False),
    ],
    ids=str,
)
def test_hints_about_durables_and_their_streams_matter(key: Key, *, matters: bool) -> None:
    assert state_of(everything()).concerns(key) is matters


def test_new_manifests_are_listened_to() -> None:
    state = state_of(desired(stream("A")))
    assert not state.concerns(Key("Consumer", "c", "S"))
    state.declared = everything()
    assert state.concerns(Key("Consumer", "c", "S"))


def test_a_hundred_thousand_streams_cost_little() -> None:
    keys = [Key("Stream", f"A{number}") for number in range(100_000)]
    wire = b'{"name":"A","subjects":["a.>"],"sources":[{"name":"S"}]}'
    declared = Desired({key: Declared(key, wire, "", Location("x")) for key in keys})
    state = state_of(declared)
    assert len(wanted_by(declared, Rules()).streams) == len(keys)  # what is kept, is kept from now on
    begin = time.process_time()
    wanted_by(declared, Rules())
    assert time.process_time() - begin < 1
    state.concerns(Key("Consumer", "c", "S"))
    begin = time.process_time()
    for _ in range(10_000):
        state.concerns(Key("Consumer", "c", "S"))
    assert time.process_time() - begin < 1
