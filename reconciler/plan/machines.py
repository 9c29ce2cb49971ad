"""Which changes need more than one request, which machine does them, and which half-done ones must go on.

Invariant: a consumer (or its hold) that carries a journal is only ever continued, never changed by a plain update.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from reconciler.model import units
from reconciler.model.desired import Declared
from reconciler.model.identity import Key
from reconciler.model.marker import Journal
from reconciler.model.seen.live import LiveConsumer
from reconciler.model.units import MAX_INT64
from reconciler.plan.change import Action, Cause, Change, FieldDiff, Reason
from reconciler.plan.comparing.difference import Difference
from reconciler.plan.losses import permitted, uncovered
from reconciler.plan.marks import damage
from reconciler.plan.scene import Scene
from reconciler.procedures.consumer import (
    RESET_LEVEL,
    REWINDABLE,
    ConsumerSeen,
    ConsumerTarget,
    caught_up_in,
    expected_duplicates,
    promised_duplicates,
)
from reconciler.procedures.filter_add import FilterAdd
from reconciler.procedures.holds import HOLD_PREFIX, held_consumer, hold_key, proven
from reconciler.procedures.let_go import LetGo
from reconciler.procedures.machine import Procedure
from reconciler.procedures.pause import paused_by_person, way_to_resume
from reconciler.procedures.recreate_consumer import RecreateConsumer
from reconciler.procedures.requests import Message, NextMessage, StreamInfo
from reconciler.procedures.restore_consumer import RestoreConsumer
from reconciler.procedures.resume import resume
from reconciler.procedures.set_pause import SetPause

_COUNTABLE_FILTERS = 16
"""More filters than that are not counted one by one for the estimate of duplicates."""
_SECOND = "declare a second consumer for the new filters (`deliverPolicy: all`)"


def is_hold(name: str) -> bool:
    """Whether a consumer only keeps the place of another one."""
    return name.startswith(HOLD_PREFIX)


def consumer_machine(scene: Scene, difference: Difference, change: Change, *, recreate: bool) -> Change:
    """The change of a live consumer, with the machine it needs, if any."""
    added = uncovered(difference.wanted.get("filter_subjects", []), difference.live.get("filter_subjects", []))
    if not recreate and not added:
        return _with_pause(scene, difference, change)
    person = paused_by_person(_target(scene, change, 0), ConsumerSeen(difference.seen.info))
    if person:
        message = f"{person.message}, and the change needs to pause and resume it"
        return change.blocked(Reason(person.code, message, way_to_resume(change.key)))
    first = _first_stored(scene, difference, added)
    if recreate:
        start = min(_floor(difference) + 1, first.seq if first else MAX_INT64)
        return _as_procedure(change, RecreateConsumer(_target(scene, change, _delivered_again(scene, difference, start))))
    if first is None:
        return _as_procedure(change, FilterAdd(_target(scene, change, 0), stored=False))
    loss = _cannot_rewind(scene, difference, first)
    if loss:
        against, allowed = permitted(scene, change.key, [loss])
        return change.blocked(*against) if against else replace(change, notes=(*change.notes, *allowed))
    return _as_procedure(change, FilterAdd(_target(scene, change, _delivered_again(scene, difference, first.seq))))


def _as_procedure(change: Change, machine: Procedure) -> Change:
    action = Action.ADOPT if change.action is Action.ADOPT else Action.PROCEDURE
    return replace(change, action=action, machine=machine, touches=machine.touches)


def _target(scene: Scene, change: Change, duplicates: int) -> ConsumerTarget:
    stream = scene.live.stream(change.key)
    config = stream.config if stream else {}
    return ConsumerTarget(
        key=change.key,
        config=change.config,
        level=scene.live.server.level,
        retention=config.get("retention", "limits"),
        replicas=config.get("num_replicas", 1),
        expected_duplicates=duplicates,
    )


def _first_stored(scene: Scene, difference: Difference, added: tuple[str, ...]) -> Message | None:
    """The first stored message that one of the added filters matches; None also while that is not known yet."""
    key = difference.declared.key
    stream = scene.live.stream(key)
    if stream is None or not stream.info["state"]["messages"]:
        return None
    start = difference.wanted.get("opt_start_seq") or 1
    answers = [scene.ask(NextMessage(key.stream_key, subject, start), key) for subject in added]
    return min((fact for fact in answers if isinstance(fact, Message)), key=lambda found: found.seq, default=None)


def _cannot_rewind(scene: Scene, difference: Difference, first: Message) -> Reason | None:
    """Why the cursor cannot be moved back to what is stored for the new filters."""
    target = _target(scene, Change(key=difference.declared.key, action=Action.UPDATE, cause=Cause.MANIFEST, config=b"{}"), 0)
    policy = difference.wanted.get("deliver_policy", "all")
    if target.level < RESET_LEVEL:
        why, way_out = "moving it back needs API level 4 (nats-server 2.14)", "upgrade the server"
    elif policy not in REWINDABLE:
        why, way_out = f"a consumer with deliverPolicy {policy} cannot be moved back", _SECOND
    elif target.retention == "interest" and target.replicas > 1:
        why, way_out = "moving it back on a replicated interest stream can delete messages", _SECOND
    elif _too_early(difference.wanted, first):
        why, way_out = "they lie before optStartTime", _SECOND
    else:
        return None
    return _loss(first, why, way_out)


def _too_early(wanted: Mapping[str, Any], first: Message) -> bool:
    since = wanted.get("opt_start_time")
    return bool(since and units.parse_time(first.time) < units.parse_time(since))


def _loss(first: Message, why: str, way_out: str) -> Reason:
    message = f"messages stored for the new filters, from sequence {first.seq:,} on, would be skipped: {why}"
    return Reason("position-loss", message, f"{way_out}, or accept it by name with `reconciler/allow: position-loss`")


def _delivered_again(scene: Scene, difference: Difference, start: int) -> int:
    """At most this many messages are delivered a second time when the cursor goes back to `start`."""
    key, info = difference.declared.key, difference.seen.info
    stream = scene.live.stream(key)
    bound = expected_duplicates(info, start, stream.config.get("retention", "limits") if stream else "limits")
    filters = difference.live.get("filter_subjects", []) or [">"]
    if not bound or len(filters) > _COUNTABLE_FILTERS:
        return bound
    answers = [scene.ask(StreamInfo(key.stream_key, subject), key) for subject in filters]
    if not all(isinstance(fact, dict) for fact in answers):
        return bound
    stored = sum(sum((fact["state"].get("subjects") or {}).values()) for fact in answers if isinstance(fact, dict))
    return min(bound, max(0, stored - int(info.get("num_pending", 0))))


def _floor(difference: Difference) -> int:
    return ConsumerSeen(difference.seen.info).floor


def _with_pause(scene: Scene, difference: Difference, change: Change) -> Change:
    wanted, remembered = difference.declared.intent.pause_until, difference.marker.pause_until
    if not pause_differs(scene, difference):
        return change
    shown = FieldDiff("pauseUntil", difference.seen.config.get("pause_until"), wanted or None)
    return _as_procedure(replace(change, fields=(*change.fields, shown)), SetPause(change.key, change.config, wanted, remembered))


def pause_differs(scene: Scene, difference: Difference) -> bool:
    """Whether the declared pause (or its removal) still has to be carried out."""
    wanted, remembered = difference.declared.intent.pause_until, difference.marker.pause_until
    if not wanted:
        return bool(remembered)
    live = difference.seen.config.get("pause_until")
    expired = units.parse_time(wanted) <= scene.live.observed_at
    return not expired and (live is None or units.parse_time(live) != units.parse_time(wanted) or remembered != wanted)


def continuation(scene: Scene, journal: Journal, seen: LiveConsumer, change: Change) -> Change:
    """The rest of a procedure that was interrupted, towards what the manifest says now."""
    target = _target(scene, change, promised_duplicates(journal))
    if aggregate := caught_up_in(journal):
        return _caught_up(scene, aggregate, change)
    machine = resume(target, seen.info) if seen.marker.journal else RecreateConsumer(target)
    if machine is None:
        return change.blocked(of_another_version(journal))
    note = f"goes on with {journal.name} from step {journal.step!r}"
    return replace(
        change, action=Action.PROCEDURE, reasons=(), machine=machine, continues=True, touches=machine.touches, notes=(note,)
    )


def of_another_version(journal: Journal) -> Reason:
    """Why nobody goes on with it here."""
    message = f"it is in the middle of {journal.name}, which this version does not know"
    return Reason("procedure", message, "use the version that began it")


def _caught_up(scene: Scene, aggregate: str, change: Change) -> Change:
    """A change of how a stream copies takes it along to its end (see `sources.change`); without that stream it is let go."""
    stream = Key.parse(aggregate)
    if stream in scene.streams or stream in scene.live.streams or scene.live.why_unknown(stream):
        reader = stream.resource_key
        again = f"declare {reader} again, or delete it first: `--prune --target {reader}`"
        way_out = f"see {reader}" if stream in scene.streams else again
        message = f"it is in the middle of a change of how {reader} copies, which cannot go on"
        return replace(change, continues=True).blocked(Reason("procedure", message, way_out))
    return replace(_as_procedure(change, LetGo(change.key)), reasons=(), continues=True)


def journal_of(scene: Scene, key: Key, seen: LiveConsumer | None) -> Journal | None:
    """The journal of a procedure under way: in the consumer, or in the hold that keeps its place."""
    if seen is not None and seen.special and seen.marker.journal:
        return seen.marker.journal
    hold = scene.live.consumer(hold_key(key)) if key.kind == "Consumer" else None
    if hold is None or hold.owner != scene.rules.owner or held_consumer(hold_key(key), hold.config) != key:
        return None
    return hold.marker.journal


def _kept_place(scene: Scene, key: Key) -> str:
    """What is known of where a consumer stood that is away: nothing but what its hold says."""
    hold, stream = scene.live.consumer(hold_key(key)), scene.live.stream(key)
    start = proven(key, ConsumerSeen(hold.info) if hold else None, stream.info if stream else None)
    if start:
        return f"nothing but its hold says where it stood: it goes on at {start:,}"
    return "its hold does not prove where it stood: it begins as declared, and what it was done with may be delivered again"


def resumed_creation(scene: Scene, declared: Declared, change: Change) -> Change:
    """A missing consumer: one that was being replaced, one that we saw before, or really a new one."""
    journal = journal_of(scene, declared.key, None)
    if journal is not None:
        machine: Procedure = RecreateConsumer(_target(scene, change, promised_duplicates(journal)))
        note = f"goes on with {journal.name} from step {journal.step!r}"
        return replace(_as_procedure(change, machine), continues=True, notes=(note, _kept_place(scene, declared.key)))
    hold = scene.live.consumer(hold_key(declared.key))
    if damaged := damage(hold) if hold and hold.owner == scene.rules.owner else None:
        return change.blocked(replace(damaged, message=f"{hold_key(declared.key)}: {damaged.message}"))
    floor = scene.memory.floors.get(declared.key)
    stream = scene.live.stream(declared.key)
    if stream is None or stream.info["created"] != scene.memory.created.get(declared.key.stream_key):
        return change  # it went with its stream
    if floor is None or declared.intent.on_missing == "policy":
        return change
    if declared.intent.on_missing == "block":
        way_out = "set `onMissing` to `resume` (it goes on where it was seen last) or `policy` (it starts as declared)"
        return change.blocked(Reason("missing", "somebody deleted it, and onMissing is block", way_out))
    return _as_procedure(change, RestoreConsumer(_target(scene, change, 0), floor))
