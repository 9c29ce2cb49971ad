"""What a change cannot do without: a failure holds back its dependants, and nobody else.

Invariant: pure; dependencies never point to a later wave of the plan's order.
"""

from __future__ import annotations

from collections.abc import Iterator

import orjson

from reconciler.model.flow import copied_entries, copies, domain_of
from reconciler.model.identity import Key
from reconciler.plan.change import Action, Cause, Change

_IN_PLACE = (Action.UPDATE, Action.PROCEDURE)


def deletes(change: Change) -> bool:
    """Whether the change removes its resource for good."""
    return Action.DELETE in (change.action, change.wanted)


def prerequisites(change: Change) -> Iterator[Key]:
    """What must be in place before this change: its stream, or what it copies from and the durables it reads through."""
    yield from (key.live_key for key in change.needs)
    if deletes(change):
        return
    if change.key.kind == "Consumer":
        yield change.key.stream_key
    elif change.key.is_stream:
        yield from _copied(change.config, change.key.domain)
    else:
        yield from {key.stream_key for key in change.touches}


def held_by(change: Change) -> Iterator[Key]:
    """What must not be deleted as long as this delete has not succeeded: the stream of a consumer, the origins of a copy."""
    if not deletes(change):
        return
    if change.key.kind == "Consumer":
        yield change.key.stream_key
    elif change.key.is_stream:
        yield from _copied(change.live_config, change.key.domain)


def _restores(change: Change) -> bool:
    """Whether it only puts a consumer back to what it was on its stream, which therefore need not be as declared for it."""
    again = change.cause is Cause.MISSING and change.machine is not None
    return change.key.kind == "Consumer" and (change.cause is Cause.DRIFT or again)


def _copied(wire: bytes, domain: str) -> Iterator[Key]:
    if not copies(wire):
        return
    for entry in copied_entries(orjson.loads(wire)):
        origin = Key("Stream", entry["name"], "", domain_of(entry, domain))
        yield origin
        if entry.get("consumer"):
            yield Key("Consumer", entry["consumer"]["name"], origin.name, origin.domain)


class Failures:
    """What went wrong in this pass, and whom it holds back."""

    def __init__(self) -> None:
        self._down: dict[Key, str] = {}
        self._standing: set[Key] = set()
        """Those of them that are there, and could only not be changed."""
        self._kept: dict[Key, str] = {}

    def add(self, change: Change, what: str) -> None:
        """The change did not get there: `what` (failed, blocked, …) is said to its dependants."""
        place = change.key.live_key
        self._down[place] = f"{change.key}, which {what}"
        if (change.wanted or change.action) in _IN_PLACE:
            self._standing.add(place)
        else:
            self._standing.discard(place)
        for key in held_by(change):
            self._kept[key] = f"{change.key}, which {what}"

    def remove(self, change: Change) -> None:
        """The change got there after all."""
        if not self._down:
            return
        self._down.pop(change.key.live_key, None)
        for key in held_by(change):
            self._kept.pop(key, None)

    def hold_back(self, change: Change) -> str:
        """Why this change must not be tried; empty when nothing is in its way."""
        if not self._down:
            return ""
        enough = self._standing if _restores(change) else frozenset[Key]()
        reasons = [self._down[key] for key in prerequisites(change) if key in self._down and key not in enough]
        if deletes(change) and change.key.live_key in self._kept:
            reasons.append(self._kept[change.key.live_key])
        return f"waits for {reasons[0]}" if reasons else ""
