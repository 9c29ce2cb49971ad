"""Taking a durable into use: it is paused from before the entry reads through it until its cursor is right.

    made or noted, paused, journal `attach` ▸ the entry reads through it ▸ RESET ▸ journal `resume` ▸ resumed ▸ flows ▸ clear

Invariant: it delivers nothing before it stands behind the last message that was copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from reconciler.model import units
from reconciler.model.identity import Key
from reconciler.model.journals import ATTACH, DRAIN, ENTRY, FROM, LEAST, LEFT, RESUME, START
from reconciler.model.marker import CopiedBefore
from reconciler.model.normal import Config
from reconciler.model.sourcing import copied_subjects, detached, identity_of, placeholder
from reconciler.procedures.consumer import DEFAULT_DEADLINE, ConsumerSeen, ConsumerTarget, encode
from reconciler.procedures.machine import Ask
from reconciler.procedures.pause import PATIENCE, by_somebody_else, let_go, pause_as_declared
from reconciler.procedures.requests import (
    Copied,
    DeleteConsumer,
    LastCopied,
    Message,
    NextMessage,
    PauseConsumer,
    PurgeStream,
    ResetConsumer,
    UpdateConsumer,
)
from reconciler.procedures.side_by_side import PartStep
from reconciler.sources.migration.pairs import place_of, reads_through, same_entry
from reconciler.sources.migration.step import FAR, Ground, journal_of, means

UNTOLD = 15 * 10**9
"""How long the first acknowledgement of a new reader is waited for, where leaders were elected lately: they may forget."""


def prepare(ground: Ground, live: Config, target: ConsumerTarget) -> PartStep:
    """From an ephemeral entry: the durable waits, paused and journalled, while the entry still reads as before."""
    found = ground.copied(live)
    if isinstance(found, Ask):
        return ground.ask(*found.reads, *ground.origin)
    least = max(found.seq, _told(ground, live))
    return enlist(ground.resting(least), target, {FROM: live, LEAST: least})


def enlist(ground: Ground, target: ConsumerTarget, data: Mapping[str, Any]) -> PartStep:
    """A durable waits, paused and journalled, to be taken into use; it may be there already."""
    afresh = replace(ground, memory=replace(ground.memory, copied=-1, purged=()))
    if ground.view.consumer(target.key) is None:
        return ground.moved() or afresh.prepare(target, data)
    return afresh.note(target.key, target.wire, ATTACH, data, f"note the procedure in {target.key.name}")


def take(ground: Ground, seen: ConsumerSeen, key: Key, live: Config | None) -> PartStep | None:
    """Towards what is wanted today or, where that is something else by now, first to the end of what was begun."""
    slot = ground.slot
    if slot.durable and slot.durable.key == key and _may_change(seen, slot.durable, live, slot.wanted):
        target, wanted = slot.durable, slot.wanted
    elif live is not None and reads_through(live, key.name):
        target, wanted = ConsumerTarget(key=key, config=encode(key.mark, seen.config, None), level=0), live
    else:
        return _abandon(ground, seen, key, live)
    if journal_of(seen) == RESUME:
        return _resume(ground, seen, target, wanted)
    return _attach(ground, seen, target, wanted)


def _may_change(seen: ConsumerSeen, target: ConsumerTarget, live: Config | None, wanted: Config) -> bool:
    """Whether it can still become what is wanted by now: what runs already has to be held still again before it changes."""
    if journal_of(seen) != RESUME:
        return True
    return same_entry(live, wanted) and means(seen.config) == means(target.wire)


def _abandon(ground: Ground, seen: ConsumerSeen, key: Key, live: Config | None) -> PartStep | None:
    """It was prepared, and is not wanted any more."""
    if live is not None and detached(live) == key.name:  # all that is known of its position is in its journal
        as_it_is = ConsumerTarget(key=key, config=encode(key.mark, seen.config, None), level=0)
        known = {ENTRY: seen.data.get(ENTRY)}
        noted = ground.note(key, seen.config, DRAIN, known, f"note that {key.name} is left")
        return (_positioned(ground, seen, as_it_is) if journal_of(seen) == ATTACH else None) or noted
    made = seen.data.get("made") and not seen.info["delivered"]["consumer_seq"]
    if made or ground.slot.drop_old:
        return ground.do(DeleteConsumer(key), f"delete {key.name}, which is not needed")
    return ground.finished(let_go(key, seen))


def _attach(ground: Ground, seen: ConsumerSeen, target: ConsumerTarget, wanted: Config) -> PartStep:
    if not seen.paused_by_other:
        step = _kept_paused(ground, seen, target)
        if step:
            return step
    elif seen.pause_until - seen.time < DEFAULT_DEADLINE:  # else it stands still, and whoever paused it ends that
        return by_somebody_else(target.key, seen)
    live = ground.view.entry(ground.slot)
    if not same_entry(live, wanted):
        return _switch(ground, seen, target, wanted, live)
    noted = ground.note(target.key, target.wire, RESUME, {ENTRY: wanted}, f"note that {target.key.name} stands where it shall")
    return ground.attached(seen, wanted) or _positioned(ground, seen, target) or noted


def _kept_paused(ground: Ground, seen: ConsumerSeen, target: ConsumerTarget) -> PartStep | None:
    """The next step towards a pause that is as long as it may take; None when that is so."""
    if seen.chosen - seen.time < FAR // 2:
        noted = seen.chosen_again(ground.now + FAR)
        return ground.do(UpdateConsumer(target.key, noted), f"note until when {target.key.name} is paused", asked_at=0)
    if not seen.paused_as_chosen:
        if ground.now - ground.memory.asked_at < PATIENCE:
            return ground.wait("the pause takes effect")
        until = units.format_time(seen.chosen)
        return ground.do(PauseConsumer(target.key, until), f"pause {target.key.name}", asked_at=ground.now)
    return None


def _positioned(ground: Ground, seen: ConsumerSeen, target: ConsumerTarget) -> PartStep | None:
    """The next step towards a paused durable that stands behind what was copied; None once it does."""
    start = _start(ground, seen, target)
    if not isinstance(start, int):
        return start
    if start and seen.floor != start - 1:
        return ground.moved() or ground.do(ResetConsumer(target.key, start), f"reset {target.key.name} to {start}")
    left = _left_behind(ground, seen)
    if not left:
        return None
    write = PurgeStream(ground.slot.origin, start, left[0])
    return ground.moved() or ground.do(write, f"purge what was copied before {start}", purged=(*ground.memory.purged, left[0]))


def _switch(ground: Ground, seen: ConsumerSeen, target: ConsumerTarget, wanted: Config, live: Config | None) -> PartStep:
    """The entry begins to read through the paused durable, unless the one that it leaves has moved on meanwhile."""
    other = ground.slot.old
    if live is not None and other and other != target.key and reads_through(live, other.name):
        leaving = ground.view.consumer(other)
        still = ground.drained(other, leaving) if leaving else None
        if still is not None and not isinstance(still, int):
            return still
        if still is not None and seen.data.get(START) != still + 1:
            data = {**seen.data, START: still + 1}
            title = f"note that {target.key.name} begins at {still + 1}"
            return ground.resting(still).note(target.key, seen.config, ATTACH, data, title)
    if means(seen.config) != means(target.wire):
        if live is not None and reads_through(live, target.key.name):
            if seen.data.get(ENTRY) != live:
                data = {**seen.data, ENTRY: live}
                return ground.note(target.key, seen.config, ATTACH, data, f"note how {ground.slot.origin} is read")
            return ground.update(placeholder(live), f"detach {ground.slot.origin}", final=True)
        if seen.info.get("push_bound"):
            return ground.wait("the stream lets go")
        return ground.note(target.key, target.wire, ATTACH, {**seen.data, ENTRY: wanted}, f"update {target.key.name}")
    before = _before(ground, seen, target, live)
    if before is not None and not isinstance(before, CopiedBefore):
        return before
    title = f"read {ground.slot.origin} through {target.key.name}"
    return ground.update(wanted, title, final=True, held=True, before=before)


def _before(ground: Ground, seen: ConsumerSeen, target: ConsumerTarget, live: Config | None) -> CopiedBefore | PartStep | None:
    """How the entry has copied so far, for whoever has to make the durable again; None where it is the same one."""
    if live is None or detached(live) or reads_through(live, target.key.name):
        return None
    claimed = seen.sequence(START) or (seen.sequence(LEAST) or 0) + 1
    shown = _shown(ground, seen, claimed)
    return CopiedBefore(target.key.name, identity_of(live), shown - 1, ground.slot.made) if isinstance(shown, int) else shown


def _start(ground: Ground, seen: ConsumerSeen, target: ConsumerTarget) -> int | PartStep:
    """Where it has to begin; 0 when it begins there by itself."""
    start, left, before = seen.sequence(START), ground.known(seen, LEFT), ground.known(seen, FROM)
    if not ground.counts(seen):
        return _not_before_declared(ground, target.wire, 1)
    if start is None:
        rested = ground.rested(before or ground.slot.was, seen.sequence(LEAST) or 0)
        if not isinstance(rested, int):
            return rested
        start = rested + 1
    if start and left:
        found = ground.copied(left)
        more = ground.rested(left, start - 1) if isinstance(found, Copied) and found.seq >= start else start - 1
        if isinstance(found, Ask) or not isinstance(more, int):
            return found if isinstance(found, Ask) else more
        start = more + 1
    shown = _shown(ground, seen, start) if start else 0
    return _not_before_declared(ground, target.wire, shown) if isinstance(shown, int) and shown else shown


def _shown(ground: Ground, seen: ConsumerSeen, start: int) -> int | PartStep:
    """At most behind what is seen to be acknowledged or copied: a journal is a claim, and what it skips nobody gets."""
    slot, old = ground.slot, ground.view.consumer(ground.slot.old)
    known = max(seen.floor, old.floor if old else 0, ground.memory.rested_at)
    entries = (ground.view.entry(slot), slot.was, *(ground.known(seen, part) for part in (ENTRY, LEFT, FROM)))
    noted = ground.noted(seen.info["name"])
    if not isinstance(noted, int):
        return noted
    known = max(known, noted)
    for entry in entries:
        if start - 1 <= known:
            return start
        if not entry or detached(entry):
            continue
        found = ground.copied(entry)
        if isinstance(found, Ask):
            return found
        known = max(known, found.seq, _told(ground, entry))
    return min(start, known + 1)


def _not_before_declared(ground: Ground, config: Mapping[str, Any], start: int) -> int | PartStep:
    """RESET refuses what lies before the declared start."""
    if config.get("deliver_policy") == "by_start_sequence":
        return max(start, int(config.get("opt_start_seq") or 1))
    if config.get("deliver_policy") == "by_start_time":
        search = NextMessage(ground.slot.origin, ">", start)
        if search not in ground.view.facts:
            return ground.ask(search)
        found = ground.view.facts[search]
        if isinstance(found, Message) and units.parse_time(found.time) < units.parse_time(config["opt_start_time"]):
            return 0
    return start


def _left_behind(ground: Ground, seen: ConsumerSeen) -> tuple[str, ...]:
    """On a workqueue: subjects of which the server's own durable may have copied messages without acknowledging them."""
    before = ground.known(seen, FROM)
    if ground.slot.retention != "workqueue" or not before or not ground.counts(seen):
        return ()
    return tuple(one for one in (copied_subjects(before) or (">",)) if one not in ground.memory.purged)


