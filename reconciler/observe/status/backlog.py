"""How far behind consumers are, all of ours together, and which of them stand still.

Invariant: read off the bytes of a look without parsing them, so that a hundred thousand consumers cost a fraction of a second.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from structlog.typing import FilteringBoundLogger

from reconciler.model.identity import Key
from reconciler.model.seen.live import Live, LiveConsumer
from reconciler.observe.metrics import Metrics
from reconciler.observe.wording import SHOWN

_WAITING = re.compile(rb'"num_(ack_)?pending":(\d+)')
_MOST = re.compile(rb'"max_ack_pending":(\d+)')
"""Not -1: that is no limit."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """Sums over consumers."""

    pending: int = 0
    """Messages still to be delivered."""
    unacknowledged: int = 0
    full: frozenset[Key] = frozenset()
    """Consumers that get nothing more before something is acknowledged, although there is more."""


def backlog(live: Live, owner: str) -> Backlog:
    """Of the consumers that carry this owner's mark."""
    pending = unacknowledged = 0
    full: set[Key] = set()
    for stream, consumers in live.consumers.items():
        for seen in consumers.values():
            if seen.owner == owner:
                numbers = {bool(acknowledge): int(number) for acknowledge, number in _WAITING.findall(seen.state or seen.head)}
                waiting, delivered = numbers.get(False, 0), numbers.get(True, 0)
                pending += waiting
                unacknowledged += delivered
                if waiting and delivered and delivered >= _most(seen):
                    full.add(Key("Consumer", seen.name, stream.name, stream.domain))
    return Backlog(pending, unacknowledged, frozenset(full))


def _most(seen: LiveConsumer) -> float:
    found = _MOST.search(seen.head)
    return int(found[1]) if found and int(found[1]) else float("inf")


class BacklogNews:
    """Told after each look at everything; who stands still for two looks, one after the other, is named once."""

    def __init__(self, metrics: Metrics, log: FilteringBoundLogger) -> None:
        self._metrics = metrics
        self._log = log
        self._full: frozenset[Key] = frozenset()
        self._still: frozenset[Key] = frozenset()

    def seen(self, behind: Backlog) -> None:
        """All of them, as the last look found them."""
        self._metrics.consumer_pending.set(behind.pending)
        self._metrics.consumer_unacknowledged.set(behind.unacknowledged)
        self._metrics.consumers_full.set(len(behind.full))
        before, self._still, self._full = self._still, behind.full & self._full, behind.full
        if self._still - before:
            shown = [str(key) for key in sorted(self._still, key=lambda key: key.sort_key)[:SHOWN]]
            self._log.warning("consumers.full", resources=shown, number=len(self._still))
