"""One change of one request (a stream that is made anew: of two), and what the server's no says about the plan."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.engine.writing.judging import PlannedJudge
from reconciler.engine.writing.turns import Rank
from reconciler.engine.writing.writes import Order, PermitOf, Writes
from reconciler.errors import ApiError, Moved
from reconciler.plan.change import Action, Cause, Change
from reconciler.plan.scene import Scene
from reconciler.procedures.requests import (
    CreateConsumer,
    CreateStream,
    DeleteConsumer,
    DeleteStream,
    UpdateConsumer,
    UpdateStream,
    Write,
)

_DELETES = (Action.DELETE, Action.RECREATE)
_CREATES = (Action.CREATE, Action.RECREATE)
_OTHER_CONFIG = {10058, 10148}
_NOT_THERE = {10059, 10014, 10149}


class SingleRequests:
    """Carries out changes that need no procedure."""

    def __init__(self, writes: Writes, scene: Scene, permit_of: PermitOf) -> None:
        self._writes = writes
        self._scene = scene
        self._permit_of = permit_of

    async def carry_out(self, change: Change) -> None:
        """One try; returns when the change is in place, raises NatsError and what the permit raises otherwise."""
        order = Order(
            permit=self._permit_of(change.members),
            judge=PlannedJudge(self._writes.reader, self._scene, change),
            normal=self._scene.normal,
            rank=Rank.REPAIR if change.cause is Cause.DRIFT else Rank.COMMIT,
            level=change.level,
        )
        for write in _requests(change):
            try:
                await self._writes.send(write, order)
            except ApiError as error:
                if error.absent and isinstance(write, DeleteStream | DeleteConsumer):
                    continue
                if meaning := _out_of_date(error, change):
                    msg = f"{meaning}; plan again ({error})"
                    raise Moved(msg) from error
                raise


def _requests(change: Change) -> Iterator[Write]:
    key, of_consumer = change.key, change.key.kind == "Consumer"
    if change.action in _DELETES:
        yield DeleteConsumer(key) if of_consumer else DeleteStream(key)
    if change.action in _CREATES:
        yield CreateConsumer(key, change.config) if of_consumer else CreateStream(key, change.config)
    elif change.action is not Action.DELETE:
        yield UpdateConsumer(key, change.config) if of_consumer else UpdateStream(key, change.config)


def _out_of_date(error: ApiError, change: Change) -> str:
    """What the server's answer says about the plan; empty when it says nothing about it."""
    if error.err_code in _OTHER_CONFIG:
        return f"{change.key} was created by somebody else since it was planned"
    if error.err_code in _NOT_THERE and change.action in (Action.UPDATE, Action.ADOPT):
        return f"{change.key} has gone since it was planned"
    return ""
