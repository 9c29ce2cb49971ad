"""What people may ask a running daemon for, through HTTP.

Invariant: nothing here waits or writes to NATS but what is done to a consumer; the rest fills the agenda, and answers at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from reconciler.engine.daemon.keeper import BY_REQUEST
from reconciler.engine.daemon.manifests import Manifests
from reconciler.engine.daemon.requests import Requests
from reconciler.engine.daemon.state import DaemonState
from reconciler.engine.ports import Clock
from reconciler.errors import Refused, UsageError
from reconciler.model.identity import Key
from reconciler.observe.http.controls import ConsumerRequest, StatusQuery
from reconciler.observe.http.renderings import Pieces

_STILL_ALIVE = 30.0
"""Seconds without a heartbeat after which the loop counts as stuck."""


class ConnectionLink(Protocol):
    """The connection, as far as a daemon has to know. Implemented by `jetstream.transport.connection.Connection`."""

    @property
    def connected(self) -> bool:
        """Whether a request made now would be sent."""
        ...

    @property
    def url(self) -> str:
        """Where we are connected."""
        ...

    def on_state_change(self, listener: Callable[[bool], None]) -> None:
        """The listener is called after every loss and every comeback."""
        ...

    async def wait_connected(self) -> None:
        """Returns as soon as the connection is up."""
        ...


class Control:
    """Implements `observe.http.controls.Controls`."""

    def __init__(self, state: DaemonState, link: ConnectionLink, manifests: Manifests, clock: Clock, requests: Requests) -> None:
        self._state = state
        self._link = link
        self._manifests = manifests
        self._clock = clock
        self._beat = clock.monotonic()
        self._requests = requests

    def beat(self) -> None:
        """The event loop does its work."""
        self._beat = self._clock.monotonic()

    def alive(self) -> bool:
        """Whether the event loop still does its work."""
        return self._clock.monotonic() - self._beat < _STILL_ALIVE

    def not_ready(self) -> str:
        """Why this process is not ready; empty when it is."""
        if self._state.stopping:
            return "stopping"
        if not self._link.connected:
            return "not connected to NATS"
        if self._state.passed:
            return ""
        return f"the first pass is not over{self._state.last_error and ': '}{self._state.last_error}"

    def telling(self, query: StatusQuery) -> Pieces[dict[str, Any]]:
        """The status document, paged; made in pieces."""
        document = yield from self._state.board.documenting(query)
        why_not = self.not_ready()
        state = self._state
        mode = {"policy": state.policy, "drift": "repair" if state.options.repair_drift else "report"}
        mode["readOnly"] = state.why_read_only
        wait = state.prunes_wait() if state.prunes_waiting else 0.0
        prunes = {"waiting": state.prunes_waiting, "seconds": round(wait, 1)} if wait else None
        return document | {"ready": not why_not, "notReady": why_not, "mode": mode, "prunes": prunes}

    def reload(self) -> None:
        """Look at the manifests now."""
        self._manifests.hurry()

    def reconcile(self, key: Key | None) -> None:
        """Look at this resource (None: at everything) now, whatever its backoff."""
        state = self._state
        if not state.board.connected:
            msg = f"nothing can be looked at: {state.board.not_ready()}; everything is, as soon as it is there again"
            raise Refused((msg,))
        if key is None:
            state.agenda.everything("request", afresh=True)
            return
        self._must_be_declared(key)
        state.agenda.asked(key.live_key)

    def suspend(self, key: Key) -> None:
        """Leave this resource alone until it is resumed or the process ends."""
        self._must_lead()
        key = self._must_be_declared(key)
        self._state.suspended.add(key)
        self._state.board.suspended(key)
        self._state.agenda.look([key.live_key])

    def resume(self, key: Key) -> None:
        """Take this resource up again."""
        self._must_lead()
        key = self._must_be_declared(key)
        if key not in self._state.suspended:
            declared = self._state.resource(key.live_key)
            by_manifest = declared is not None and declared.intent.suspend
            msg = f"{key} is suspended by its manifest" if by_manifest else f"{key} is not suspended"
            raise Refused((msg,))
        self._state.suspended.discard(key)
        self._state.board.resumed(key)
        self._state.agenda.look([key.live_key])

    def abort_procedure(self, key: Key) -> None:
        """Let the running procedure of this resource take back what it can, and stop."""
        running = self._state.keeper.of(key.live_key)
        if running is None:
            raise Refused((f"no procedure of {key} is running",))
        if not running.halt.abortable:
            why = "is beyond the point of no return (or an earlier process began it), and goes on to its end"
            raise Refused((f"the procedure of {key} {why}: `reconciler procedure list` shows where it is",))
        running.halt.abort(BY_REQUEST)

    def retry_procedure(self, key: Key) -> None:
        """Let an aborted or failed procedure of this resource begin again."""
        self._must_lead()
        self._must_be_declared(key)
        if key.live_key not in self._state.aborted and not self._state.agenda.failed_before(key.live_key):
            raise Refused((f"no procedure of {key} was aborted or has failed",))
        self._state.aborted.pop(key.live_key, None)
        self._state.board.retried(key)
        self.reconcile(key)

    async def operate(self, request: ConsumerRequest) -> dict[str, Any]:
        """Pause, resume or move a consumer now; the server's answer."""
        self._must_lead()
        return await self._requests.carry_out(request)

    async def disown(self, key: Key, holder: str) -> dict[str, Any]:
        """Take our marks off what stays as it is."""
        self._must_lead()
        return await self._requests.disown(key, holder)

    def _must_lead(self) -> None:
        if not self._state.leading:
            leader = self._state.leader or "which is not known (see `reconciler lease show`)"
            raise Refused((f"this process does not hold the lease; ask the leader, {leader}",))

    def _must_be_declared(self, key: Key) -> Key:
        """The key it is declared under: a bucket may be asked for as its stream."""
        declared = self._state.resource(key.live_key)
        if declared is None:
            msg = f"{key} is not declared"
            raise UsageError(msg)
        return declared.key
