"""How a source or mirror entry fares, judged by what a look at it showed and by the looks before.

| told by the server | state |
|---|---|
| nothing about the stream that has the entry | Unknown |
| the durable is paused, or a procedure of ours works on it | Paused |
| the other domain does not answer, and nothing is heard from there | Waiting |
| an error that is not one of the stalls | Error |
| anything else that does not flow | Stalled, with its cause |
| heard within two seconds, its durable bound, and acknowledgements arriving | Flowing, busy or idle |

The server hears every second from an entry that works, whether or not there is anything to copy. `lag` says nothing: it is 0 for
most stalls.

Invariant: pure. What is odd becomes a stall after PATIENCE, so that a start or a reconnect is none, and it is over when two looks
in a row found nothing: an entry that nobody serves is heard for a moment whenever the server tries again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from reconciler.model.units import SECOND
from reconciler.procedures.pause import resuming
from reconciler.sources.incidents import Incident, Trail, follow
from reconciler.sources.look import Look, Position, SeenPause, pause_of
from reconciler.sources.symptoms import StallCause, Symptom, found, warning

PATIENCE = 7 * SECOND


class SourceState(StrEnum):
    """How an entry fares."""

    FLOWING = "Flowing"
    PAUSED = "Paused"
    STALLED = "Stalled"
    WAITING = "Waiting"
    ERROR = "Error"
    UNKNOWN = "Unknown"


HELD_UP = frozenset({SourceState.STALLED, SourceState.WAITING, SourceState.ERROR})
"""Nothing is copied, and nobody wanted that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceHealth:
    """One entry as it is shown."""

    state: SourceState
    cause: StallCause | None = None
    message: str = ""
    since: int = 0
    """When it came to be in this state, in nanoseconds since the epoch."""
    stalled_since: int = 0
    """When what holds it up began, as far as was seen last; 0: nothing does."""
    copied: int | None = None
    """The last sequence of the origin that is stored, as far as anybody can tell."""
    pending: int | None = None
    """Messages that wait in the origin."""
    silent_for: int | None = None
    """Nanoseconds since something was heard; None: never."""
    pause: SeenPause | None = None
    error: str = ""
    """In the server's own words."""


@dataclass(frozen=True, slots=True)
class History:
    """What is remembered of the looks before."""

    health: SourceHealth | None = None
    odd_since: int = 0
    good_since: int = 0
    stuck_since: int = 0
    """Since when acknowledgements are due, and none arrives."""
    trail: Trail = field(default_factory=Trail)


NO_HISTORY = History()


def judge(look: Look, before: History, patience: int = PATIENCE) -> tuple[History, tuple[Incident, ...]]:
    """The history with this look, whose health is how the entry fares, and what has happened since the last one."""
    shown = SourceHealth(state=SourceState.UNKNOWN, **_numbers(look))
    trail, incidents = follow(before.trail, look, shown.copied or 0)
    after = replace(before, trail=trail, stuck_since=_stuck_since(look, before))
    plain = _plain(look)
    if plain is not None:
        health = replace(shown, state=plain[0], message=plain[1], pause=plain[2])
        if health.state is SourceState.UNKNOWN:
            return _unseen(after, health, look.at), incidents
        return replace(after, health=_dated(health, before, look.at), odd_since=0, good_since=0), incidents
    symptom = found(look, after.stuck_since, after.trail.skips_to)
    if symptom is None:
        return _good(after, shown, look), incidents
    return _odd(after, shown, symptom, look, patience), incidents


def _state_of(symptom: Symptom) -> SourceState:
    if symptom.cause is StallCause.DOMAIN:
        return SourceState.WAITING
    return SourceState.ERROR if symptom.cause is StallCause.SERVER_ERROR else SourceState.STALLED


def _unseen(history: History, shown: SourceHealth, at: int) -> History:
    """Nothing is known just now: what held it up may still do so, and is not over because nobody could see it."""
    before = history.health
    if before is not None:
        shown = replace(shown, cause=before.cause, stalled_since=before.stalled_since, error=before.error)
    return replace(history, health=_dated(shown, history, at), good_since=0)


