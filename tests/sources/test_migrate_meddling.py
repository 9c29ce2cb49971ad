"""Any sequence of manifests, with kills at any moment, and with what a person may do to durables and streams meanwhile.

Kills, and a stream whose metadata somebody wiped, cost nothing. What else a person does in the middle of a change may cost:

- a durable resumed, deleted or wiped between the moment in which a stream begins to read through it and the one in which its
  position is set (that is only in its journal), or deleted before anything was copied through it: what was copied before is
  copied again;
- a durable deleted on a workqueue: what it had delivered, but was not told to be stored, is copied again by another one, and
  what is copied already may stay in the queue;
- a durable deleted on interest: what is published until it is back is lost;
- a durable wiped that nobody declares: it is nobody's, stays, and on interest keeps messages; wiped in the middle of a change
  on a workqueue: what is copied already may stay in the queue.

Nothing else may happen; on limits and on a workqueue never is a message missing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.model.desired import Declared, Desired
from reconciler.model.marker import read_marker
from reconciler.model.sourcing import identity_of
from reconciler.plan.change import Plan, Rules
from reconciler.procedures.requests import DeleteConsumer, PauseConsumer, UpdateConsumer, UpdateStream
from tests.support.choice import examples
from tests.support.world.declared import IDENTITY, MOVED, RETENTIONS, copier, managed, origin, own, plain, user
from tests.support.world.driver import NO_CRASH, Crash
from tests.support.world.keeper import Keeper, Killed, manifests, planned
from tests.support.world.kept import KeptWorld, leftovers, world_of
from tests.support.world.sources import A, durable

FORMS: dict[str, tuple[Declared, ...]] = {
    "ephemeral": (copier(plain()),),
    "c": (copier(managed("c")),),
    "d": (copier(managed("d")),),
    "u": (copier(own("u")), user("u")),
    "c, but declared": (copier(own("c")), user("c")),
    "c, transformed": (copier(managed("c", subjectTransforms=MOVED)),),
    "u, transformed": (copier(own("u", subjectTransforms=IDENTITY)), user("u")),
    "u, elsewhere": (copier(own("u", deliver="x")), user("u", deliver="x")),
}
DURABLES = ("c", "d", "u")
LOSS = frozenset(("data-loss", key) for key in ("Stream/A", *(f"Consumer/S/{name}" for name in DURABLES)))
RULES = Rules(policy="sync", adopt=True, allow=LOSS)
LAST = 140
"""Hardly a change takes more steps."""


@dataclass
class Deeds:
    """What a person does."""

    world: KeptWorld
    again: bool = False
    """It may cost duplicates,"""
    lost: bool = False
    """or messages,"""
    left: bool = False
    """or leave some behind."""
    done: list[str] = field(default_factory=list)

    def do(self, deed: str, name: str) -> None:
        """One of the deeds, unless there is nothing to do it to."""
        server, key = self.world.server, durable(name)
        seen = server.consumers.get(("S", name))
        if deed == "wipe A":
            config = {part: value for part, value in server.streams["A"].config.items() if part != "metadata"}
            server.write(UpdateStream(A, orjson.dumps(config)))
            return
        if seen is None:
            return
        self.done.append(f"{deed} {name}")
        journal = read_marker(seen.config.get("metadata"), key.mark).journal
        at_once = deed == "delete" and (self.world.retention == "workqueue" or not self._copied(name))
        self.again = self.again or journal is not None or at_once
        if deed == "resume" and server.paused(seen):
            server.write(PauseConsumer(key, ""))
        elif deed == "delete":
            self.lost = self.lost or self.world.retention == "interest"
            self.left = self.left or self.world.retention != "limits"
            server.write(DeleteConsumer(key))
        elif deed == "wipe":
            self.left = (
                self.left or self.world.retention == "interest" or (journal is not None and self.world.retention != "limits")
            )
            config = {part: value for part, value in seen.config.items() if part != "metadata"}
            server.write(UpdateConsumer(key, orjson.dumps(config)))

    def _copied(self, name: str) -> bool:
        """Whether anything was copied through a durable."""
        entries = self.world.server.streams["A"].config.get("sources") or ()
        reading = [entry for entry in entries if (entry.get("consumer") or {}).get("name") == name]
        return all(self.world.copied(identity_of(entry)) for entry in reading)


@dataclass(frozen=True)
class Turn:
    """Other manifests, until the daemon is killed; somebody meddles meanwhile."""

    form: str
    killed_at: int
    deed: str = ""
    victim: str = "c"
    moment: int = 0
    pause: int = 0
    """How long nobody comes back, in seconds."""


def turns(*deeds: str) -> st.SearchStrategy[list[Turn]]:
    """Up to four of them, with these deeds."""
    steps = st.integers(0, LAST)
    form, victim, pause = st.sampled_from(sorted(FORMS)), st.sampled_from(DURABLES), st.sampled_from((0, 0, 3, 200))
    return st.lists(st.builds(Turn, form, steps, st.sampled_from(("", *deeds)), victim, steps, pause), min_size=1, max_size=4)


def wanted(form: str, retention: str) -> Desired:
    return manifests(origin(retention), *FORMS[form])


def meddled(turn: Turn, deeds: Deeds) -> Callable[[int], None]:
    def hook(number: int) -> None:
        if turn.deed and number == turn.moment:
            deeds.do(turn.deed, turn.victim)

    return hook


def lived(world: KeptWorld, course: list[Turn], retention: str) -> Deeds:
    """All turns, and then the time that the daemon needs to bring everything to what was said last."""
    deeds = Deeds(world)
    for turn in course:
        keeper = Keeper(world, RULES, Crash(step=turn.killed_at), busy=100)
        keeper.hook = meddled(turn, deeds)
        with contextlib.suppress(Killed):
            keeper.attempt(wanted(turn.form, retention))
        for _ in range(turn.pause):
            world.publish(1)
            world.server.advance(1)
    last = wanted(course[-1].form, retention)
    for _ in range(3):
        Keeper(world, RULES, NO_CRASH).bring(last)
        if not resumed_by_hand(world):
            break
    return deeds


def resumed_by_hand(world: KeptWorld) -> bool:
    """Somebody who wiped a paused durable has to resume it: nothing says any more that we had paused it."""
    paused = [name for (_, name), one in world.server.consumers.items() if world.server.paused(one)]
    for name in paused:
        world.server.write(PauseConsumer(durable(name), ""))
    return bool(paused)


def judged(world: KeptWorld, plan: Plan, deeds: Deeds) -> None:
    """Nothing happened but what the deeds cost."""
    said = f"{deeds.done}"
    assert plan.changes == (), said
    assert leftovers(world.server, DURABLES) == [], said
    assert deeds.lost or world.missing() == [], said
    assert deeds.again or world.duplicates() == [], said
    assert deeds.left or world.stuck() == [], said
    assert world.in_order(), said


@settings(derandomize=True, max_examples=examples(60))
@given(st.sampled_from(sorted(FORMS)), turns(), st.sampled_from(RETENTIONS), st.sampled_from((4, 5)))
def test_whatever_is_declared_and_whenever_it_is_killed_each_message_arrives_once(
    first: str, course: list[Turn], retention: str, level: int
) -> None:
    world = world_of(wanted(first, retention), retention, level)
    deeds = lived(world, course, retention)
    world.settle()
    judged(world, planned(wanted(course[-1].form, retention), world.server, RULES), deeds)


@settings(derandomize=True, max_examples=examples(90))
@given(
    st.sampled_from(sorted(FORMS)),
    turns("resume", "delete", "wipe", "wipe A"),
    st.sampled_from(RETENTIONS),
    st.sampled_from((4, 5)),
)
def test_what_a_person_does_meanwhile_costs_no_more_than_it_must(
    first: str, course: list[Turn], retention: str, level: int
) -> None:
    world = world_of(wanted(first, retention), retention, level)
    deeds = lived(world, course, retention)
    world.settle()
    judged(world, planned(wanted(course[-1].form, retention), world.server, RULES), deeds)
