"""move-subject: subjects change the stream that stores them.

No two streams may listen on one subject (10065), so every loser sheds what others gain before anybody grows:

    shrink the losers ▸ grow or create the gainers, to their full target ▸ bring the losers to their full target

If the server refuses one of these for good, the same three phases run towards the configurations seen at the start.

Invariant: the next step follows from the streams as they are, whatever path led there. So nothing is journalled: after a
crash a new machine, or plain updates, reach the same end. (Only taking back needs the memory of the start.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import orjson

from reconciler.model.api import LATEST_LEVEL
from reconciler.model.flow import listened
from reconciler.model.identity import Key
from reconciler.model.marker import read_marker
from reconciler.model.normal import Config, normal_stream
from reconciler.model.subjects import covered, overlap
from reconciler.procedures.machine import Abort, Ask, Description, Do, Done, Observation, Step
from reconciler.procedures.requests import CreateStream, Fact, Read, StreamInfo, UpdateStream

NAME = "move-subject"
PLACEHOLDER = "_moved."


@dataclass(frozen=True, slots=True)
class StreamTarget:
    """One stream that takes part."""

    key: Key
    config: bytes
    """Wire JSON, marker included; empty for a stream that only has to let go, e.g. because it is deleted afterwards."""

    @property
    def wire(self) -> Config:
        """The configuration, a fresh dict each time."""
        parsed: Config = orjson.loads(self.config) if self.config else {}
        return parsed

    @property
    def subjects(self) -> tuple[str, ...]:
        """What it shall store."""
        return tuple(listened(self.wire, self.key.stream_name)) if self.config else ()


@dataclass(frozen=True, slots=True)
class _Memory:
    """How it was before, and why it shall be so again."""

    before: tuple[StreamTarget, ...] = ()
    failure: str = ""


@dataclass(frozen=True, slots=True)
class MoveSubject:
    """Brings several streams to their targets, whose subjects meet the others' live ones."""

    streams: tuple[StreamTarget, ...]
    before: tuple[StreamTarget, ...] = ()
    """What a refusal takes them back to; by default what is found at the start, but a start may be the second one."""
    level: int = LATEST_LEVEL
    """The API level of the server, whose defaults decide what is equal."""
    name: str = field(default=NAME, init=False)

    @property
    def key(self) -> Key:
        """The first stream, in the order of names; the others are touched."""
        return min(target.key for target in self.streams)

    @property
    def touches(self) -> tuple[Key, ...]:
        """The other streams."""
        return tuple(sorted(target.key for target in self.streams if target.key != self.key))

    def describe(self) -> Description:
        """What the plan prints."""
        return Description(
            NAME,
            ("shrink the streams that lose subjects", "grow the streams that gain them", "update the rest"),
            notes=("publishing to a moving subject fails from the shrink to the grow; what is stored stays where it is",),
        )

    def step(self, observation: Observation, memory: _Memory | None) -> Step:
        """The next thing to do."""
        memory = memory or _Memory()
        if observation.failure:
            if memory.failure:
                return Abort("refused", f"{memory.failure}; and taking it back: {observation.failure}")
            memory = replace(memory, failure=observation.failure)
        reads = tuple(StreamInfo(target.key) for target in self.streams)
        if any(read not in observation.facts for read in reads):
            return Ask(reads, memory)
        live = {target.key: _live(target.key, observation.facts) for target in self.streams}
        if not memory.before:
            memory = replace(memory, before=self.before or tuple(_as_it_is(key, config) for key, config in live.items()))
        towards = memory.before if memory.failure else self.streams
        step = _shrink(towards, live, memory) or self._bring(towards, live, memory)
        if step:
            return step
        return Abort("refused", f"{memory.failure}; everything is as before") if memory.failure else Done()

    def _bring(self, towards: tuple[StreamTarget, ...], live: Mapping[Key, Config | None], memory: _Memory) -> Do | None:
        """The first stream that is not as it shall be, those that gain subjects before the others."""
        pending = [target for target in towards if target.config and not self._reached(target, live[target.key])]
        pending.sort(key=lambda target: (not _gains(target, live[target.key]), target.key))
        for target in pending:
            if live[target.key] is None:
                return Do(CreateStream(target.key, target.config), f"create {target.key.stream_name}", memory)
            return Do(UpdateStream(target.key, target.config), f"update {target.key.stream_name}", memory)
        return None

    def _reached(self, target: StreamTarget, config: Config | None) -> bool:
        if config is None:
            return False
        name = target.key.stream_name
        same = read_marker(config.get("metadata"), target.key.mark) == read_marker(target.wire.get("metadata"), target.key.mark)
        return same and normal_stream(config, name, self.level) == normal_stream(target.wire, name, self.level)


def _live(key: Key, facts: Mapping[Read, Fact]) -> Config | None:
    fact = facts[StreamInfo(key)]
    config: Config | None = fact["config"] if isinstance(fact, dict) else None
    return config


def _as_it_is(key: Key, config: Config | None) -> StreamTarget:
    return StreamTarget(key, orjson.dumps(config) if config else b"")


def _shrink(towards: tuple[StreamTarget, ...], live: Mapping[Key, Config | None], memory: _Memory) -> Do | None:
    """The first stream that stores what another one shall store gives it up; of its own it gains what is free already."""
    for target in towards:
        config = live[target.key]
        if config is None:
            continue
        claimed = [subject for other in towards if other.key != target.key for subject in other.subjects]
        kept = [subject for subject in listened(config, target.key.stream_name) if not _meets(subject, claimed)]
        if len(kept) == len(listened(config, target.key.stream_name)):
            continue
        others = [(key, other) for key, other in live.items() if other and key != target.key]
        taken = claimed + [subject for key, other in others for subject in listened(other, key.stream_name)]
        kept += [subject for subject in target.subjects if not _meets(subject, taken + kept)]
        if not kept and not (config.get("sources") or config.get("mirror")):
            kept = [PLACEHOLDER + target.key.stream_name]  # with none it would listen on its own name
        write = UpdateStream(target.key, orjson.dumps(config | {"subjects": kept}))
        return Do(write, f"shrink {target.key.stream_name}", memory)
    return None


def _meets(subject: str, others: list[str]) -> bool:
    return any(overlap(subject, other) for other in others)


def _gains(target: StreamTarget, config: Config | None) -> bool:
    has = listened(config, target.key.stream_name) if config else ()
    return any(not covered(subject, has) for subject in target.subjects)
