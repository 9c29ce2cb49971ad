"""kick-source: take an entry that does not attach away for a moment, and put it back, so that the server attaches it at once.

A server that did not get through to a durable tries again after 40 seconds, later after two minutes. An entry that is put back is
attached at once, and what is stored already is not stored again:

    detach (a placeholder for the entry) ▸ attach (the entry again) ▸ see whether something is heard

Invariant: which of the two is next follows from the entries that are live; a placeholder that a crash leaves says which durable
it stands for, and whoever looks next puts the entry back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from reconciler.model.identity import Key
from reconciler.model.normal import Config, normal_source
from reconciler.model.sourcing import detached, placeholder
from reconciler.procedures.machine import Abort, Ask, Description, Do, Done, Observation, Step, Wait
from reconciler.procedures.requests import ConsumerInfo, StreamInfo, UpdateStream
from reconciler.sources.look import told_of
from reconciler.sources.migration.pairs import led_lately

NAME = "kick-source"
HEARD = 2 * 10**9
PATIENCE = 4 * 10**9
"""After an attachment that works, something is heard within a fraction of a second."""
POLL = 500 * 10**6


@dataclass(frozen=True, slots=True)
class _Memory:
    """What spares the machine a second kick."""

    attached_at: int = 0


@dataclass(frozen=True, slots=True)
class KickSource:
    """Takes one entry away and puts it back."""

    key: Key
    """The stream that copies."""
    entry: bytes
    """The live entry (JSON), as it shall be again."""
    durable: Key
    name: str = field(default=NAME, init=False)

    @property
    def touches(self) -> tuple[Key, ...]:
        """The durable that it reads through."""
        return (self.durable,)

    def describe(self) -> Description:
        """What the plan prints."""
        return Description(NAME, ("detach", "attach", "see whether it flows"))

    def step(self, observation: Observation, memory: Any) -> Step:  # noqa: ANN401 - see Memory
        """The next thing to do."""
        known: _Memory = memory or _Memory()
        if observation.failure:
            return Abort("refused", observation.failure)
        stream, durable = StreamInfo(self.key.stream_key), ConsumerInfo(self.durable)
        if stream not in observation.facts or durable not in observation.facts:
            return Ask((stream, durable), known)
        seen, through = observation.facts[stream], observation.facts[durable]
        if isinstance(seen, dict) and isinstance(through, dict):
            return self._go_on(seen, through, observation.now, known)
        return Abort("missing", f"{self.durable if isinstance(seen, dict) else self.key} is gone")

    def _go_on(self, seen: Mapping[str, Any], durable: Mapping[str, Any], now: int, known: _Memory) -> Step:
        config: Config = seen["config"]
        sources: list[Config] = list(config.get("sources") or ())
        entry = orjson.loads(self.entry)
        at = self._at(sources, entry)
        if at is None:
            return Abort("moved", f"{self.key} has other sources by now")
        if led_lately(dict(seen)) and (detached(sources[at]) or not known.attached_at):
            return Wait(now + POLL, "the leaders stay the same", known)
        if detached(sources[at]):
            sources[at] = entry
            return self._put(config, sources, f"attach {self.durable.name}", _Memory(now))
        if self._flows(seen, entry, durable):
            return Done(("it flows",))
        if not known.attached_at:
            sources[at] = placeholder(entry)
            return self._put(config, sources, f"detach {self.durable.name}", known)
        if now - known.attached_at < PATIENCE:
            return Wait(now + POLL, "something is heard", known)
        return Done(("it does not flow yet",))

    def _at(self, sources: list[Config], entry: Config) -> int | None:
        """Where the entry is, or what stands for it."""
        wanted = normal_source(entry), normal_source(placeholder(entry))
        return next((index for index, one in enumerate(sources) if normal_source(one) in wanted), None)

    def _put(self, config: Config, sources: list[Config], title: str, memory: _Memory) -> Do:
        return Do(UpdateStream(self.key.stream_key, orjson.dumps({**config, "sources": sources})), title, memory)

    def _flows(self, seen: Mapping[str, Any], entry: Config, durable: Mapping[str, Any]) -> bool:
        told = told_of(seen, entry)
        return durable.get("push_bound") is True and told is not None and 0 <= told["active"] <= HEARD
