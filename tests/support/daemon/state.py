"""What a daemon knows between passes, made by hand: a leader that has seen everything."""

from __future__ import annotations

from reconciler.engine.daemon.assembly import make_state
from reconciler.engine.daemon.state import DaemonOptions, DaemonState
from reconciler.model.identity import Key
from reconciler.observe.metrics import Metrics
from reconciler.observe.status.board import Board, Process
from reconciler.plan.change import Action, Cause, Change, FieldDiff, Rules
from tests.support.daemon.telling import Sink, telemetry_of
from tests.support.values.build import NOW, consumer, consumer_info, live, marked, stream, stream_info

S = Key("Stream", "S")
A, B = Key("Consumer", "a", "S"), Key("Consumer", "b", "S")
THEIRS = FieldDiff("maxDeliver", 99, 5)
DRIFT = Change(key=A, action=Action.UPDATE, cause=Cause.DRIFT, fields=(THEIRS,), config=b"ours", live_config=b"theirs")


def state_of(**options: bool) -> DaemonState:
    """A leader that has seen everything, consumer a among it."""
    board = Board(lambda: NOW, Process(pid=7, host="box", version="1", owner="default"))
    state = make_state(DaemonOptions(**options), lambda _: Rules(), telemetry_of(Metrics(), Sink()), board)
    state.leading = state.trusted = True
    declared = consumer("S", "a")
    state.recollection.learn(live(stream_info(marked(stream("S"))), consumer_info("S", marked(declared))))
    return state
