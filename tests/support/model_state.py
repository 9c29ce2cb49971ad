"""What the model server keeps: streams with their messages, consumers with the cursor that no INFO shows.

Invariant: pure state; who may do what is decided in the server.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from reconciler.model import subjects


@dataclass
class Stream:
    """Messages by sequence."""

    config: dict[str, Any]
    messages: dict[int, tuple[str, int]] = field(default_factory=dict)
    last: int = 0

    @property
    def first(self) -> int:
        """The first sequence that is still stored, or the next one."""
        return min(self.messages, default=self.last + 1)

    @property
    def subjects(self) -> list[str]:
        """What it listens on."""
        own = self.config.get("subjects")
        return own or ([] if self.config.get("sources") else [self.config["name"]])

    @property
    def retention(self) -> str:
        """When messages go."""
        return str(self.config.get("retention", "limits"))


@dataclass
class Consumer:
    """A cursor that INFO does not show, and what INFO does show."""

    config: dict[str, Any]
    cursor: int
    delivered: int
    floor: int
    count: int = 0
    """Deliveries so far (INFO's consumer_seq)."""
    pending: set[int] = field(default_factory=set)
    redeliver: set[int] = field(default_factory=set)
    paused_until: int = 0

    @property
    def filters(self) -> list[str]:
        """What it delivers."""
        single = self.config.get("filter_subject")
        return self.config.get("filter_subjects") or ([single] if single else [">"])

    def wants(self, subject: str) -> bool:
        """Whether a filter matches."""
        return subjects.covered(subject, self.filters)

    def needs(self, seq: int, subject: str) -> bool:
        """Whether an interest stream has to keep a message for it."""
        return self.wants(subject) and (seq in self.pending or seq > self.delivered)

    def acknowledge(self, seq: int) -> bool:
        """Whether the acknowledgement counted (one of a delivery before a RESET does not)."""
        if seq not in self.pending:
            return False
        self.pending.discard(seq)
        self.redeliver.discard(seq)
        self.floor = min(self.pending) - 1 if self.pending else self.delivered
        return True
