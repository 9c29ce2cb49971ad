"""The generations of worker pools: which one was last loaded whole, and what it moves against the one before.

A pool whose files are not all there keeps what was last loaded; so does one that is declared again just as it was.

Invariant: what is known of a pool is all of one generation, never a mixture of two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from reconciler.model.desired import Desired
from reconciler.model.identity import Key
from reconciler.model.kinds.pool import Pool
from reconciler.model.subjects import SubjectIndex, is_literal


@dataclass(frozen=True, slots=True)
class Moves:
    """How the subjects of a pool differ from those before."""

    moved: int = 0
    """Another worker has them."""
    new: int = 0
    retired: int = 0
    """Nobody has them any more."""


@dataclass(frozen=True, slots=True)
class Generation:
    """What was last loaded of one pool."""

    key: Key
    pool: Pool | None = None
    """With all its workers; None: it was never all there."""
    number: int | None = None
    """That of its index; None: it has none, its workers are declared otherwise."""
    loaded_at: int = 0
    """Nanoseconds since the epoch."""
    subjects: int = 0
    moves: Moves = Moves()
    before: int | None = None
    """The generation that the moves are counted from."""
    held_back: str = ""
    """Why the newest files do not count; empty when they do."""


def following(before: Mapping[Key, Generation], desired: Desired, now: int) -> dict[Key, Generation]:
    """What is known after these manifests came into force; what is the same is the same object."""
    found: dict[Key, Generation] = {}
    for key, reason in desired.held_back.items():
        known = before.get(key, Generation(key))
        found[key] = known if known.held_back == reason else replace(known, held_back=reason)
    for pool in desired.pools.values():
        if pool.key not in found:
            found[pool.key] = _loaded(before.get(pool.key), pool, desired.generations.get(pool.key), now)
    return {key: found[key] for key in sorted(found, key=lambda key: key.sort_key)}


def _loaded(known: Generation | None, pool: Pool, number: int | None, now: int) -> Generation:
    if known is None or known.pool is None:
        return Generation(pool.key, pool, number, now, _subjects(pool))
    if known.number == number and _same(known.pool, pool):
        return known if not known.held_back else replace(known, held_back="")
    return Generation(pool.key, pool, number, now, _subjects(pool), moves(known.pool, pool), known.number)


def moves(before: Pool, now: Pool) -> Moves:
    """Looks only at workers that differ; the rest of a large pool costs nothing."""
    ours, theirs = _differing(now, before), _differing(before, now)
    gone = {subject: worker for worker, subjects in theirs.items() for subject in subjects}
    come: dict[str, str] = {}
    moved = 0
    for worker, subjects in ours.items():
        for subject in subjects:
            had = gone.pop(subject, None)
            if had is None:
                come[subject] = worker
            else:
                moved += had != worker
    return _split_and_merged(Moves(moved, len(come), len(gone)), gone, come)


def _split_and_merged(moves: Moves, gone: Mapping[str, str], come: Mapping[str, str]) -> Moves:
    """What matches a subject that was there before is not new, and what is still matched is not retired."""
    if not gone or all(map(is_literal, (*gone, *come))):
        return moves
    before = SubjectIndex[str]()
    for subject, worker in gone.items():
        before.add(subject, worker)
    met = {subject: found for subject in come if (found := [*before.overlapping(subject)])}
    moved = sum(any(had != come[subject] for _, had in found) for subject, found in met.items())
    kept = {subject for found in met.values() for subject, _ in found}
    return Moves(moves.moved + moved, moves.new - len(met), moves.retired - len(kept))


def _differing(pool: Pool, other: Pool) -> dict[str, list[str]]:
    found = {}
    for name, worker in pool.workers.items():
        there = other.workers.get(name)
        if there is None or there.text != worker.text:
            found[name] = worker.subjects
    return found


def _same(one: Pool, other: Pool) -> bool:
    return one.workers.keys() == other.workers.keys() and not _differing(one, other)


def _subjects(pool: Pool) -> int:
    return sum(worker.count for worker in pool.workers.values())
