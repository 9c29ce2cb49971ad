"""Which looks count: one that goes back behind what was written, or was seen before, is none.

In a cluster an answer may come from a leader that was elected a moment ago, or does not know yet that it leads no more. A step
is done when a look shows it: the configuration with its marker, the pause, the position; and what only ever grows has not
fallen. Until then nothing is concluded, and after a while somebody else must have undone it, which is believed.

Invariant: a machine is given no look that lacks a write of its own, as long as that can be told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from reconciler.model import units
from reconciler.model.identity import Key
from reconciler.model.marker import PROCEDURE
from reconciler.model.normal import Config, canonical, normal_source
from reconciler.procedures.consumer import ConsumerSeen
from reconciler.procedures.machine import Abort, Ask, Description, Do, Observation, Procedure, Step, Wait
from reconciler.procedures.requests import (
    Absent,
    ConsumerInfo,
    Copied,
    CreateConsumer,
    CreateStream,
    DeleteConsumer,
    Fact,
    LastCopied,
    PauseConsumer,
    Read,
    ResetConsumer,
    StreamInfo,
    UpdateConsumer,
    UpdateStream,
    Write,
)

PATIENCE = 5 * 10**9
"""How long a leader may take to catch up; then what it shows is what somebody else has done."""
POLL = 100 * 10**6
_SERVERS_OWN = "_nats."


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of one stream or consumer."""

    config: bytes = b""
    """What was written last; empty: nothing was."""
    pause: str | None = None
    """The pause that was asked for last; None: none was, empty: its end."""
    start: int = 0
    """The position that was asked for and not seen yet."""
    gone: bool = False
    """It was deleted."""
    created: str = ""
    """When it was made, as seen last."""
    reached: int = 0
    """Its ack floor, or last sequence, as seen last."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a machine remembers, and what its looks have to show."""

    memory: Any = None
    known: Mapping[Key, Known] = field(default_factory=dict)
    copied: Mapping[LastCopied, int] = field(default_factory=dict)
    sent: Write | None = None
    """Until it is known not to have been refused."""
    doubted: int = 0
    """Since when looks do not count."""
    behind: tuple[Read, ...] = ()
    """What went back in them: a look without it says nothing about that."""


@dataclass(frozen=True, slots=True)
class Looking:
    """A machine that is only given looks that count."""

    machine: Procedure

    @property
    def name(self) -> str:
        """As users know it."""
        return self.machine.name

    @property
    def key(self) -> Key:
        """The resource whose change this is."""
        return self.machine.key

    @property
    def touches(self) -> tuple[Key, ...]:
        """Every other key nobody else may act on meanwhile."""
        return self.machine.touches

    def describe(self) -> Description:
        """What the plan prints."""
        return self.machine.describe()

    def step(self, observation: Observation, memory: Seen | None) -> Step:
        """The next thing to do."""
        seen = memory or Seen()
        if seen.sent:
            seen = replace(seen if observation.failure else _written(seen, seen.sent), sent=None)
        behind = [read for read, fact in observation.facts.items() if _goes_back(seen, read, fact)]
        if behind and observation.now - (seen.doubted or observation.now) < PATIENCE:
            doubting = replace(seen, doubted=seen.doubted or observation.now, behind=tuple(behind))
            return Wait(observation.now + POLL, "a leader catches up", doubting)
        if observation.facts:
            believed = {key: known for key, known in seen.known.items() if key not in map(_about, behind)}
            if not seen.doubted or any(read in observation.facts for read in seen.behind):
                seen = replace(seen, doubted=0, behind=())
            seen = _noted(replace(seen, known=believed), observation.facts)
        damaged = next(filter(None, map(self._damage, observation.facts.items())), "")
        if damaged:
            return Abort("damaged-mark", damaged)
        step = self.machine.step(observation, seen.memory)
        if isinstance(step, Do):
            return replace(step, memory=replace(seen, memory=step.memory, sent=step.write))
        if isinstance(step, Ask | Wait):
            return replace(step, memory=replace(seen, memory=step.memory))
        return step

    def _damage(self, found: tuple[Read, Fact]) -> str:
        """What of a journal makes no sense that somebody damaged meanwhile: to go on without it may do everything again."""
        read, fact = found
        if not (isinstance(read, ConsumerInfo) and isinstance(fact, dict) and read.consumer in (self.key, *self.touches)):
            return ""
        damaged = ConsumerSeen(fact).marker.damaged.get(PROCEDURE, "")
        return f"what our mark on {read.consumer} says makes no sense: {PROCEDURE}: {damaged}" if damaged else ""