def _resume(ground: Ground, seen: ConsumerSeen, target: ConsumerTarget, wanted: Config) -> PartStep:
    key, now, memory = target.key, ground.now, ground.memory
    step = pause_as_declared(key, seen, target.marker.pause_until)
    if step:
        resumes = isinstance(step.write, PauseConsumer) and not step.write.until
        if now - memory.asked_at < PATIENCE and memory.flowing_from:
            return ground.wait(f"{key.name} resumes")
        wait = ground.attached(seen, wanted) if resumes else None
        return wait or ground.do(step.write, step.title, asked_at=now, flowing_from=now, stood=seen.floor)
    waiting = memory.flowing_from or now
    bound = seen.info.get("push_bound") and ground.view.flows(wanted)
    if not bound and not seen.paused and now - waiting < PATIENCE:
        return ground.wait("messages flow again", flowing_from=waiting)
    stood = memory.stood if memory.stood >= 0 else seen.floor
    untold = seen.floor == stood and (seen.in_flight or seen.info["num_pending"])
    if not ground.calm and untold and not seen.paused and now - waiting < UNTOLD:
        return ground.wait("the first messages are acknowledged", flowing_from=waiting, stood=stood)
    other = ground.slot.old
    left = drop(ground, other) if other and other != key else None
    return left or ground.do(UpdateConsumer(key, encode(key.mark, target.wire, None)), f"clear the journal of {key.name}")


