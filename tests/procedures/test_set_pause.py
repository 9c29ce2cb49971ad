"""set-pause: only the pause that we remember is ours to end."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from reconciler.model.identity import Key
from reconciler.model.marker import Marker, read_marker
from reconciler.procedures.machine import Done
from reconciler.procedures.requests import CreateConsumer, CreateStream, PauseConsumer, UpdateConsumer, Write
from reconciler.procedures.set_pause import SetPause
from tests.support.world.driver import Run, run
from tests.support.world.server import ModelServer

C = Key("Consumer", "c", "S")
OURS, THEIRS = "2098-01-01T00:00:00Z", "2099-01-01T00:00:00Z"


def _config(until: str) -> bytes:
    metadata = Marker(owner="test", spec="x", pause_until=until).to_metadata()
    return orjson.dumps({"durable_name": "c", "ack_policy": "explicit", "metadata": metadata})


def _paused(until: str) -> ModelServer:
    """It was paused by us, and is paused until some moment by now."""
    server = ModelServer()
    server.write(CreateStream(Key("Stream", "S"), orjson.dumps({"name": "S", "subjects": ["s.>"]})))
    server.write(CreateConsumer(C, _config(OURS)))
    server.write(PauseConsumer(C, until))
    return server


def _undeclared(server: ModelServer) -> Run:
    return run(SetPause(C, _config(""), "", remembered=OURS), server)


@pytest.mark.parametrize(("until", "lifted"), [(OURS, True), (THEIRS, False)])
def test_a_pause_that_is_no_longer_declared_ends_unless_somebody_else_set_it(until: str, lifted: bool) -> None:
    server = _paused(until)
    done = _undeclared(server)
    assert isinstance(done.end, Done)
    kinds: list[Any] = [type(write) for write in done.writes]
    assert kinds == ([PauseConsumer, UpdateConsumer] if lifted else [UpdateConsumer])
    assert server.paused(server.consumers["S", "c"]) is not lifted


def test_a_declared_pause_replaces_another_one() -> None:
    server = _paused(THEIRS)
    done = run(SetPause(C, _config(OURS), OURS, remembered=OURS), server)
    assert isinstance(done.end, Done)
    assert done.writes == [PauseConsumer(C, OURS)]


class _Killed(Exception):
    """The process is gone."""


@pytest.mark.parametrize("executed", [0, 1])
def test_who_goes_on_after_a_kill_for_a_manifest_without_the_pause_knows_that_it_was_ours(executed: int) -> None:
    server = ModelServer()
    server.write(CreateStream(Key("Stream", "S"), orjson.dumps({"name": "S", "subjects": ["s.>"]})))
    server.write(CreateConsumer(C, _config("")))
    written: list[Write] = []

    def killed() -> None:
        if len(written) > executed:
            raise _Killed

    server.veto = written.append
    with pytest.raises(_Killed):
        run(SetPause(C, _config(OURS), OURS), server, between=killed)
    seen = server.consumers["S", "c"]
    remembered = read_marker(seen.config["metadata"], C.mark).pause_until
    run(SetPause(C, _config(""), "", remembered), server)
    assert not server.paused(seen)
