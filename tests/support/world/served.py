"""A consumer and its workers in a world that a keeper makes, and every change of it that takes a procedure.

Invariant: messages are judged by ids; what was handled before it was delivered again is counted, not judged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson

from reconciler.model import units
from reconciler.model.desired import Declared, Desired
from reconciler.model.identity import Key
from reconciler.model.kinds.common import Intent
from reconciler.model.marker import read_marker
from reconciler.plan.change import NO_MEMORY, Remembered
from reconciler.procedures.machine import Procedure
from reconciler.procedures.requests import DeleteConsumer
from reconciler.sources.kick import KickSource
from tests.support.values.build import consumer, stream
from tests.support.world.consumers import STREAM, C, World
from tests.support.world.declared import copier, managed, origin
from tests.support.world.keeper import Keeper, live_of, manifests
from tests.support.world.kept import KeptWorld, leftovers, world_of
from tests.support.world.server import START, ModelServer

BUSY = ("b", "a", "b rush", "work", "a", "take", "b", "rush")
"""What goes on meanwhile: `b` is what is new to the consumer."""
_ALLOWED = Intent(allow=frozenset({"recreate"}))
_LATER = units.format_time(START + 24 * 3600 * 10**9)


@dataclass
class Served(World):
    """Nothing is there before a keeper has made it."""

    turn: int = 0

    def __post_init__(self) -> None:
        self.server = ModelServer(self.level)

    def publish(self, *names: str) -> None:
        """What is named or, before a keeper's step, what goes on meanwhile."""
        if names:
            super().publish(*names)
            return
        for operation in BUSY[self.turn % len(BUSY)].split():
            self.act(operation)
        self.turn += 1

    def settle(self) -> None:
        """Workers take what there is."""
        self.drain()

    def wrong(self, _: Keeper) -> str:
        """What is not as it has to be once all is quiet; empty for nothing."""
        c = self.server.consumers["S", "c"]
        declared = read_marker(c.config.get("metadata"), C.mark).pause_until
        found = ["it is not paused as declared"] if declared and c.paused_until != units.parse_time(declared) else []
        if declared and not found:
            c.paused_until = 0
        self.drain()
        found += [f"{len(lost)} lost"] if (lost := self.lost()) else []
        return ", ".join([*found, *leftovers(self.server, ("c", "other"))])


@dataclass
class Moved(World):
    """Two streams, one of which gets a subject of the other."""

    refused: int = 0
    answers: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.server = ModelServer(self.level)

    def publish(self, *_: str) -> None:
        """One message on each subject; where nobody listens the publisher is told so."""
        for subject in ("a", "x", "b"):
            place = self.server.publish(f"s.{subject}")
            self.refused += place is None

    def settle(self) -> None:
        """Nothing moves by itself."""

    def wrong(self, _: Keeper) -> str:
        """Somebody has to listen to each subject again."""
        deaf = [subject for subject in ("a", "x", "b") if self.server.publish(f"s.{subject}") is None]
        return f"nobody listens to {deaf}" if deaf else ""


@dataclass(frozen=True)
class Change:
    """A world, and what becomes of it."""

    world: Served | Moved | KeptWorld
    wanted: Desired | Procedure
    paused: tuple[Key, ...]
    """What a person may pause meanwhile."""
    others: tuple[Key, ...] = (STREAM,)
    """What else has leaders."""
    memory: Remembered = NO_MEMORY


def _c(*filters: str, intent: Intent = _ALLOWED, **spec: Any) -> Declared:
    return consumer("S", "c", {"filterSubjects": [f"s.{one}" for one in filters], "ackWait": "2s", **spec}, intent)


def _declared(retention: str, c: Declared) -> Desired:
    others = [consumer("S", "other", {"filterSubject": "s.>"})] if retention == "interest" else []
    return manifests(stream("S", {"subjects": ["s.>"], "retention": retention}), c, *others)


def _served(retention: str, c: Declared, messages: str) -> Served:
    world = Served(retention)
    keeper = Keeper(world, busy=0)  # type: ignore[arg-type]  # all that it needs of a world
    assert not keeper.bring(_declared(retention, c)).changes
    world.publish(*messages)
    world.work(2)
    world.work(1, finish=False)
    return world


def filter_added(retention: str) -> Change:
    """Messages are stored that the consumer has passed."""
    world = _served(retention, _c("a"), "baabac")
    world.work(2)
    return Change(world, _declared(retention, _c("a", "b")), (C,))


def filter_added_first(retention: str) -> Change:
    """Nothing is stored yet for the new filter."""
    return Change(_served(retention, _c("a"), "aaca"), _declared(retention, _c("a", "b")), (C,))


def recreated(retention: str) -> Change:
    """An immutable field changes."""
    hold = Key("Consumer", "_reconciler_hold_c", "S")
    wanted = _declared(retention, _c("a", "b", maxWaiting=7))
    return Change(_served(retention, _c("a", "b"), "baabac"), wanted, (C,), (STREAM, hold))


def restored(retention: str) -> Change:
    """Somebody has deleted it."""
    world = _served(retention, _c("a", "b"), "baabac")
    live = live_of(world.server)
    seen = live.consumers[STREAM]["c"]
    created = {C: str(seen.info["created"]), STREAM: str(live.streams[STREAM].info["created"])}
    memory = Remembered(owned={C: seen.marker.spec}, floors={C: world.server.consumers["S", "c"].floor}, created=created)
    world.server.write(DeleteConsumer(C))
    return Change(world, _declared(retention, _c("a", "b")), (C,), memory=memory)


def pause_declared(retention: str) -> Change:
    """It shall stand still until tomorrow."""
    paused = Intent(pause_until=_LATER)
    return Change(_served(retention, _c("a", "b"), "baabac"), _declared(retention, _c("a", "b", intent=paused)), (), (STREAM, C))


def pause_ended(retention: str) -> Change:
    """It was declared to stand still until tomorrow, and is not any more."""
    world = _served(retention, _c("a", "b"), "baabac")
    Keeper(world, busy=0).bring(_declared(retention, _c("a", "b", intent=Intent(pause_until=_LATER))))  # type: ignore[arg-type]
    return Change(world, _declared(retention, _c("a", "b")), (C,))


def subject_moved(_: str = "limits") -> Change:
    """From one stream to another."""
    world = Moved()
    one, two = STREAM, Key("Stream", "T")
    before = manifests(stream("S", {"subjects": ["s.a", "s.x"]}), stream("T", {"subjects": ["s.b"]}))
    after = manifests(stream("S", {"subjects": ["s.a"]}), stream("T", {"subjects": ["s.b", "s.x"]}))
    assert not Keeper(world, busy=0).bring(before).changes  # type: ignore[arg-type]
    return Change(world, after, (), (one, two))


def kicked(retention: str) -> Change:
    """A source is taken away for a moment, and put back."""
    world = world_of(manifests(origin(retention), copier(managed())), retention)
    durable = Key("Consumer", "c", "S")
    entry = world.server.streams["A"].config["sources"][0]
    world.server.sourcing.sources["A"][0].attached = False
    return Change(world, KickSource(Key("Stream", "A"), orjson.dumps(entry), durable), (durable,), (Key("Stream", "A"),))


CHANGES: dict[str, Callable[[str], Change]] = {
    "filter added": filter_added,
    "filter added, nothing stored": filter_added_first,
    "recreated": recreated,
    "restored": restored,
    "pause declared": pause_declared,
    "pause ended": pause_ended,
    "subject moved": subject_moved,
    "kicked": kicked,
}
