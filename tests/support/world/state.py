"""What the model server keeps: streams with their messages, consumers with the cursor that no INFO shows.

Invariant: pure state; who may do what is decided in the server.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from reconciler.model import subjects, units
from reconciler.procedures.requests import Copied


@dataclass(frozen=True)
class Copy:
    """Where a stored message was copied from."""

    identity: str
    seq: int
    """Of the origin."""
    id: str
    """Of the message that was published."""


@dataclass
class Stream:
    """Messages by sequence, in its order."""

    config: dict[str, Any]
    messages: dict[int, tuple[str, int]] = field(default_factory=dict)
    last: int = 0
    born: int = 0
    """When it was created: tells it from an earlier stream of the same name."""
    copies: dict[int, Copy] = field(default_factory=dict)
    """What of the messages was copied."""
    remembered: dict[tuple[str, int], int] = field(default_factory=dict)
    """How far it has copied, for ever: by identity, and by when the origin was created where the server minds."""

    def id_of(self, seq: int) -> str:
        """What a message is known by wherever it is copied to."""
        return self.copies[seq].id if seq in self.copies else f"{self.config['name']}@{self.born}:{seq}"

    def last_copied(self, identity: str) -> Copied:
        """What its stored messages show of an identity."""
        complete = len(self.messages) == self.last
        found = max((seq for seq, copy in self.copies.items() if copy.identity == identity and seq in self.messages), default=0)
        if not found:
            return Copied(0, "", complete)
        return Copied(self.copies[found].seq, units.format_time(self.messages[found][1]), complete)

    def newest(self, identity: str, subject: str) -> Copied:
        """What the newest message on a subject shows of an identity."""
        last = max((seq for seq, (text, _) in self.messages.items() if text == subject), default=0)
        copy = self.copies.get(last)
        return Copied(copy.seq if copy and copy.identity == identity else 0, complete=False)

    def purge(self, before: int, subject: str) -> None:
        """Drop what lies before a sequence and matches."""
        kept = self.messages.items()
        self.messages = {seq: one for seq, one in kept if seq >= before or not subjects.covers(subject, one[0])}

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


shown_time = functools.cache(units.format_time)
"""Moments as INFO shows them."""


@functools.cache
def matches(subject: str, filters: tuple[str, ...]) -> bool:
    """Whether one of the filters does; the same few are asked for hundreds of thousands of times."""
    return subjects.covered(subject, filters)


@dataclass
class Consumer:
    """A cursor that INFO does not show, and what INFO does show."""

    config: dict[str, Any]
    cursor: int
    delivered: int
    floor: int
    born: int = 0
    """When it was created."""
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
        return matches(subject, tuple(self.filters))

    def needs(self) -> Callable[[int, str], bool]:
        """Tells whether an interest stream has to keep a message for it, as things stand."""
        delivered, pending, filters = self.delivered, self.pending, tuple(self.filters)

        def needs(seq: int, subject: str) -> bool:
            return (seq > delivered or seq in pending) and matches(subject, filters)

        return needs

    def acknowledge(self, seq: int) -> bool:
        """Whether the acknowledgement counted (one of a delivery before a RESET does not)."""
        if seq not in self.pending:
            return False
        self.pending.discard(seq)
        self.redeliver.discard(seq)
        self.floor = min(self.pending) - 1 if self.pending else self.delivered
        return True

    def rewind(self) -> None:
        """Go on behind the ack floor; what was in flight comes again."""
        self.cursor, self.delivered, self.count = self.floor + 1, self.floor, 0
        self.pending, self.redeliver = set(), set()

    def pause(self, until: int) -> None:
        """Stand still until then; one that the server made for a source is sent back by whatever changes it."""
        self.paused_until = until
        if self.config.get("sourcing"):
            self.rewind()