def _good(history: History, shown: SourceHealth, look: Look) -> History:
    """Nothing is odd: it flows, unless it was held up until a moment ago."""
    before = history.health
    if before is not None and before.state in HELD_UP and not history.good_since:
        still = replace(shown, state=before.state, cause=before.cause, message=before.message)
        still = replace(still, since=before.since, stalled_since=before.stalled_since, error=before.error)
        return replace(history, health=still, good_since=look.at)
    health = _dated(replace(shown, state=SourceState.FLOWING, message=warning(look)), history, look.at)
    return replace(history, health=health, odd_since=0, good_since=history.good_since or look.at)


def _odd(history: History, shown: SourceHealth, symptom: Symptom, look: Look, patience: int) -> History:
    """Something is odd: that is a stall once it has lasted."""
    since = min(history.odd_since or symptom.since, symptom.since)
    before = history.health
    stalled_since = before.stalled_since if before is not None else 0
    if not (stalled_since or symptom.certain or look.at - since >= patience):
        state = SourceState.UNKNOWN if before is None else before.state
        message = f"begins: {symptom.message}" if state is SourceState.UNKNOWN else ""
        health = replace(shown, state=state, message=message)
    else:
        health = replace(shown, state=_state_of(symptom), cause=symptom.cause, message=symptom.message, error=symptom.error)
        health = replace(health, stalled_since=stalled_since or since)
    return replace(history, health=_dated(health, history, look.at), odd_since=since, good_since=0)


def _dated(health: SourceHealth, history: History, at: int) -> SourceHealth:
    before = history.health
    same = before is not None and before.state is health.state
    return replace(health, since=before.since if same and before is not None else at)


def _numbers(look: Look) -> dict[str, Any]:
    """What is shown whatever the state."""
    told, durable = look.told or {}, look.durable.info
    position = Position.of(durable) if durable else None
    active = told.get("active", -1)
    copied = position.floor if position else told.get("seq")
    if look.entrance.mirror and look.stream.info:
        copied = look.stream.info["state"]["last_seq"]
    pending = position.pending if position else told.get("lag") if active >= 0 and not look.entrance.consumer else None
    return {"copied": copied, "pending": pending, "silent_for": active if active >= 0 else None}


def _plain(look: Look) -> tuple[SourceState, str, SeenPause | None] | None:
    """What is so without any judgement."""
    if look.stream.info is None:
        gone = f"{look.entrance.aggregate} is not there"
        return SourceState.UNKNOWN, gone if look.stream.gone else f"not seen: {look.stream.silence}", None
    if look.procedure:
        return SourceState.PAUSED, f"{look.procedure} is under way", SeenPause(look.procedure, "")
    pause = pause_of(look.durable.info) if look.durable.info else None
    if pause is not None:
        until = f" until {pause.until}" if pause.until else ""
        durable = look.entrance.durable
        way_out = f"; {resuming(durable)} ends that" if pause.by == "person" and durable else ""
        return SourceState.PAUSED, f"paused{until} by {_whom(pause)}{way_out}", pause
    if look.told is None:
        return SourceState.UNKNOWN, "the server does not tell how it fares", None
    return None


def _whom(pause: SeenPause) -> str:
    return {"manifest": "its manifest", "person": "somebody"}.get(pause.by, pause.by)


def _stuck_since(look: Look, before: History) -> int:
    """Since when an acknowledgement is due: neither the ack floor moves nor what was delivered above it.

    While messages come without a quiet second, only every thousandth or so is answered, however slowly they come; without any
    answer the server delivers no more than it may leave unacknowledged.
    """
    durable, then = look.durable.info, before.trail.position
    now = Position.of(durable) if durable else None
    if now is None or pause_of(durable or {}) or not now.unacknowledged or now.floor >= now.reached:
        return 0
    same = then is not None and _stand(then) == _stand(now)
    return (before.stuck_since or look.at) if same else look.at


def _stand(position: Position) -> tuple[str, int, int, int, int]:
    return position.created, position.delivered, position.reached, position.counted, position.floor
