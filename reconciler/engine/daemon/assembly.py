"""Puts the parts of a daemon's engine together; what they run on comes from outside.

Invariant: no behaviour, only who knows whom.
"""

from __future__ import annotations

from collections.abc import Callable

from reconciler.engine.apply.outcome import Outcome
from reconciler.engine.daemon.aftermath import Aftermath
from reconciler.engine.daemon.agenda import Agenda
from reconciler.engine.daemon.keeper import Keeper, Running
from reconciler.engine.daemon.state import DaemonOptions, DaemonState
from reconciler.engine.daemon.trouble import AFTER_A_NO
from reconciler.engine.memory import Recollection
from reconciler.engine.ports import Lease, LiveReader, LiveWriter, Ports
from reconciler.engine.writing.outgoing import Expecting, Noted, Watch
from reconciler.engine.writing.permit import Right
from reconciler.engine.writing.throttle import Throttle
from reconciler.engine.writing.writes import Settling, Writes
from reconciler.jetstream.clock import SystemClock
from reconciler.model.desired import Desired
from reconciler.observe.status.board import Board
from reconciler.observe.telemetry import Telemetry
from reconciler.plan.change import Rules


def make_state(  # noqa: PLR0913 - all that differs between a daemon and a command
    options: DaemonOptions,
    rules_of: Callable[[Desired], Rules],
    telemetry: Telemetry,
    board: Board,
    *,
    finished: Callable[[Outcome], None] = lambda _: None,
    after_a_no: float = AFTER_A_NO,
) -> DaemonState:
    """A state before anything was seen; `finished` is told of the end of each procedure, see `Agenda` for `after_a_no`."""
    monotonic = SystemClock().monotonic

    def ended(running: Running, outcome: Outcome) -> None:
        Aftermath(state).procedure_ended(running, outcome)
        finished(outcome)

    telemetry.manner(interval=options.interval, dry_run=options.dry_run)
    state = DaemonState(
        options=options,
        rules_of=rules_of,
        telemetry=telemetry,
        board=board,
        agenda=Agenda(monotonic, after_a_no),
        keeper=Keeper(monotonic, ended),
        recollection=Recollection(board.process.owner, monotonic),
    )
    return state


def tracked_ports(  # noqa: PLR0913 - all neighbours
    state: DaemonState,
    reader: LiveReader,
    writer: LiveWriter,
    lease: Lease,
    expecting: Expecting,
    *,
    fence: Settling | None = None,
) -> Ports:
    """The ports of a daemon: whatever is written becomes known."""
    clock = SystemClock()
    pace = Throttle(state.options.requests_per_second, clock)
    writes = Writes(reader, writer, clock, pace, Noted(state, expecting), fence=fence)
    return Ports(reader, writes, Right(state, lease.check), clock, Watch(state))
