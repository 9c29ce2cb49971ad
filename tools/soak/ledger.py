"""The model of what may be lost: what was published, what the meddler's own acts removed or may cost, and what is left to find.

Invariant: numbers are compared, never counts. What an act costs is written down before the act, by what docs/sourcing.md and
tests/sources/test_migrate_meddling.py say of it; nothing that the product does afterwards is an excuse.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from tools.soak.families import Family


@dataclass
class Account:
    """Of one stream that is published to."""

    published: int = 0
    """Numbers from 0 that the server has confirmed."""
    stored: list[int] = field(default_factory=list)
    """What it has to hold, in order."""
    subjects: list[int] = field(default_factory=list)
    """Of each number, which of the family's subjects it went to."""
    limit: int = 0
    """The most it keeps; 0: everything."""
    removed: int = 0
    """Messages that acts removed."""
    again: list[str] = field(default_factory=list)
    """Acts after which a copy may have messages twice,"""
    lost: list[str] = field(default_factory=list)
    """or lack some,"""
    left: list[str] = field(default_factory=list)
    """or after which some stay in a queue though they were copied."""

    def confirmed(self, subject: int) -> None:
        """One more is stored."""
        self.stored.append(self.published)
        self.subjects.append(subject)
        self.published += 1
        if self.limit:
            del self.stored[: -self.limit]

    def keeps(self, last: int) -> None:
        """An act left only so many of them."""
        gone = len(self.stored) - last
        if gone > 0:
            self.removed += gone
            del self.stored[:gone]


@dataclass
class Standing:
    """What an act has left behind, until it is undone or the soak is over."""

    key: str
    what: str
    due: float
    undo: Callable[[], Awaitable[None]]
    last: bool = False
    """Undone at the end at the latest: what is compared then hangs on it."""


@dataclass
class Ledger:
    """Everything that was done, by whom."""

    accounts: dict[str, Account] = field(default_factory=dict)
    read: dict[str, set[int]] = field(default_factory=dict)
    """By stream: what the reader of its first consumer was given."""
    read_again: int = 0
    acts: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    writes: int = 0
    """Requests of the meddler that change something."""
    standing: dict[str, Standing] = field(default_factory=dict)
    copies: dict[str, list[bytes]] = field(default_factory=dict)
    """Streams that the meddler made, with what he put into them."""
    copied_consumers: set[tuple[str, str]] = field(default_factory=set)

    def open(self, families: Iterable[Family], limit: int) -> None:
        """An account for each that is published to."""
        for family in families:
            self.accounts[family.stream] = Account(limit=limit if family.kind == "full" else 0)
            self.read[family.stream] = set()

    def delivered(self, stream: str, number: int) -> None:
        """A reader was given it."""
        known = self.read[stream]
        self.read_again += number in known
        known.add(number)

    def unread(self, family: Family) -> list[int]:
        """What its reader should have been given and was not."""
        account = self.accounts[family.stream]
        wanted = range(len(family.wanted))
        numbers = range(account.published) if family.retention != "limits" else account.stored
        return [each for each in numbers if account.subjects[each] in wanted and each not in self.read[family.stream]]