def drop(ground: Ground, key: Key) -> PartStep | None:
    """What nobody reads through any more goes, or is let go; None when that is so."""
    seen = ground.view.consumer(key)
    if seen is None:
        return None
    if ground.slot.drop_old:
        return ground.do(DeleteConsumer(key), f"delete {key.name}")
    return ground.finished(let_go(key, seen)) if journal_of(seen) else None


def _told(ground: Ground, entry: Config) -> int:
    """How far the server says that a source has come (2.15 on); 0 where it does not say, or several could be meant.

    Before it has copied anything of an origin that was made anew, it may speak of the one before.
    """
    copied = ground.view.facts.get(LastCopied(ground.view.stream, identity_of(entry)))
    if isinstance(copied, Copied) and ground.older(copied):
        return 0
    sources = (ground.view.info or {}).get("sources") or ()
    told = [one.get("seq", 0) for one in sources if place_of(one) == place_of(entry)]
    return int(told[0]) if len(told) == 1 else 0


def unknown_position(ground: Ground, live: Config) -> str:
    """Why nobody can tell how far an entry has copied; empty when it can be told."""
    found = ground.copied(live)
    if isinstance(found, Ask) or found.seq or found.complete or _told(ground, live):
        return ""
    return f"{ground.view.stream} no longer holds what it copied last from {ground.slot.origin}: where to go on is unknown"
