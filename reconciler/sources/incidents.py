"""What happened to a source between two looks: moved by hand, emptied and made anew, or messages lost while nobody read.

A server itself resets a durable to its ack floor whenever it attaches an entry, and one that is killed may have forgotten some of
what was acknowledged; so a count that begins again says nothing, nor does where it begins. What says something is what the
stream has stored: of a durable that goes on beyond all that was seen delivered, whether it holds what lies in between.

Invariant: pure; nobody is said to have done what the server itself may have done.
"""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.model import units
from reconciler.model.flow import filters_of
from reconciler.sources.look import Look, Position


@dataclass(frozen=True, slots=True)
class Incident:
    """Something that is worth telling once."""

    kind: str
    """reset, recreated or lost; a reset that skips something is told as both."""
    message: str
    first: int = 0
    """The origin's sequences that it is about; 0: none, or not known which."""
    last: int = 0


@dataclass(frozen=True, slots=True)
class Trail:
    """What is remembered of where a source stood."""

    position: Position | None = None
    """Forgotten while a procedure of ours moves it."""
    made: str = ""
    """When the durable was made, as long as nobody but others touched it."""
    copied: int = 0
    """How far it had copied, as far as that was seen."""
    origin_made: str = ""
    origin_last: int = 0
    skips_to: int = 0
    """The origin is another one: what it has up to there is skipped in silence."""


_HEALS = 5
"""The API level from which on a server notices by itself that the origin of a source is another one; of a mirror, none does."""


def wants_origin(trail: Trail, position: Position | None, *, mirror: bool) -> bool:
    """Whether the origin has to be looked at, too, to say what has happened.

    Always that of a mirror: nothing else shows that the origin is another one, which no server notices.
    """
    if mirror or not trail.origin_made or trail.skips_to:
        return True
    if position is None:
        return False
    if position.counted == 0 and position.floor > trail.origin_last:
        return True  # just begun, beyond all that was seen: is there as much by now?
    if trail.position is None:
        return False
    return position.created != trail.position.created or _begun_again(trail.position, position)


def follow(trail: Trail, look: Look, copied: int) -> tuple[Trail, tuple[Incident, ...]]:
    """The trail after this look, and what has happened since the one before; `copied`: see `Trail`."""
    origin, now = look.origin.info, Position.of(look.durable.info) if look.durable.info else None
    made = str(origin["created"]) if origin else trail.origin_made
    last = int(origin["state"]["last_seq"]) if origin else trail.origin_last
    if look.procedure:
        return Trail(None, "", copied or trail.copied, made, last), ()
    before = _of_another(trail, look, made)
    if before is not None:
        skips_to = before if look.entrance.mirror or look.level < _HEALS else 0
        recreated = _recreated(look, made, skips_to)
        stays = skips_to if look.mirrored <= skips_to else 0
        return Trail(now, now.created if now else "", look.mirrored, made, last, stays), (recreated,)
    incidents = _incidents(trail, look, now) if now else ()
    reached = look.mirrored if look.entrance.mirror else now.reached if now else last
    after = Trail(
        position=now or trail.position,
        made=now.created if now else trail.made,
        copied=copied if now else copied or trail.copied,
        origin_made=made,
        origin_last=last,
        skips_to=trail.skips_to if reached <= trail.skips_to else 0,
    )
    return after, incidents


def _of_another(trail: Trail, look: Look, made: str) -> int | None:
    """How far the origin that was there before this one was copied; None: it is the same one, or nobody can tell."""
    if trail.origin_made:
        so_far = trail.copied if look.entrance.mirror else max(trail.copied, trail.origin_last)
        return so_far if made != trail.origin_made else None
    seq, at = look.copied
    return seq if seq and made and units.parse_time(made) > units.parse_time(at) else None


def _recreated(look: Look, made: str, skips_to: int) -> Incident:
    message = f"{look.entrance.origin} was deleted and made anew at {made}"
    if not skips_to:
        return Incident("recreated", message)
    whose = "this mirror" if look.entrance.mirror else "this server"
    return Incident("recreated", f"{message}; {whose} skips what it has up to {skips_to:,}", 1, skips_to)


def leap(trail: Trail, look: Look) -> int:
    """Where the durable goes on, beyond all that was seen delivered: what is stored of the messages before must be asked."""
    before, now = trail.position, Position.of(look.durable.info) if look.durable.info else None
    if before is None or now is None or look.procedure or not _begun_again(before, now) or now.began < before.floor:
        return 0
    return _start(now) if _exact(look, now) and _start(now) - 1 > before.reached else 0


def _incidents(trail: Trail, look: Look, now: Position) -> tuple[Incident, ...]:
    if trail.made and now.created != trail.made:
        return _lost(trail, look, now)
    before = trail.position
    if before is None or not (_begun_again(before, now) or now.began < before.began):
        return ()
    name, start = look.entrance.durable, _start(now)
    if now.began < before.floor:
        why = "somebody reset it, or its server was killed"
        message = f"{name} was set back to {start:,} ({why}): no duplicates, what is stored already is left out"
        return (Incident("reset", message, start, before.floor),)
    if not leap(trail, look) or look.stored_below is None:
        return ()
    first, last = max(before.reached, look.stored_below) + 1, start - 1
    if last < first:
        return ()  # all of it is stored: the server attached the entry in between
    why = "somebody reset it, or they are gone from its stream"
    moved = Incident("reset", f"{name} was moved on to {start:,}: {first:,} to {last:,} were skipped ({why})", first, last)
    return moved, Incident("lost", f"{name} goes on at {start:,}: {first:,} to {last:,} are not copied", first, last)


def _begun_again(before: Position, now: Position) -> bool:
    return now.created == before.created and (now.delivered < before.delivered or now.counted < before.counted)


def _start(now: Position) -> int:
    """Where the count of a durable began; at most that, where sequences are missing in between."""
    return (now.floor if now.counted == 0 else now.began) + 1


def _exact(look: Look, now: Position) -> bool:
    """Whether it is known where the count began."""
    if now.counted == 0:
        return True
    origin, durable = look.origin.info, look.durable.info
    if origin is None or durable is None or filters_of(durable["config"]):
        return False
    state = origin["state"]
    return not state.get("num_deleted") and int(state["first_seq"]) <= now.began + 1


def _lost(trail: Trail, look: Look, now: Position) -> tuple[Incident, ...]:
    """On interest nobody keeps what is published while the durable is away."""
    origin = look.origin.info
    if origin is None or origin["config"].get("retention") != "interest":
        return ()
    first, last = trail.copied + 1, _start(now) - 1
    if last < first:
        return ()
    message = f"{look.entrance.durable} was deleted and is there again: {first:,} to {last:,} are not copied"
    return (Incident("lost", message, first, last),)
