"""A person's command to a consumer, carried out by the daemon that holds the lease: a change like any other.

Invariant: the same checks and words as without a daemon, and nobody else works on the consumer meanwhile.
"""

from __future__ import annotations

from typing import Any

from reconciler.engine.daemon.state import State
from reconciler.engine.operating import Operator, judged, still_agreed
from reconciler.engine.ports import Ports
from reconciler.engine.writing.permit import permits
from reconciler.errors import NatsError, Refused
from reconciler.jetstream.domains import DomainApis
from reconciler.observe.http.controls import ConsumerRequest


class Requests:
    """What people ask of consumers."""

    def __init__(self, state: State, ports: Ports, apis: DomainApis, holder: str) -> None:
        self._state = state
        self._ports = ports
        self._apis = apis
        self._holder = holder

    async def carry_out(self, request: ConsumerRequest) -> dict[str, Any]:
        """The server's answer; raises Refused."""
        state, key = self._state, request.key
        if request.holder != self._holder:
            raise Refused(("another process holds the lease that is meant",))
        if state.keeper.owns(key) or key in state.busy:
            raise Refused((f"{key} is just being changed: try again in a moment",))
        state.busy.add(key)
        try:
            return await self._carried_out(request)
        except NatsError as error:
            raise Refused((str(error),)) from error
        finally:
            state.busy.discard(key)

    async def _carried_out(self, request: ConsumerRequest) -> dict[str, Any]:
        state, ports = self._state, self._ports
        operator = Operator(self._apis, ports.reader, request.key, state.board.process.owner)
        permit = permits(ports.lease, state, state.term, state.desired)([request.key])
        decision = judged(request.command, await operator.look(request.command))
        still_agreed(request.key, decision, request.agreed)
        answer = await operator.send(ports.writes, permit, request.command, decision)
        return {"key": str(request.key), "changed": answer is not None, "answer": answer}
