"""What becomes of one entry that reads, or shall read, through a durable; and why that may not be done.

| an entry | becomes | move |
|---|---|---|
| none | durable | `add`: the durable first, then the entry |
| ephemeral | durable | `take` |
| durable | ephemeral | `leave` |
| durable | another durable | `rename` |
| durable | itself, with another deliver subject, filter or transform | `exchange` |
| durable | itself, but it is missing, or was changed | `restore`, `refresh` |
| durable | none | `remove`: the entry first, then the durable |

Invariant: whatever would lose or repeat messages, or cannot be known not to, has a reason here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from shlex import quote

from reconciler.model import subjects
from reconciler.model.flow import filters_of
from reconciler.model.identity import Key
from reconciler.model.journals import is_known
from reconciler.model.seen.live import LiveConsumer
from reconciler.model.sourcing import copied_subjects, fresh_ephemeral, is_unused
from reconciler.plan import losses
from reconciler.plan.change import Reason, not_seen
from reconciler.plan.comparing.display import in_short
from reconciler.plan.comparing.mutability import MIRROR_WAY_OUT
from reconciler.plan.machines import of_another_version
from reconciler.plan.marks import damage, not_owned
from reconciler.plan.scene import Scene
from reconciler.procedures.consumer import REWINDABLE, ConsumerSeen, delivered_by, immutable_differences
from reconciler.procedures.pause import way_to_resume
from reconciler.sources.entries import EntryChange, is_kept_on, is_mirrored, is_placeholder, origin_info, origin_subjects
from reconciler.sources.migration.detach import needs_stillness
from reconciler.sources.migration.pairs import durable_key
from reconciler.sources.migration.step import durable_name, journal_of
from reconciler.sources.overtaken import WAY_OUT, Widened, overtaken, selected, spelled

_CONSUMER_FIRST = "do it in two steps: first give the entry its `consumer`, then change what it copies"
_CONSUMER_LAST = "do it in two steps: first change what the entry copies, then its `consumer`"
_ANOTHER_NAME = "give the `consumer` of the entry another name"


class Move(StrEnum):
    """What is done about one entry."""

    ADD = "add"
    TAKE = "take"
    LEAVE = "leave"
    RENAME = "rename"
    EXCHANGE = "exchange"
    RESTORE = "restore"
    REFRESH = "refresh"
    REMOVE = "remove"
    CONTINUE = "continue"


HANDS_OVER = frozenset({Move.TAKE, Move.LEAVE, Move.RENAME, Move.EXCHANGE})
_TAKES = frozenset({Move.TAKE, Move.RENAME, Move.EXCHANGE})
_LEAVES = frozenset({Move.LEAVE, Move.RENAME, Move.EXCHANGE})


def move_of(scene: Scene, reader: EntryChange) -> Move | None:
    """What has to be done about an entry beyond a plain update of its stream; None for nothing."""
    keys = [key for key in (reader.old, reader.target.key if reader.target else None) if key]
    if is_placeholder(reader) or any(_under_way(scene.live.consumer(key)) for key in keys):
        return Move.CONTINUE
    return _plain_move(scene, reader)


def _plain_move(scene: Scene, reader: EntryChange) -> Move | None:
    if reader.live is None or reader.wanted is None:
        if reader.wanted is not None:
            return Move.ADD if reader.managed or reader.old else None
        return Move.REMOVE if _ours_to_drop(scene, reader) else None
    old, new = reader.old_name, reader.new_name
    if old != new:
        return Move.TAKE if not old else Move.LEAVE if not new else Move.RENAME
    read = reader.target.key if reader.target else durable_key(reader.live, reader.stream)
    left_over = reader.old is not None and (not new or reader.old != read)
    if left_over and _ours_to_drop(scene, reader):
        return Move.REMOVE
    return _in_place(scene, reader) if new else None


def _under_way(seen: LiveConsumer | None) -> bool:
    if seen is None:
        return False
    consumer = ConsumerSeen(seen.info)
    return (seen.special and bool(journal_of(consumer))) or (bool(seen.owner) and consumer.left_paused)


def _ours_to_drop(scene: Scene, reader: EntryChange) -> bool:
    """Whether the old durable goes when nobody reads through it any more: it is ours, and nobody declares it."""
    seen = scene.live.consumer(reader.old) if reader.old else None
    return seen is not None and drops(scene, reader)


def drops(scene: Scene, reader: EntryChange) -> bool:
    """The same for one that may not be there yet."""
    key = reader.old
    if key is None or (reader.target and key == reader.target.key) or is_kept_on(scene, reader, key):
        return False
    declared, seen = scene.desired.resources.get(key), scene.live.consumer(key)
    if declared is not None and declared.intent.state != "absent":
        return False
    if seen is None or not scene.ours(key, seen):
        return seen is None
    return seen.named or (reader.live is not None and durable_name(reader.live) == key.name)  # else only a mark ties it to this


def _in_place(scene: Scene, reader: EntryChange) -> Move | None:
    """The durable stays the same one."""
    target = reader.target
    if target is None:
        return None if reader.unchanged else Move.EXCHANGE
    seen = scene.live.consumer(target.key)
    if seen is None:
        return Move.RESTORE if reader.managed else None if reader.unchanged else Move.EXCHANGE
    if not reader.unchanged or needs_stillness(seen.config, target.wire):
        return Move.EXCHANGE
    if reader.managed and (seen.digest != target.marker.spec or seen.marker != target.marker):
        return Move.REFRESH
    return None


@dataclass(frozen=True, slots=True)
class Judge:
    """Why a move may not be made."""

    scene: Scene
    aggregate: Key
    reader: EntryChange
    move: Move

    def reasons(self) -> Iterator[Reason]:
        """All of them; none when it may be made."""
        unknown = list(self._unknown())
        if unknown or self.move is Move.CONTINUE:
            yield from unknown or self._going_on()
            return
        yield from self._ownership()
        if self.move is Move.EXCHANGE and is_mirrored(self.scene, self.reader):
            message = "a mirror cannot be taken off its durable, so what that one delivers, and where, cannot be changed"
            yield Reason("immutable", message, MIRROR_WAY_OUT)
            return
        if self.move in _TAKES | {Move.REFRESH}:
            yield from self.immutable()
        if self.move in HANDS_OVER and not self.scene.allows(losses.POSITION_LOSS, self.aggregate):
            yield from self.positions()
        if self.move is Move.EXCHANGE:
            yield from self.filters()
        if self.move is Move.REMOVE and self.reader.old:
            yield from losses.not_copied(self.scene, self.aggregate, self.reader.old)

    def _going_on(self) -> Iterator[Reason]:
        """What has begun ends as is wanted by now, unless that cannot be."""
        move = _plain_move(self.scene, self.reader)
        if move is None:
            return
        judge = replace(self, move=move)
        yield from judge.immutable()
        if move in HANDS_OVER and not self.scene.allows(losses.POSITION_LOSS, self.aggregate):
            yield from judge.positions()
        if move is Move.EXCHANGE:
            yield from judge.filters()

    def _unknown(self) -> Iterator[Reason]:
        reader = self.reader
        keys = (reader.old, reader.target.key if reader.target else None)
        for key in dict.fromkeys(key for key in keys if key):
            silence = self.scene.live.why_unknown(key)
            seen = self.scene.live.consumer(key)
            if silence and seen is None:
                yield not_seen(f"{key}: {silence}", key)
            if damaged := damage(seen) if seen else None:
                yield replace(damaged, message=f"{key}: {damaged.message}")
            journal = seen.marker.journal if seen and seen.special else None
            if journal and not is_known(journal.name):
                reason = of_another_version(journal)
                yield replace(reason, message=f"{key}: {reason.message}")
        needed = self.move is Move.ADD and reader.origin is not None and reader.origin not in self.scene.streams
        if needed and not self.scene.live.why_unknown(reader.origin or reader.stream) and origin_info(self.scene, reader) is None:
            message = f"{reader.origin} is neither declared nor live"
            yield Reason("no-such-stream", message, "declare the stream, or create it first")

    def _ownership(self) -> Iterator[Reason]:
        scene, reader = self.scene, self.reader
        target = reader.target.key if reader.target else None
        for key in dict.fromkeys(key for key in (reader.old if self.move in _LEAVES else None, target) if key):
            seen = scene.live.consumer(key)
            if seen is None:
                continue
            if not scene.ours(key, seen) and not (scene.rules.adopt and not seen.owner):
                whose = f"it belongs to {seen.owner!r}" if seen.owner else not_owned(seen).message
                yield Reason("not-owned", f"{key}: {whose}", _way_to_own(key, seen, is_read=key == reader.old))
            elif reader.managed and key == target and seen.marker.source not in ("", str(self.aggregate)):
                yield Reason("not-owned", f"{key} is kept for {seen.marker.source}", _ANOTHER_NAME)
            elif self.move in HANDS_OVER and seen.info.get("paused") and not seen.marker.pause_until:
                until = seen.config.get("pause_until")
                message = f"{key} was paused until {until} by somebody else, and the change needs to pause and resume it"
                yield Reason("paused-by-person", message, way_to_resume(key))

    def immutable(self) -> Iterator[Reason]:
        """Why the durable cannot become what it shall be."""
        target = self.reader.target
        seen = self.scene.live.consumer(target.key) if target else None
        if target is None or seen is None:
            return
        fields = immutable_differences(seen.config, target)
        if fields:
            message = f"{in_short(list(fields))} of {target.key} cannot be changed on a live consumer"
            mirror = is_mirrored(self.scene, self.reader)
            yield Reason("immutable", message, MIRROR_WAY_OUT if mirror else "give it another name: its position is kept")

    def positions(self) -> Iterator[Reason]:
        """Why messages would be copied again, or skipped, were it allowed."""
        reader, target = self.reader, self.reader.target
        where = reader.origin or "a stream behind an account's import"
        if reader.origin is None:
            yield self._repeats(f"what was copied from {where} cannot be told from here")
            return
        if reader.new_name and target is None:
            yield self._repeats(f"{reader.new_name} is kept by somebody else: it cannot be paused and moved to where to go on")
            return
        if target and self.move in _TAKES and target.wire.get("deliver_policy", "all") not in REWINDABLE:
            policy = target.wire["deliver_policy"]
            yield self._repeats(f"a consumer with deliverPolicy {policy} cannot be moved to where to go on")
        info = origin_info(self.scene, reader)
        retention = info["config"].get("retention", "limits") if info else "limits"
        waits = retention == "workqueue" and self.move in _LEAVES  # what is left there was not copied yet
        if self.move is not Move.EXCHANGE and not waits and self._selection_differs():
            message = "how it reads and what it copies would change at once"
            way_out = _CONSUMER_FIRST if self.move is Move.TAKE else _CONSUMER_LAST
            yield Reason(losses.POSITION_LOSS, message, way_out)
        ephemeral = self.move is Move.LEAVE and retention != "workqueue"
        if ephemeral and fresh_ephemeral(reader.wanted or {}, 1, origin_subjects(info), "") is None:
            yield self._repeats(f"{where} listens to everything: an ephemeral source could not be told from an earlier one")
        if self.move is Move.TAKE and retention == "workqueue":
            yield from self._other_readers()

    def _repeats(self, why: str) -> Reason:
        info = origin_info(self.scene, self.reader)
        stored = f" ({info['state']['messages']:,} messages would be copied again)" if info else ""
        way_out = "declare a new stream, or accept it by name with `reconciler/allow: position-loss`"
        return Reason(losses.POSITION_LOSS, why + stored, way_out)

    def _selection_differs(self) -> bool:
        reader = self.reader
        everything = origin_subjects(origin_info(self.scene, reader))
        seen = self.scene.live.consumer(reader.old) if reader.old else None
        live = {} if is_placeholder(reader) else reader.live or {}
        before = copied_subjects(live) or (filters_of(seen.config) if seen else ())
        after = copied_subjects(reader.wanted or {}) or (filters_of(reader.target.wire) if reader.target else ())
        own = tuple(one for one in before if not is_unused(one))
        return set(spelled(own, everything)) != set(spelled(after, everything))

    def _other_readers(self) -> Iterator[Reason]:
        """On a workqueue, what the server's own durable had not acknowledged is purged: that must be nobody else's."""
        reader = self.reader
        if reader.origin is None:
            return
        mine = copied_subjects(reader.live or {}) or (">",)
        kept = {key.name for key in self.scene.kept_durables.get(reader.stream, ()) if key.stream_key == reader.origin}
        others = []
        for name, consumer in self.scene.live.consumers_of(reader.origin).items():
            metadata = consumer.config.get("metadata") or {}
            own = consumer.server_made and metadata.get("_nats.src.stream") == self.aggregate.stream_name
            if own or (reader.target and name == reader.target.key.name) or consumer.name in kept:
                continue
            if any(subjects.overlap(one, two) for one in mine for two in delivered_by(consumer.config)):
                others.append(name)
        if others:
            message = (
                f"what was copied but not acknowledged has to be purged from {reader.origin}, and {in_short(others)} reads it"
            )
            yield Reason(losses.POSITION_LOSS, message, "let only one reader have these subjects")

    def filters(self) -> Iterator[Reason]:
        """Of a durable that stays: what its new filters match behind its position, and what its old ones have not handed over."""
        target, key = self.reader.target, self.aggregate
        seen = self.scene.live.consumer(target.key) if target else None
        if target is None or seen is None:
            return
        everything = origin_subjects(origin_info(self.scene, self.reader))
        before, after = (selected(one, everything) for one in (seen.config, target.wire))
        now = ConsumerSeen(seen.info)
        if not self.scene.allows(losses.POSITION_LOSS, key):
            widened = Widened(key.stream_key, self.reader.live or {}, target.key.stream_key, before, after)
            passed = overtaken(widened, max(now.floor, now.delivered), lambda read: self.scene.ask(read, key))
            yield from (Reason(losses.POSITION_LOSS, message, WAY_OUT) for message in passed)
        removed = losses.uncovered(list(before), list(after))
        if removed:
            yield from losses.removed_subjects(self.scene, key, target.key, removed, now.floor)


def _way_to_own(key: Key, seen: LiveConsumer, *, is_read: bool) -> str:
    """What to do about a durable that is not ours; one that is read now cannot be left for another one while it is not."""
    if seen.owner and is_read and seen.marker.source:
        return f"let {seen.owner!r} declare the entry without its `consumer` first"
    if seen.owner and is_read:
        return f"have it given up (`reconciler --owner {quote(seen.owner)} disown {key}`), then take it over with --adopt"
    if seen.owner:
        return _ANOTHER_NAME
    return "take it over with --adopt" if is_read else f"take it over with --adopt, or {_ANOTHER_NAME}"
