"""move-subject: any graph of moves reaches its targets without an overlap, from wherever a crash left it."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from reconciler.errors import ApiError
from reconciler.model.identity import Key
from reconciler.model.marker import Marker
from reconciler.model.units import SECOND
from reconciler.procedures.machine import Abort, Do, Done, Observation
from reconciler.procedures.move_subject import MoveSubject, StreamTarget
from reconciler.procedures.requests import CreateStream, StreamInfo, UpdateStream, Write
from tests.support.world.driver import NO_CRASH, Crash, run
from tests.support.world.server import ModelServer

Graph = dict[str, list[str] | None]
CRASHES = [NO_CRASH, *(Crash(write=n, executed=x) for n in range(7) for x in (False, True)), *(Crash(step=n) for n in range(14))]
GRAPHS: dict[str, tuple[Graph, Graph]] = {
    "move": ({"A": ["a", "x"], "B": ["b"]}, {"A": ["a"], "B": ["b", "x"]}),
    "swap": ({"A": ["a"], "B": ["b"]}, {"A": ["b"], "B": ["a"]}),
    "chain": ({"A": ["a"], "B": ["b"], "C": ["c"]}, {"A": ["new"], "B": ["a"], "C": ["c", "b"]}),
    "ring": ({"A": ["a"], "B": ["b"], "C": ["c"]}, {"A": ["c"], "B": ["a"], "C": ["b"]}),
    "new receiver": ({"A": ["a", "x"]}, {"A": ["a"], "N": ["x"]}),
    "the loser goes": ({"A": ["a"], "B": ["b"]}, {"A": None, "B": ["a", "b"]}),
    "split": ({"A": ["o.>"], "B": ["b"]}, {"A": ["o.us.>"], "B": ["b", "o.eu.>"]}),
    "merge": ({"A": ["o.us.>"], "B": ["o.eu.>", "b"]}, {"A": ["o.>"], "B": ["b"]}),
}


def body(name: str, subjects: list[str], spec: str) -> bytes:
    """A stream's configuration."""
    return orjson.dumps({"name": name, "subjects": subjects, "metadata": Marker(owner="test", spec=spec).to_metadata()})


def server_with(live: Graph) -> ModelServer:
    server = ModelServer()
    for name, subjects in live.items():
        server.write(CreateStream(Key("Stream", name), body(name, subjects or [], "old")))
    return server


def machine_for(wanted: Graph) -> MoveSubject:
    targets = (
        StreamTarget(Key("Stream", name), b"" if subjects is None else body(name, subjects, "new"))
        for name, subjects in wanted.items()
    )
    return MoveSubject(tuple(targets))


def subjects_of(server: ModelServer) -> dict[str, list[str]]:
    return {name: sorted(stream.subjects) for name, stream in server.streams.items()}


@pytest.mark.parametrize("order", ["AB", "BA"])
def test_control_plain_updates_of_a_swap_are_refused_in_every_order(order: str) -> None:
    live, wanted = GRAPHS["swap"]
    server = server_with(live)
    with pytest.raises(ApiError) as refused:
        server.write(UpdateStream(Key("Stream", order[0]), body(order[0], wanted[order[0]] or [], "new")))
    assert refused.value.err_code == 10065


@pytest.mark.parametrize("graph", GRAPHS)
def test_every_crash_ends_the_same(graph: str) -> None:
    live, wanted = GRAPHS[graph]
    for crash in CRASHES:
        server = server_with(live)
        result = run(machine_for(wanted), server, crash)
        assert isinstance(result.end, Done), crash
        assert subjects_of(server) == {name: sorted(subjects or [f"_moved.{name}"]) for name, subjects in wanted.items()}, crash
        again = run(machine_for(wanted), server)
        assert again.writes == [], crash


@pytest.mark.parametrize("graph", [name for name in GRAPHS if name != "new receiver"])
@pytest.mark.parametrize("refused", range(4))
def test_a_refusal_brings_everything_back(graph: str, refused: int) -> None:
    live, wanted = GRAPHS[graph]
    server = server_with(live)
    before = {name: stream.config for name, stream in server.streams.items()}
    writes = iter(range(100))

    def refuse(_: Write) -> None:
        if next(writes) == refused:
            raise ApiError(500, 10052, "no")

    server.veto = refuse
    result = run(machine_for(wanted), server)
    if len(result.writes) <= refused:
        assert isinstance(result.end, Done)
        return
    assert isinstance(result.end, Abort)
    assert "10052" in result.end.message
    assert {name: stream.config for name, stream in server.streams.items()} == before


def test_a_receiver_that_was_created_gives_its_subjects_back() -> None:
    server = server_with({"A": ["a", "x"]})
    machine = machine_for({"A": ["a"], "N": ["x"]})

    def refuse(write: Write) -> None:
        if isinstance(write, UpdateStream) and write.stream.name == "A" and b'"new"' in write.config:
            raise ApiError(500, 10052, "no")

    server.veto = refuse
    assert isinstance(run(machine, server).end, Abort)
    assert subjects_of(server) == {"A": ["a", "x"], "N": ["_moved.N"]}


def test_only_what_is_contested_goes_off_line() -> None:
    live, wanted = GRAPHS["split"]
    server = server_with(live)
    first = run(machine_for(wanted), server).writes[0]
    assert isinstance(first, UpdateStream)
    assert orjson.loads(first.config)["subjects"] == ["o.us.>"]


def test_defaults_of_an_older_server_are_no_difference() -> None:
    """Up to level 3 a stream with sources has a duplicate window although none was asked for."""
    key = Key("Stream", "AGG")
    config: dict[str, Any] = {"name": "AGG", "subjects": ["x"], "sources": [{"name": "ORIGIN"}]}
    live = {"config": config | {"duplicate_window": 120 * SECOND}}
    seen = Observation(0, {StreamInfo(key): live})
    target = (StreamTarget(key, orjson.dumps(config)),)
    assert isinstance(MoveSubject(target, level=3).step(seen, None), Done)
    assert isinstance(MoveSubject(target, level=4).step(seen, None), Do)
