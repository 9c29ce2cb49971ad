"""A model server on which a keeper makes everything, killed at every moment; and what must be true in the end.

Invariant: messages are judged by ids.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import orjson

from reconciler.model.desired import Desired
from reconciler.plan.change import Rules
from tests.support.world.keeper import SYNC, Keeper, planned
from tests.support.world.server import ModelServer
from tests.support.world.sources import SourceWorld
from tests.support.world.state import matches


@dataclass
class KeptWorld(SourceWorld):
    """A world in which everything is made by a keeper; what is published goes to one subject after the other."""

    subjects: tuple[str, ...] = ("s.a",)

    def __post_init__(self) -> None:
        self.server = ModelServer(self.level)

    def publish(self, count: int = 0) -> None:
        """Publish wherever somebody listens; a message that a stream drops is published all the same."""
        for _ in range(count or self.burst):
            subject = self.subjects[len(self.published) % len(self.subjects)]
            seq = self.server.publish(subject)
            if seq is None:
                continue  # the publisher is told so
            origin = next(one for one in self.server.streams.values() if matches(subject, tuple(one.subjects)))
            self.published.append(origin.id_of(seq))

    def wrong(self, _: Keeper) -> str:
        """What is not as it has to be once all is quiet; empty for nothing."""
        self.settle()
        counts = {"lost": self.missing(), "twice": self.duplicates(), "stuck": self.stuck()}
        paused = [name for (_, name), one in self.server.consumers.items() if self.server.paused(one)]
        found = [f"{len(which)} {word}" for word, which in counts.items() if which] + [f"{name} is paused" for name in paused]
        return ", ".join(found)

    def in_order(self) -> bool:
        """Whether what was copied of each origin through one entry came in the order in which it was published."""
        stream = self.server.streams["A"]
        found: dict[str, list[int]] = {}
        for seq in sorted(stream.messages):
            if seq in stream.copies:
                found.setdefault(stream.copies[seq].identity, []).append(stream.copies[seq].seq)
        return all(one == sorted(one) for one in found.values())


def world_of(before: Desired, retention: str = "limits", level: int = 5, **more: Any) -> KeptWorld:
    """A world as these manifests want it, in which messages flow."""
    world = KeptWorld(retention, level, **more)
    keeper = Keeper(world, busy=0)
    left = keeper.bring(before)
    assert not left.changes, left.changes
    world.live()
    return world


def every_kill(build: Callable[[], SourceWorld], wanted: Desired, silence: float = 0, rules: Rules = SYNC) -> Iterator[Keeper]:
    """The way to what is wanted without a kill, then with one at every write (sent, or just not) and before every step.

    `build` makes the same world each time. Nobody comes back before `silence` (seconds) is over.
    """
    smooth = Keeper(build(), rules)
    smooth.bring(wanted)
    yield smooth
    for crash in smooth.moments():
        keeper = Keeper(build(), rules, replace(crash, silence=int(silence * 10**9)))
        keeper.bring(wanted)
        yield keeper


def leftovers(server: ModelServer, kept: tuple[str, ...] = ()) -> list[str]:
    """What a procedure must not leave behind."""
    found = []
    for (_, name), consumer in server.consumers.items():
        if name not in kept and not consumer.config.get("sourcing"):
            found.append(f"consumer {name}")
        if server.paused(consumer):
            found.append(f"{name} is paused")
        if "reconciler.procedure" in (consumer.config.get("metadata") or {}):
            found.append(f"{name} has a journal")
    for name, stream in server.streams.items():
        text = orjson.dumps(stream.config).decode()
        found += [f"{name} has {word}" for word in ("_detached.", "reconciler.procedure") if word in text]
    return found


def again(world: KeptWorld) -> Callable[[], KeptWorld]:
    """The same world each time."""
    return lambda: copy.deepcopy(world)


def assert_settled(keeper: Keeper, wanted: Desired, *kept: str, where: str = "") -> None:
    """There is nothing to do, and nothing is left behind."""
    where = where or f"{keeper.crash}, {keeper.ends}"
    assert planned(wanted, keeper.server).changes == (), where
    keeper.world.settle()
    assert planned(wanted, keeper.server).changes == (), where
    assert leftovers(keeper.server, kept) == [], where


def assert_exact(keeper: Keeper, wanted: Desired, *kept: str, where: str = "") -> None:
    """All that was published is there once; besides, it is settled."""
    where = where or f"{keeper.crash}"
    assert_settled(keeper, wanted, *kept, where=where)
    world = keeper.world
    assert world.missing() == [], where
    assert world.duplicates() == [], where
    assert world.stuck() == [], where
    assert isinstance(world, KeptWorld)
    assert world.in_order(), where
