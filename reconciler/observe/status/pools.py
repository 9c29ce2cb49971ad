"""Worker pools: the rows of the status, and what is told when a generation was loaded, or held back.

Invariant: what is held back is said beside what stays, and each is told once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from structlog.typing import FilteringBoundLogger

from reconciler.model import units
from reconciler.model.generation import Generation
from reconciler.model.identity import Key
from reconciler.observe.metrics import Metrics
from reconciler.observe.source_news import Tell

Json = dict[str, Any]


class PoolNews:
    """Told what is known of all pools whenever other manifests are in force."""

    def __init__(self, metrics: Metrics, log: FilteringBoundLogger, tell: Tell) -> None:
        self._metrics = metrics
        self._log = log
        self._tell = tell
        self._known: Mapping[Key, Generation] = {}

    def declared(self, known: Mapping[Key, Generation]) -> None:
        """Tells what is not as it was."""
        for key, now in known.items():
            before = self._known.get(key)
            if now.pool is not None and (before is None or before.pool is not now.pool):
                self._loaded(now)
            if now.held_back and (before is None or before.held_back != now.held_back):
                self._held_back(now)
        self._metrics.pools_held_back.set(sum(bool(one.held_back) for one in known.values()))
        self._known = known

    def _loaded(self, now: Generation) -> None:
        self._metrics.pools_loaded.inc()
        self._metrics.pool_moves.inc(now.moves.moved)
        found = figures(now)
        self._log.info("pool.loaded", resource=str(now.key), **found)
        which = "loaded" if now.number is None else f"generation {now.number} loaded"
        message = f"{now.key}: {which}: {now.subjects} subjects, {now.moves.moved} moved"
        self._tell("pool.loaded", message, now.key, **found)

    def _held_back(self, now: Generation) -> None:
        self._log.warning("pool.held_back", resource=str(now.key), generation=now.number, reason=now.held_back)
        stays = "nothing was loaded yet" if now.number is None else f"generation {now.number} stays"
        message = f"{now.key}: {stays}: {now.held_back}"
        self._tell("pool.held_back", message, now.key, bad=True, generation=now.number, reason=now.held_back)


def pool_rows(generations: Iterable[Generation]) -> list[Json]:
    """One row for each pool."""
    return [_row(generation) for generation in generations]


def figures(generation: Generation) -> Json:
    """What its log line, its event and its row have in common."""
    moves = generation.moves
    return {
        "generation": generation.number,
        "workers": len(generation.pool.workers) if generation.pool else 0,
        "subjects": generation.subjects,
        "moved": moves.moved,
        "new": moves.new,
        "retired": moves.retired,
        "before": generation.before,
    }


def _row(generation: Generation) -> Json:
    key = generation.key
    return {
        "pool": f"{key.domain}:{key.name}" if key.domain else key.name,
        "key": str(key),
        **figures(generation),
        "loadedAt": units.format_time(generation.loaded_at) if generation.pool else None,
        "heldBack": generation.held_back or None,
    }
