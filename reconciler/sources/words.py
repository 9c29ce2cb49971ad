"""What a move is in words: the steps that a plan shows, from which of them on it can only go on, and what to beware of.

Invariant: the steps stand in the order in which the procedure takes them, its journal aside.
"""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.model import units
from reconciler.model.flow import filters_of
from reconciler.model.normal import EVERYTHING
from reconciler.plan.comparing.display import in_short
from reconciler.plan.scene import Scene
from reconciler.procedures.consumer import DEFAULT_DEADLINE
from reconciler.sources.entries import EntryChange, origin_info
from reconciler.sources.judge import HANDS_OVER, Move


def steps(reader: EntryChange, move: Move, retention: str) -> tuple[str, ...]:
    """What will be done, for people."""
    origin, new = str(reader.origin), reader.new_name
    old = reader.old.name if reader.old else reader.old_name
    drain = f"pause {old}, and wait until everything it has delivered is stored"
    create, read, without = f"{_making(reader)}, paused", f"read {origin} through {new}", f"read {origin} without {old}"
    move_on, resume = f"reset {new} to the first message that is not stored yet", f"resume {new}"
    queue = retention == "workqueue"
    if move is Move.TAKE:
        purge = (f"purge from {origin} what is stored, but was not acknowledged",) if queue else ()
        return (create, read, "wait until everything that was on its way is stored", move_on, *purge, resume)
    if move is Move.LEAVE:
        return (drain, f"delete {old}", without) if queue else (drain, f"{without}, from the next message on", f"delete {old}")
    if move is Move.RENAME:
        if queue:
            return (drain, f"delete {old}", create, read, resume)
        return (drain, create, read, move_on, resume, f"delete {old}")
    return {
        Move.ADD: (f"{_making(reader)}{_from(reader)}",),
        Move.EXCHANGE: (drain, f"detach {origin}", f"update {new}", f"attach {origin} again", resume),
        Move.RESTORE: (f"{_making(reader)} again{_from(reader)}",),
        Move.REFRESH: (f"update {new}",),
        Move.REMOVE: (f"delete {old}",),
        Move.CONTINUE: (f"go on with what was begun at {origin}",),
    }[move]


def _making(reader: EntryChange) -> str:
    filters = [one for one in filters_of(reader.target.wire) if one != EVERYTHING] if reader.target else []
    return f"create {reader.new_name}{f' for {in_short(filters)}' if filters else ''}"


def _from(reader: EntryChange) -> str:
    """Where a durable begins that begins by itself."""
    config = reader.target.wire if reader.target else {}
    if config.get("opt_start_seq"):
        return f", from sequence {config['opt_start_seq']} on"
    return f", from {config['opt_start_time']} on" if config.get("opt_start_time") else ""


def point_of_no_return(reader: EntryChange, move: Move, retention: str) -> str:
    """From which step on it can only go on; empty where nothing has to be taken back."""
    old = reader.old.name if reader.old else reader.old_name
    if retention == "workqueue" and move in (Move.LEAVE, Move.RENAME):
        return f"deleting {old}"
    return {
        Move.TAKE: f"reading {reader.origin} through {reader.new_name}",
        Move.RENAME: f"reading {reader.origin} through {reader.new_name}",
        Move.LEAVE: f"reading {reader.origin} without {old}",
        Move.EXCHANGE: f"detaching {reader.origin}",
    }.get(move, "")


def warnings(scene: Scene, reader: EntryChange, move: Move) -> Iterator[str]:
    """What somebody should know of it: that the origin is another one, and limits of it that may remove messages meanwhile."""
    if reader.stands_in:
        yield f"{reader.origin} was made anew since it was copied from last: {reader.new_name} stands in for {reader.spoken}"
    info = origin_info(scene, reader) if move in HANDS_OVER else None
    if info is None:
        return
    config, state = info["config"], info["state"]
    age = config.get("max_age", 0)
    if 0 < age <= 2 * DEFAULT_DEADLINE:
        yield f"{reader.origin} keeps messages for {units.format_duration(age)} only: copying may pause for longer than that"
    most = config.get("max_msgs", -1)
    if most > 0 and state["messages"] * 10 >= most * 9 and config.get("retention", "limits") == "limits":
        yield f"{reader.origin} is nearly full ({state['messages']:,} of {most:,}): it may drop messages while copying pauses"
