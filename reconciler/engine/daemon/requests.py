"""What a person wants done to one resource, carried out by the daemon that holds the lease: a change like any other.

Invariant: the same checks and words as without a daemon, and nobody else works on the resource meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from reconciler.engine.daemon.state import DaemonState
from reconciler.engine.disowning import Disowning
from reconciler.engine.operating import Operator, judged, still_agreed
from reconciler.engine.ports import Ports
from reconciler.engine.writing.permit import permits
from reconciler.engine.writing.writes import Permit
from reconciler.errors import NatsError, Refused
from reconciler.jetstream.domains import DomainApis
from reconciler.model.identity import Key
from reconciler.observe.http.controls import ConsumerRequest


class Requests:
    """What people ask for."""

    def __init__(self, state: DaemonState, ports: Ports, apis: DomainApis, holder: str) -> None:
        self._state = state
        self._ports = ports
        self._apis = apis
        self._holder = holder

    async def carry_out(self, request: ConsumerRequest) -> dict[str, Any]:
        """What was asked of a consumer: the server's answer; raises Refused."""
        with self._working_on(request.key, request.holder) as permit:
            operator = Operator(self._apis, self._ports.reader, request.key, self._owner)
            decision = judged(request.command, await operator.look(request.command))
            still_agreed(request.key, decision, request.agreed)
            answer = await operator.send(self._ports.writes, permit, request.command, decision)
        return {"key": str(request.key), "changed": answer is not None, "answer": answer}

    async def disown(self, key: Key, holder: str) -> dict[str, Any]:
        """Our marks go, the resource stays; raises Refused."""
        if self._state.resource(key.live_key) is not None:
            raise Refused((f"{key} is declared, and would be taken up again at once: take it out of the manifests first",))
        with self._working_on(key, holder) as permit:
            await Disowning(self._ports.reader, key, self._owner).carry_out(self._ports.writes, permit)
        self._state.agenda.everything("request")
        return {"key": str(key), "changed": True}

    @property
    def _owner(self) -> str:
        return self._state.board.process.owner

    @contextmanager
    def _working_on(self, key: Key, holder: str) -> Iterator[Permit]:
        """Nobody else does meanwhile; `holder` is the process that is meant."""
        state, live = self._state, key.live_key
        if holder != self._holder:
            raise Refused(("another process holds the lease that is meant: give the URL of that daemon with --daemon",))
        if state.keeper.owns(live) or live in state.busy:
            raise Refused((f"{key} is just being changed: try again in a moment",))
        state.busy.add(live)
        try:
            yield permits(self._ports.lease, state, state.term, state.desired)([live])
        except NatsError as error:
            raise Refused((str(error),)) from error
        finally:
            state.busy.discard(live)
