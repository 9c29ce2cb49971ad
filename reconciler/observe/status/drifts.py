"""What others changed: when, which fields, who, and since when it is repaired.

Invariant: pure and bounded; a drift outlives its repair, and the oldest are forgotten first.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from reconciler.model import units
from reconciler.model.identity import Key
from reconciler.observe.wording import SHOWN
from reconciler.plan.change import Author, FieldDiff
from reconciler.render.status.judged import values_of

Json = dict[str, Any]
MOST = 10_000
LATE = 5 * units.SECOND
"""How much later than the drift its author may become known: the audit and the advisory travel separately."""
_FIGHT_LASTS = 600 * units.SECOND
"""A fight of which nothing was heard for so long is over."""


@dataclass(slots=True)
class _Drift:
    at: int
    fields: tuple[str, ...]
    author: Author | None
    differing: tuple[FieldDiff, ...] = ()
    repaired_at: int | None = None
    deleted: dict[Key, Author | None] = field(default_factory=dict)
    """The durables behind it that somebody deleted, and who."""
    itself: bool = True
    """Whether it was changed, or deleted, itself."""


@dataclass(slots=True)
class _Fight:
    at: int
    field: FieldDiff
    times: int
    author: Author | None


class Drifts:
    """The last drift, and the running fight, of each key."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._drifts: dict[Key, _Drift] = {}
        """The oldest first."""
        self._open: set[Key] = set()
        """Not repaired yet."""
        self._readers: dict[Key, Key] = {}
        """Whose drift it is that a durable was deleted."""
        self._fights: dict[Key, _Fight] = {}

    def drifted(self, key: Key, fields: Iterable[str], author: Author | None, differing: Iterable[FieldDiff] = ()) -> None:
        """Somebody changed these fields; none: somebody deleted it."""
        self._forget(key)
        self._drifts[key] = _Drift(self._now(), tuple(fields), author, tuple(itertools.islice(differing, SHOWN)))
        self._open.add(key)
        if len(self._drifts) > MOST:
            self._forget(next(iter(self._drifts)))

    def durable_gone(self, key: Key, durable: Key, author: Author | None) -> None:
        """Somebody deleted a durable that this stream reads through; the stream may have been changed in the same breath."""
        if key not in self._open:
            self.drifted(key, (), None)
            self._drifts[key].itself = False
        self._drifts[key].deleted[durable] = author
        self._readers[durable] = key

    def attributed(self, key: Key, author: Author) -> bool:
        """The audit names the author of a drift that was noticed a moment ago; whether nobody knew him before."""
        if key in self._readers:
            return self._attributed_deletion(key, author)
        drift = self._drifts.get(key)
        if drift is None or _is_named(drift.author) or self._now() - drift.at > LATE:
            return False
        drift.author = author
        fight = self._fights.get(key)
        if fight is not None and fight.at >= drift.at:  # else the drift is no part of it
            fight.author = author
        return True

    def _attributed_deletion(self, durable: Key, author: Author) -> bool:
        drift = self._drifts[self._readers[durable]]
        if _is_named(drift.deleted[durable]) or self._now() - drift.at > LATE:
            return False
        drift.deleted[durable] = author
        return True

    def _forget(self, key: Key) -> None:
        drift = self._drifts.pop(key, None)
        self._open.discard(key)
        for durable in drift.deleted if drift else ():
            self._readers.pop(durable, None)

    def repaired(self, key: Key) -> None:
        """It is as declared again."""
        if key in self._open:
            self._open.discard(key)
            self._drifts[key].repaired_at = self._now()

    def unrepaired(self) -> frozenset[Key]:
        """What still differs, as far as is known."""
        return frozenset(self._open)

    def fought(self, key: Key, field: FieldDiff, times: int, author: Author | None) -> None:
        """The same field was set to the same foreign value so many times; told right after the drift that it is part of."""
        self._fights.pop(key, None)
        self._fights[key] = _Fight(self._now(), field, times, author)
        if len(self._fights) > MOST:
            del self._fights[next(iter(self._fights))]

    def document(self, key: Key) -> Json | None:
        """The last drift as the status shows it."""
        drift = self._drifts.get(key)
        if drift is None:
            return None
        author = drift.author if drift.itself else next(iter(drift.deleted.values()))
        shown: Json = {
            "at": units.format_time(drift.at),
            "fields": list(drift.fields),
            "changes": values_of(drift.differing),
            **_names(author),
            "repairedAt": None if drift.repaired_at is None else units.format_time(drift.repaired_at),
        }
        if drift.deleted:
            shown["deleted"] = [{"key": str(durable), **_names(by)} for durable, by in drift.deleted.items()]
        return shown

    def fight(self, key: Key) -> Json | None:
        """The fight over a field of this key, while it lasts."""
        fight = self._fights.get(key)
        if fight is None or self._now() - fight.at > _FIGHT_LASTS:
            return None
        return {"field": fight.field.path, "value": fight.field.live, "times": fight.times, **_names(fight.author)}


def _is_named(author: Author | None) -> bool:
    return bool(author and (author.client or author.user))


def _names(author: Author | None) -> Json:
    return {"client": author.client if author else None, "user": author.user if author else None}
