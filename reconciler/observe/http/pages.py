"""Which resources are on a page of the status.

Invariant: pages are cut by key, so that what comes and goes between two of them moves nothing from one to the other.
"""

from __future__ import annotations

import base64
import heapq
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter

import orjson

from reconciler.errors import UsageError
from reconciler.model.identity import KINDS, Key
from reconciler.observe.http.controls import MOST, StatusQuery
from reconciler.observe.status.declared import Catalogue
from reconciler.observe.status.standing import Shown
from reconciler.render.status.judged import Condition

_FEW = 20
"""Sorting a part of all keys pays when they are so many times fewer."""
_BY_SORT_KEY = attrgetter("sort_key")


@dataclass(frozen=True, slots=True)
class Page:
    """What a query asks for, understood."""

    kind: str
    condition: Condition | None
    limit: int
    after: Key | None

    @classmethod
    def of(cls, query: StatusQuery) -> Page:
        """Raises UsageError for what makes no sense."""
        if query.kind and query.kind not in KINDS:
            msg = f"kind: {query.kind[:40]!r} is not one of {', '.join(KINDS)}"
            raise UsageError(msg)
        if query.state and query.state not in {condition.value for condition in Condition}:
            msg = f"state: {query.state[:40]!r} is not one of {', '.join(Condition)}"
            raise UsageError(msg)
        if query.limit < 1:
            msg = f"limit: {query.limit} is not a number of resources (1 to {MOST})"
            raise UsageError(msg)
        condition = Condition(query.state) if query.state else None
        return cls(query.kind, condition, min(query.limit, MOST), _decoded(query.cursor) if query.cursor else None)

    def cut(self, keys: Iterator[Key]) -> tuple[list[Key], str | None]:
        """The first keys of all that follow, and the cursor of the next page."""
        wanted = (key for key in keys if not self.kind or key.kind == self.kind)
        found = list(islice(wanted, self.limit + 1))
        return found[: self.limit], _encoded(found[self.limit - 1]) if len(found) > self.limit else None

    def everything(self, catalogue: Catalogue, notable: Mapping[Key, Shown]) -> Iterator[Key]:
        """All there is after the cursor, in order."""
        others = self._sorted(key for key in notable if key not in catalogue)
        declared = self._declared(catalogue)
        return heapq.merge(declared, others, key=_BY_SORT_KEY) if others else declared

    def notable(self, catalogue: Catalogue, notable: Mapping[Key, Shown]) -> Iterator[Key]:
        """All that is in this page's condition after the cursor, in order."""
        if len(notable) * _FEW < len(catalogue):
            return iter(self._sorted(key for key, shown in notable.items() if shown.condition is self.condition))
        keys = self.everything(catalogue, notable)
        return (key for key in keys if key in notable and notable[key].condition is self.condition)

    def _sorted(self, keys: Iterator[Key]) -> list[Key]:
        after = self.after
        return sorted((key for key in keys if after is None or after < key), key=_BY_SORT_KEY)

    def _declared(self, catalogue: Catalogue) -> Iterator[Key]:
        keys = catalogue.in_order
        start = bisect_right(keys, self.after.sort_key, key=_BY_SORT_KEY) if self.after is not None else 0
        return (keys[index] for index in range(start, len(keys)))


def _encoded(key: Key) -> str:
    return base64.urlsafe_b64encode(orjson.dumps([key.kind, key.name, key.stream, key.domain])).decode()


def _decoded(cursor: str) -> Key:
    try:
        kind, name, stream, domain = orjson.loads(base64.urlsafe_b64decode(cursor))
        known = kind in KINDS and all(isinstance(part, str) for part in (name, stream, domain))
    except (ValueError, TypeError):
        known = False
    if not known:
        msg = "cursor: this is not the cursor of a page before; leave it out for the first page"
        raise UsageError(msg)
    return Key(kind, name, stream, domain)
