"""What follows of a look that failed: it is repeated, but not at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from reconciler.engine.daemon.aftermath import Aftermath
from reconciler.engine.daemon.assembly import make_state
from reconciler.engine.daemon.state import DaemonOptions, DaemonState
from reconciler.model.identity import Key
from reconciler.model.seen.live import EVERY_STREAM
from reconciler.observe.metrics import Metrics
from reconciler.observe.status.board import Board, Process
from reconciler.plan.change import Rules
from tests.support.daemon.telling import Sink, telemetry_of
from tests.support.values.build import NOW

A = Key("Consumer", "a", "S")
CASES: dict[str, Callable[[Aftermath], None]] = {
    "a few keys": lambda aftermath: aftermath.unseen({A}),
    "everything": lambda aftermath: aftermath.unseen(()),
    "a domain": lambda aftermath: aftermath.silent({Key("Stream", EVERY_STREAM): "silence"}, ()),
}


def _state() -> DaemonState:
    board = Board(lambda: NOW, Process(pid=7, host="box", version="1", owner="default"))
    return make_state(DaemonOptions(), lambda _: Rules(), telemetry_of(Metrics(), Sink()), board)


@pytest.mark.parametrize("what", CASES)
async def test_what_did_not_answer_is_asked_again_but_not_at_once(what: str) -> None:
    state = _state()
    CASES[what](Aftermath(state))
    assert state.agenda.depth == 1
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(state.agenda.take(), 0.1)
