"""What was begun of a stream's entries, and may not go where the manifests want it by now: it comes to rest as it is.

A durable that a stream reads through stands still until its position is set. Were the whole change blocked, nothing would be
copied until somebody reacts, and some blocks would never go away: what is not copied counts as waiting to be lost.
(Not so between two durables of a workqueue, the old one gone and the new one not yet read: the queue keeps everything.)

Invariant: no entry, and no durable, becomes another one by it; a durable only goes where nobody has read through it yet.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from reconciler.model.identity import Key
from reconciler.model.journals import ENTRY
from reconciler.model.normal import canonical
from reconciler.model.seen.live import LiveStream
from reconciler.model.sourcing import detached
from reconciler.plan.change import Action, Change
from reconciler.plan.marks import damage
from reconciler.plan.scene import Scene
from reconciler.procedures.consumer import ConsumerSeen, ConsumerTarget, encode
from reconciler.procedures.move_subject import StreamTarget
from reconciler.sources.entries import EntryChange
from reconciler.sources.migration.migrate import MigrateSource, Slot
from reconciler.sources.migration.pairs import durable_key
from reconciler.sources.migration.step import durable_name, journal_of

_NOT_EVEN_THIS = frozenset({"unknown", "no-such-stream"})
"""Codes of reasons that speak against this as well."""


def settled(scene: Scene, change: Change, seen: LiveStream, begun: Iterable[tuple[EntryChange, Slot]]) -> Change | None:
    """The change that brings them to rest, and says what is blocked afterwards; None where nothing can be done."""
    if any(reason.code in _NOT_EVEN_THIS for reason in change.reasons):
        return None
    slots = tuple(found for reader, slot in begun if (found := _as_it_is(scene, reader, slot)))
    if not slots:
        return None
    notes = tuple(f"then blocked, {reason.code}: {reason.message}" for reason in change.reasons)
    told = tuple(f"bring to an end what was begun at {slot.origin}" for slot in slots)
    machine = MigrateSource(StreamTarget(change.key, _as_read(seen, slots)), slots, steps=told, notes=notes)
    return replace(
        change,
        action=Action.PROCEDURE,
        wanted=None,
        reasons=(),
        fields=(),
        config=machine.stream.config,
        machine=machine,
        continues=True,
        touches=machine.touches,
        notes=(*change.notes, *notes),
    )


def _as_it_is(scene: Scene, reader: EntryChange, slot: Slot) -> Slot | None:
    """A slot whose end is the live entry; None where none is under way, or only its end says what the entry has to be.

    Nor where a mark makes no sense: where its durable stands is in there.
    """
    keys = dict.fromkeys(key for key in (reader.old, reader.target.key if reader.target else None) if key)
    if any(damage(seen) for key in keys if (seen := scene.live.consumer(key))):
        return None
    begun = [key for key in keys if _under_way(scene, key)]
    if reader.live is None:  # nobody reads through it: what was only made for that goes, anything else is let go
        return replace(slot, before=b"", after=b"", said=b"", durable=None, old=begun[0], drop_old=False) if begun else None
    if detached(reader.live):
        return _attached(scene, reader, slot)
    reading = durable_key(reader.live, reader.stream)
    seen = scene.live.consumer(reading) if reading else None
    if reading and _under_way(scene, reading) and reading not in begun:
        begun.append(reading)
    if not begun or (reading and seen is None):
        return None
    others = [key for key in begun if key != reading]
    entry = canonical(reader.live)
    durable = ConsumerTarget(key=reading, config=encode(reading.mark, seen.config, None), level=0) if reading and seen else None
    return replace(slot, before=entry, after=entry, said=b"", durable=durable, old=others[0] if others else None, drop_old=False)


def _attached(scene: Scene, reader: EntryChange, slot: Slot) -> Slot | None:
    """A slot whose end is the entry that a placeholder stands for, as far as the durable's journal tells."""
    key = durable_key(reader.live or {}, reader.stream)
    seen = scene.live.consumer(key) if key else None
    entry = ConsumerSeen(seen.info).data.get(ENTRY) if seen else None
    if key is None or seen is None or not isinstance(entry, dict) or durable_name(entry) != key.name:
        return None
    durable = ConsumerTarget(key=key, config=encode(key.mark, seen.config, None), level=0)
    before, after = canonical(reader.live or {}), canonical(entry)
    return replace(slot, before=before, after=after, said=b"", durable=durable, old=None, drop_old=False)


def _as_read(seen: LiveStream, slots: Iterable[Slot]) -> bytes:
    """The live configuration, with entries in the place of their placeholders."""
    ends = {slot.before: slot.wanted for slot in slots if slot.before}
    sources = [ends.get(canonical(entry), entry) for entry in seen.config.get("sources") or ()]
    return canonical({**seen.config, "sources": sources} if sources else seen.config)


def _under_way(scene: Scene, key: Key) -> bool:
    seen = scene.live.consumer(key)
    return seen is not None and seen.special and bool(journal_of(ConsumerSeen(seen.info)))
