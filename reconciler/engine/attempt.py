"""One change of one request: what to send, what an unknown outcome turns out to be, and whether a delete is still right.

Invariants: after silence the live state is read before anything is sent again; nothing is deleted that is not what was judged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from reconciler.engine.ports import LiveReader
from reconciler.engine.sending import Sender, info_of
from reconciler.errors import ApiError, Moved, NoAnswer
from reconciler.model.identity import Key
from reconciler.model.live import LiveStream
from reconciler.model.normal import Config
from reconciler.model.subjects import covered
from reconciler.plan import losses
from reconciler.plan.change import Action, Change
from reconciler.plan.scene import Scene
from reconciler.procedures.move_subject import PLACEHOLDER
from reconciler.procedures.requests import (
    Absent,
    CreateConsumer,
    CreateStream,
    DeleteConsumer,
    DeleteStream,
    UpdateConsumer,
    UpdateStream,
    Write,
)

_SHRINKING = frozenset({"maxMsgs", "maxBytes", "maxMsgsPerSubject", "maxAge", "retention"})
_OTHER_CONFIG = {10058, 10148}
_NOT_THERE = {10059, 10014, 10149}


@dataclass(slots=True, eq=False)
class Attempt:
    """A change on its way, tried as often as needed."""

    change: Change
    started: float | None = None
    """When it was first tried."""
    silence: NoAnswer | None = None
    """The last write got no answer: it may have been executed."""
    deleted: bool = False
    """The first half of a recreate is done."""


class SingleRequests:
    """Carries out changes that need no procedure."""

    def __init__(self, reader: LiveReader, sender: Sender, scene: Scene) -> None:
        self._reader = reader
        self._sender = sender
        self._scene = scene

    async def advance(self, attempt: Attempt) -> None:
        """One try; returns when the change is in place, raises NatsError otherwise."""
        change = attempt.change
        if attempt.silence and await self._arrived(attempt):
            return
        if change.action in (Action.DELETE, Action.RECREATE) and not attempt.deleted:
            await self._delete(attempt)
        elif _SHRINKING & {field.path for field in change.fields} and change.key.is_stream:
            await self._still_room(change)
        if change.action is not Action.DELETE:
            await self._send(attempt, _put(change))

    async def _send(self, attempt: Attempt, write: Write) -> None:
        attempt.silence = None
        try:
            await self._sender.send(write, attempt.change.level)
        except NoAnswer as error:
            attempt.silence = error
            raise
        except ApiError as error:
            if meaning := _out_of_date(error, attempt.change):
                msg = f"{meaning}; plan again ({error})"
                raise Moved(msg) from error
            raise

    async def _arrived(self, attempt: Attempt) -> bool:
        """After silence: whether the request was executed after all. Silence again raises, and changes nothing."""
        change = attempt.change
        fact = await self._reader.read(info_of(change.key))
        attempt.silence = None
        if isinstance(fact, Absent):
            attempt.deleted = change.action in (Action.DELETE, Action.RECREATE)
            return change.action is Action.DELETE
        if change.action is Action.DELETE:
            return False
        return isinstance(fact, dict) and self._sender.same(change.key, change.config, fact["config"])

    async def _delete(self, attempt: Attempt) -> None:
        key = attempt.change.key
        fact = await self._reader.read(info_of(key))
        if isinstance(fact, dict):
            self._still_as_judged(key, fact)
            await self._remove(attempt, DeleteConsumer(key) if key.kind == "Consumer" else DeleteStream(key))
        attempt.deleted = True

    async def _remove(self, attempt: Attempt, write: Write) -> None:
        try:
            await self._send(attempt, write)
        except ApiError as error:
            if not error.absent:
                raise

    async def _still_room(self, change: Change) -> None:
        """What drops nothing when it was judged may drop what was published since."""
        fact = await self._reader.read(info_of(change.key))
        if isinstance(fact, dict) and not self._scene.allows(losses.DATA_LOSS, change.key):
            wanted = self._scene.normal(change.key, orjson.loads(change.config))
            for reason in losses.shrinking_stream(self._scene, change.key, LiveStream.seen(fact), wanted):
                msg = f"{change.key} is no longer what was planned: {reason}; plan again"
                raise Moved(msg)

    def _still_as_judged(self, key: Key, now: dict[str, Any]) -> None:
        judged = self._scene.seen(key)
        if judged is None:
            msg = f"{key} was not there when it was planned; plan again"
            raise Moved(msg)
        found = list(differences(judged.info, now))
        if self._sender.normal(key, judged.config) != self._sender.normal(key, _still_listening(judged.config, now["config"])):
            found.append("its configuration changed")
        if found:
            msg = f"{key} is no longer what was planned: {', '.join(found)}; plan again"
            raise Moved(msg)


def differences(judged: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    """What makes a planned removal wrong: another resource of that name, or something to lose where there was nothing.

    What held messages when it was judged may hold others now: their loss was allowed.
    """
    if judged.get("created") != now.get("created"):
        yield "it was removed and made anew"
    before, after = judged.get("state", judged), now.get("state", now)
    counts = {"messages": "messages", "num_pending": "messages to deliver", "num_ack_pending": "unacknowledged messages"}
    for field, name in counts.items():
        if not before.get(field) and after.get(field):
            yield f"it has {after[field]} {name} now"
    if after.get("consumer_count", 0) > before.get("consumer_count", 0):
        yield f"it has {after['consumer_count']} consumers now"


def _still_listening(judged: Config, now: Config) -> Config:
    """What is there now, but with the subjects it was judged with when it listens to less: a move took them away from it."""
    held = judged.get("subjects") or ()
    less = all(covered(subject, held) or subject.startswith(PLACEHOLDER) for subject in now.get("subjects") or ())
    return {**now, "subjects": held} if held and less else now


def _put(change: Change) -> Write:
    creates = change.action in (Action.CREATE, Action.RECREATE)
    if change.key.kind == "Consumer":
        return CreateConsumer(change.key, change.config) if creates else UpdateConsumer(change.key, change.config)
    return CreateStream(change.key, change.config) if creates else UpdateStream(change.key, change.config)


def _out_of_date(error: ApiError, change: Change) -> str:
    """What the server's answer says about the plan; empty when it says nothing about it."""
    if error.err_code in _OTHER_CONFIG:
        return f"{change.key} was created by somebody else since it was planned"
    if error.err_code in _NOT_THERE and change.action in (Action.UPDATE, Action.ADOPT):
        return f"{change.key} has gone since it was planned"
    return ""
