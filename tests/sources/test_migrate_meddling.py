"""Any sequence of manifests, with kills at any moment, and with what a person may do to durables and streams meanwhile.

Kills, and a stream whose metadata somebody wiped, cost nothing; what else may be lost or doubled is said in `Deeds`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.model.desired import Declared, Desired
from reconciler.plan.change import Plan, Rules
from tests.support.choice import examples
from tests.support.world.declared import IDENTITY, MOVED, RETENTIONS, copier, managed, origin, own, plain, user
from tests.support.world.deeds import Deeds, resumed_by_hand
from tests.support.world.driver import NO_CRASH, Crash
from tests.support.world.keeper import Keeper, Killed, manifests, planned
from tests.support.world.kept import KeptWorld, leftovers, world_of
from tests.support.world.sources import durable

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
            deeds.do(turn.deed, durable(turn.victim))

    return hook


def lived(world: KeptWorld, course: list[Turn], retention: str) -> Deeds:
    """All turns, and then the time that the daemon needs to bring everything to what was said last."""
    deeds = Deeds(world.server)
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
        if not resumed_by_hand(world.server):
            break
    return deeds


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


@pytest.mark.parametrize("retention", RETENTIONS)
def test_a_durable_that_somebody_deletes_and_that_shall_deliver_elsewhere_by_now_is_not_waited_for(retention: str) -> None:
    world = world_of(wanted("c", retention), retention)
    deeds = Deeds(world.server)
    deeds.do("delete", durable("c"))
    left = Keeper(world, RULES).bring(wanted("c, but declared", retention))
    world.settle()
    judged(world, left, deeds)
