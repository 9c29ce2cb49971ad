"""What was judged a moment ago is judged again on a fresh look, just before it is sent.

A change of one request: `created`, owner and configuration must be what the plan saw, and planning (`plan.again`, its questions
asked anew) must not object. There is no other copy of a rule about losses.
A step of a procedure: what it was computed from must still stand.
Invariant: nothing here writes; whatever has changed raises Moved, and who planned it plans anew.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from reconciler.engine.planning import ROUNDS, answered, given_up
from reconciler.engine.ports import LiveReader
from reconciler.engine.writing.echo import same
from reconciler.engine.writing.writes import info_of
from reconciler.errors import Moved, NoAnswer
from reconciler.model.identity import Key
from reconciler.model.marker import read_marker
from reconciler.model.normal import Config, packed
from reconciler.model.seen.live import Live, LiveConsumer, LiveStream, Patch
from reconciler.plan.again import beside, decide_again, takers
from reconciler.plan.change import Action, Change
from reconciler.plan.scene import Scene, Seen
from reconciler.procedures.consumer import ConsumerSeen
from reconciler.procedures.requests import (
    Absent,
    ConsumerInfo,
    DeleteConsumer,
    DeleteStream,
    Fact,
    PurgeStream,
    Put,
    Read,
    StreamInfo,
    Write,
    changed_by,
    changes_what_exists,
)

_NOBODY: frozenset[Key] = frozenset()
_SERVERS = frozenset({"_nats.level", "_nats.req.level", "_nats.ver"})
"""What a server notes about itself beside a configuration."""


class PlannedJudge:
    """Judges the request of a change by the rules of planning."""

    def __init__(self, reader: LiveReader, scene: Scene, change: Change) -> None:
        self._reader = reader
        self._scene = scene
        self._change = change
        self._others = _NOBODY if change.action is Action.CREATE else beside(scene, change)
        """What is looked at beside it; worked out before it has the turn."""

    async def judged(self, write: Write) -> Write | None:
        """The write, or None when it is in place; raises Moved."""
        key = changed_by(write)
        fresh = await self._look(write)
        if fresh is None:
            return write
        now = fresh.seen(key)
        if now is None:
            if isinstance(write, DeleteStream | DeleteConsumer):
                return None
            if changes_what_exists(write):
                raise _moved(key, ["it has gone"])
            return write
        found = self._differences(key, self._scene.seen(key), now)
        if found and isinstance(write, Put) and same(key, write.config, now.config, self._scene.normal):
            return None
        if changes_what_exists(write):
            if found:
                raise _moved(key, found)
            await self._still_wanted(fresh)
        return write

    async def _look(self, write: Write) -> Live | None:
        """What was planned with, and what is there now of all that the rules look at; None: the very same, which was judged."""
        key, live = changed_by(write).live_key, self._scene.live
        if self._others and changes_what_exists(write):
            patch = await self._reader.refresh(live, {key, *self._others})
            if patch.unknown:
                silent, why = next(iter(patch.unknown.items()))
                await self._reader.read(info_of(silent))  # which says it by its own error, as when it may not be asked at all
                msg = f"{silent}: {why}"
                raise NoAnswer(msg)
            return live.patched(patch)
        at = time.time_ns()
        before = live.consumer(key) if key.kind == "Consumer" else None
        if before is not None:
            found = await self._reader.changed(key, before)
            return live.patched(Patch(at=at, consumers={key: self._consumer(key, found)})) if found is not None else None
        fact = await self._reader.read(info_of(key))
        if key.kind == "Consumer":
            return live.patched(Patch(at=at, consumers={key: self._consumer(key, fact)}))
        return live.patched(Patch(at=at, streams={key: LiveStream.seen(fact) if isinstance(fact, dict) else None}))

    def _consumer(self, key: Key, fact: Fact) -> LiveConsumer | None:
        """What is seen; of a configuration that is the same, nothing is worked out again."""
        if not isinstance(fact, dict):
            return None
        before = self._scene.live.consumer(key)
        if before is None or _set(before.config) != _set(fact["config"]):
            return LiveConsumer.seen(fact)
        return replace(before, head=packed(fact), state=b"")

    def _differences(self, key: Key, before: Seen | None, now: Seen) -> list[str]:
        """What has changed that a plan relies on."""
        if before is None:
            return ["it was not there"]
        found = []
        then, since = before.info, now.info
        if then["created"] != since["created"]:
            found.append("it was removed and made anew")
        if before.owner != now.owner:
            found.append(f"it belongs to {now.owner or 'nobody'} now")
        if _set(then["config"]) == _set(since["config"]):
            return found  # nearly always; what follows costs more
        was, shall = then["config"], since["config"]
        marked = read_marker(was.get("metadata"), key.mark) == read_marker(shall.get("metadata"), key.mark)
        if not marked or self._scene.normal(key, was) != self._scene.normal(key, shall):
            found.append("its configuration changed")
        return found

    async def _still_wanted(self, live: Live) -> None:
        """Planning, with the answers to its questions, must not say no to what it said yes to."""
        live = replace(live, facts={})
        for number in range(ROUNDS + 2):
            scene = self._scene.at(live, {self._change.key: takers(self._change)})
            again = decide_again(scene, self._change)
            if not scene.open:
                break
            live = await answered(live, scene.open, self._reader) if number < ROUNDS else given_up(live, scene.open)
        key = self._change.key
        if why := scene.silent.get(key) or scene.silent.get(key.live_key):
            raise _moved(key, [f"what it depends on could not be read: {why}"])
        if again is not None and again.action is Action.BLOCKED:
            raise _moved(key, map(str, again.reasons))


def _set(config: Config) -> Config:
    """What somebody has set: a list leaves out what the server notes beside it, and INFO does not."""
    metadata = {name: value for name, value in (config.get("metadata") or {}).items() if name not in _SERVERS}
    return {**config, "metadata": metadata}


class StepJudge:
    """Judges the step of a procedure by the facts that it was computed from."""

    def __init__(self, reader: LiveReader, facts: Mapping[Read, Fact]) -> None:
        self._reader = reader
        self._facts = facts

    async def judged(self, write: Write) -> Write | None:
        """The write; raises Moved."""
        reads = list(self._involved(write))
        answers = await asyncio.gather(*(self._reader.read(read) for read in reads))
        found = [what for read, now in zip(reads, answers, strict=True) for what in _fallen(read, self._facts.get(read), now)]
        if found:
            raise _moved(changed_by(write), found)
        return write

    def _involved(self, write: Write) -> Iterator[Read]:
        """What it changes, and what was held still for it."""
        key = changed_by(write)
        yield info_of(key)
        for read, fact in self._facts.items():
            if not isinstance(read, ConsumerInfo) or read.consumer == key or not isinstance(fact, dict):
                continue
            purged = isinstance(write, PurgeStream) and read.consumer.stream_key == key
            if fact.get("paused") is True or purged:
                yield read


def _fallen(read: Read, given: Fact | None, now: Fact) -> Iterator[str]:
    """What does not stand any more."""
    if given is None or not isinstance(read, ConsumerInfo | StreamInfo):
        return
    name = read.consumer if isinstance(read, ConsumerInfo) else read.stream
    if not isinstance(given, dict) or not isinstance(now, dict):
        if isinstance(given, Absent) != isinstance(now, Absent):
            yield f"{name} has {'gone' if isinstance(now, Absent) else 'come'}"
        return
    if given["created"] != now["created"]:
        yield f"{name} was removed and made anew"
    if given["config"] != now["config"]:
        yield f"the configuration of {name} changed"
    if isinstance(read, ConsumerInfo):
        yield from _moving(name, given, now)


def _moving(name: Key, given: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    if given.get("paused") is True and now.get("paused") is not True:
        yield f"{name} is not paused any more"
    if ConsumerSeen(now).floor < ConsumerSeen(given).floor:
        yield f"{name} was moved back"


def _moved(key: Key, found: Iterable[str]) -> Moved:
    return Moved(f"{key} is no longer what was planned: {'; '.join(found)}; plan again")
