"""Puts the parts of a daemon's engine together; what they run on comes from outside.

Invariant: no behaviour, only who knows whom.
"""

from __future__ import annotations

from collections.abc import Callable

from reconciler.engine.aftermath import Aftermath
from reconciler.engine.backoff import Backoff
from reconciler.engine.flaps import Flaps
from reconciler.engine.keeper import Keeper, Running
from reconciler.engine.memory import Recollection
from reconciler.engine.outcome import Outcome
from reconciler.engine.outgoing import Expecting, Right, TrackedWriter, Watch
from reconciler.engine.ports import Lease, LiveReader, LiveWriter, Ports
from reconciler.engine.queue import WorkQueue
from reconciler.engine.state import DaemonOptions, State
from reconciler.engine.trouble import Trouble
from reconciler.jetstream.clock import SystemClock
from reconciler.model.desired import Desired
from reconciler.observe.board import Board
from reconciler.observe.telemetry import Telemetry
from reconciler.plan.change import Rules


def make_state(options: DaemonOptions, rules_of: Callable[[Desired], Rules], telemetry: Telemetry, board: Board) -> State:
    """A daemon's state before it has seen anything."""
    monotonic = SystemClock().monotonic

    def ended(running: Running, outcome: Outcome) -> None:
        Aftermath(state).procedure_ended(running, outcome)

    telemetry.manner(interval=options.interval, dry_run=options.dry_run)
    state = State(
        options=options,
        rules_of=rules_of,
        telemetry=telemetry,
        board=board,
        queue=WorkQueue(monotonic),
        trouble=Trouble(monotonic),
        looks=Backoff(monotonic),
        flaps=Flaps(monotonic),
        keeper=Keeper(monotonic, ended),
        recollection=Recollection(board.process.owner),
    )
    return state


def tracked_ports(state: State, reader: LiveReader, writer: LiveWriter, lease: Lease, expecting: Expecting) -> Ports:
    """The ports of a daemon: whatever is written becomes known."""
    return Ports(reader, TrackedWriter(writer, state, expecting), Right(state, lease.check), SystemClock(), Watch(state))
