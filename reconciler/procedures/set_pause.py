"""set-pause: pause or resume a consumer as its manifest says, and remember in the marker that it was us.

Invariants: a pause that a person set is never lifted: only the deadline we remember may be resumed. So a deadline is remembered
before it is set, and forgotten after it was lifted: whoever goes on after a crash knows whose it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reconciler.model import units
from reconciler.model.identity import Key
from reconciler.model.marker import read_marker
from reconciler.procedures.machine import Abort, Ask, Description, Do, Done, Observation, Step
from reconciler.procedures.requests import ConsumerInfo, PauseConsumer, UpdateConsumer

NAME = "set-pause"


@dataclass(frozen=True, slots=True)
class SetPause:
    """Brings a consumer to its target and its pause to the declared deadline."""

    key: Key
    config: bytes
    """Wire JSON, marker included: it remembers `until`."""
    until: str
    """The declared deadline; empty: not declared any more."""
    remembered: str = ""
    """The deadline that we set before."""
    name: str = NAME
    touches: tuple[Key, ...] = ()

    def describe(self) -> Description:
        """What the plan prints."""
        if self.until:
            return Description(NAME, ("remember it in the marker", f"pause until {self.until}"))
        return Description(NAME, ("resume, if it is still paused by us", "remember it in the marker"))

    def step(self, observation: Observation, memory: Any) -> Step:  # noqa: ANN401 - the set of steps already taken
        """The next thing to do."""
        done: frozenset[str] = memory or frozenset()
        if observation.failure:
            return Abort("refused", observation.failure)
        fact = observation.facts.get(ConsumerInfo(self.key))
        if fact is None:
            return Ask((ConsumerInfo(self.key),), done)
        if not isinstance(fact, dict):
            return Abort("missing", f"{self.key} is gone")
        live = fact["config"].get("pause_until")
        paused_until = units.format_time(units.parse_time(live)) if live else ""
        pause = "pause" not in done and self._differs(paused_until, paused=fact.get("paused") is True)
        update = "update" not in done and read_marker(fact["config"].get("metadata"), self.key.mark).pause_until != self.until
        if update and (self.until or not pause):
            return Do(UpdateConsumer(self.key, self.config), "remember the pause", done | {"update"})
        if pause:
            title = f"pause until {self.until}" if self.until else "resume"
            return Do(PauseConsumer(self.key, self.until), title, done | {"pause"})
        return Done()

    def _differs(self, live: str, *, paused: bool) -> bool:
        if self.until:
            return live != self.until or not paused
        return paused and live == self.remembered
