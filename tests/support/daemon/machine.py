"""A procedure made of one function, for what the supervisor does with any procedure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from reconciler.model.identity import Key
from reconciler.procedures.machine import Description, Observation, Step

STREAM = Key("Stream", "S")


@dataclass(frozen=True)
class Machine:
    """A procedure made of one function."""

    think: Callable[[Observation, Any], Step]
    name: str = "test"
    key: Key = STREAM
    touches: tuple[Key, ...] = ()

    def describe(self) -> Description:
        """What the plan prints."""
        return Description(self.name)

    def step(self, observation: Observation, memory: Any) -> Step:
        """The next thing to do."""
        return self.think(observation, memory)