def _written(seen: Seen, write: Write) -> Seen:
    """With what looks have to show from now on."""
    match write:
        case CreateStream(key, config) | UpdateStream(key, config) | UpdateConsumer(key, config):
            known = replace(seen.known.get(key, Known()), config=config, gone=False)
            known = replace(known, created="", reached=0) if isinstance(write, CreateStream) else known
        case CreateConsumer(key, config):
            known = Known(config, orjson.loads(config).get("pause_until") or "")
        case PauseConsumer(key, until):
            known = replace(seen.known.get(key, Known()), pause=until)
        case ResetConsumer(key, start):
            known = replace(seen.known.get(key, Known()), start=start, reached=0)
        case DeleteConsumer(key):
            known = Known(gone=True, created=seen.known.get(key, Known()).created)
        case _:
            return seen
    return replace(seen, known={**seen.known, key: known})


def _goes_back(seen: Seen, read: Read, fact: Fact) -> bool:
    if isinstance(read, LastCopied):
        return isinstance(fact, Copied) and fact.seq < seen.copied.get(read, 0)
    known = seen.known.get(_about(read)) if isinstance(read, StreamInfo | ConsumerInfo) else None
    if known is None:
        return False
    if not isinstance(fact, dict):
        return isinstance(fact, Absent) and not known.gone and bool(known.config or known.created)
    created = fact.get("created", "")
    if known.gone:
        return bool(created == known.created)
    if known.created and created != known.created:
        return bool(units.parse_time(created) < units.parse_time(known.created))
    return _lacks(known, fact) or 0 < _reached(read, fact) < known.reached


def _lacks(known: Known, info: Config) -> bool:
    """Whether a look does not show something that was written."""
    if known.config and _told(info["config"]) != _told(orjson.loads(known.config)):
        return True
    if "delivered" not in info:
        return False
    consumer = ConsumerSeen(info)
    if known.pause and consumer.time < (until := units.parse_time(known.pause)) and consumer.pause_until != until:
        return True
    if known.pause == "" and consumer.paused:
        return True
    return bool(known.start) and (
        consumer.delivered + 1 < known.start or (consumer.paused and consumer.delivered + 1 != known.start)
    )


def _told(config: Mapping[str, Any]) -> tuple[Any, ...]:
    """What of a configuration tells it from the one before."""
    metadata = {name: text for name, text in (config.get("metadata") or {}).items() if not name.startswith(_SERVERS_OWN)}
    entries = sorted(canonical(normal_source(entry)) for entry in config.get("sources") or ())
    return metadata, sorted(config.get("subjects") or ()), entries


def _noted(seen: Seen, facts: Mapping[Read, Fact]) -> Seen:
    """With what looks have shown."""
    known, copied = dict(seen.known), dict(seen.copied)
    for read, fact in facts.items():
        if isinstance(read, LastCopied) and isinstance(fact, Copied):
            copied[read] = fact.seq
        elif isinstance(read, StreamInfo | ConsumerInfo) and isinstance(fact, dict):
            key, created = _about(read), fact.get("created", "")
            before = known.get(key, Known())
            before = replace(before, gone=False) if created == before.created or not before.gone else Known()
            known[key] = replace(before, created=created, reached=_reached(read, fact), start=0)
        elif isinstance(read, StreamInfo | ConsumerInfo):
            known[_about(read)] = Known(gone=True, created=known.get(_about(read), Known()).created)
    return replace(seen, known=known, copied=copied)


def _about(read: Read) -> Key:
    return read.consumer if isinstance(read, ConsumerInfo) else read.stream


def _reached(read: Read, info: Config) -> int:
    return int(info["state"]["last_seq"] if isinstance(read, StreamInfo) else ConsumerSeen(info).floor)
