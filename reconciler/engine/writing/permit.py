"""The right to write: the lease, the term it was held in since this was looked at, and what is wanted of these keys.

Invariant: what the manifests say of other keys takes no right away.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from reconciler.engine.daemon.state import DaemonState
from reconciler.engine.ports import Lease
from reconciler.engine.writing.writes import PermitOf
from reconciler.errors import LeaseLost, NotSent, Refused
from reconciler.model.desired import Desired
from reconciler.model.identity import Key
from reconciler.model.kinds.common import Intent

Wanted = Mapping[Key, tuple[str, Intent] | None]
"""What is declared under a key; None: nothing."""


class Right:
    """The lease, on a connection that leads where it should, as long as the process is not to end.

    The request in flight is then the last one; who waits for a connection goes on when everything was looked at on it.
    """

    def __init__(self, state: DaemonState, check: Callable[[], None]) -> None:
        self._state = state
        self._check = check

    def check(self) -> None:
        """Raises LeaseLost when nothing may be written any more, NotSent when nothing may be written yet."""
        if self._state.stopping:
            msg = "the process is ending"
            raise LeaseLost(msg)
        self._check()
        if not self._state.trusted:
            msg = "not looked at everything on this connection yet"
            raise NotSent(msg)


@dataclass(slots=True, eq=False)
class OfTerm:
    """The right to some keys: what was seen before this process came to lead, or led before, is nothing to act on.

    Made for each write, and not frozen, which would cost a microsecond.
    """

    lease: Lease
    state: DaemonState
    term: int
    """The one in which it was looked at."""
    desired: Desired
    """What was wanted then."""
    keys: Collection[Key]

    def check(self) -> None:
        """Raises what `Right` raises, LeaseLost when others may have written since, Refused when something else is wanted."""
        if self.state.term != self.term:
            msg = "the lease was not held all the time since this was looked at"
            raise LeaseLost(msg)
        self.lease.check()
        now = self.state.desired
        if now is not self.desired and wanted_of(now, self.keys) != wanted_of(self.desired, self.keys):
            raise Refused(("something else is wanted by now; it is planned again",))


def permits(lease: Lease, state: DaemonState, term: int, desired: Desired) -> PermitOf:
    """Rights to what a plan for these manifests is about."""
    return lambda keys: OfTerm(lease, state, term, desired, keys)


def wanted_of(desired: Desired, keys: Iterable[Key]) -> Wanted:
    """What the manifests want these to be, by live key."""
    found = ((key.live_key, desired.under(key.live_key)) for key in keys)
    return {key: (declared.digest, declared.intent) if declared is not None else None for key, declared in found}
