"""let-go: a durable that was caught up in the migration of a stream that is gone runs again, as it is declared.

Invariant: nobody reads through it any more, so it matters to nobody where it stands.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reconciler.model.identity import Key
from reconciler.procedures.consumer import ConsumerSeen
from reconciler.procedures.machine import Abort, Ask, Description, Done, Observation, Step
from reconciler.procedures.pause import let_go
from reconciler.procedures.requests import ConsumerInfo

NAME = "let-go"


@dataclass(frozen=True, slots=True)
class LetGo:
    """Ends the pause, and clears the journal."""

    key: Key
    name: str = NAME
    touches: tuple[Key, ...] = ()

    def describe(self) -> Description:
        """What the plan prints."""
        return Description(NAME, (f"resume {self.key.name}", f"clear the journal of {self.key.name}"))

    def step(self, observation: Observation, memory: Any) -> Step:  # noqa: ANN401 - it remembers nothing
        """The next thing to do."""
        if observation.failure:
            return Abort("refused", observation.failure)
        read = ConsumerInfo(self.key)
        fact = observation.facts.get(read)
        if fact is None:
            return Ask((read,), memory)
        return (let_go(self.key, ConsumerSeen(fact)) if isinstance(fact, dict) else None) or Done()
