"""The right to write, as a pass has it."""

from __future__ import annotations

import pytest

from reconciler.engine import SystemClock
from reconciler.engine.assembly import make_state
from reconciler.engine.outgoing import Right, Term
from reconciler.engine.state import DaemonOptions
from reconciler.errors import LeaseLost
from reconciler.observe.board import Board, Process
from reconciler.observe.metrics import Metrics
from reconciler.plan.change import Rules
from tests.support.daemon.telling import Sink, telemetry_of


def test_it_ends_with_the_term_it_began_in_and_with_the_process() -> None:
    board = Board(SystemClock().now, Process(pid=7, host="box", version="1", owner="default"))
    state = make_state(DaemonOptions(), lambda _: Rules(), telemetry_of(Metrics(), Sink()), board)
    state.trusted = True
    right = Right(state, lambda: None)
    earlier = Term(right, state)
    earlier.check()
    state.term += 1  # another may have led in between
    with pytest.raises(LeaseLost, match="not held all the time"):
        earlier.check()
    now = Term(right, state)
    now.check()
    state.stopping = True
    with pytest.raises(LeaseLost, match="ending"):
        now.check()
