"""A durable that gets more filters while somebody publishes: what it has passed is never left out in silence."""

from __future__ import annotations

import orjson

from reconciler.plan.change import Action, Rules
from reconciler.procedures.machine import Abort
from reconciler.procedures.requests import UpdateConsumer
from tests.support.world.declared import copier, managed, origin
from tests.support.world.keeper import Keeper, manifests, planned
from tests.support.world.kept import KeptWorld, assert_exact, every_kill, leftovers, world_of
from tests.support.world.sources import durable

NARROW, WIDE = (manifests(origin(), copier(managed("c", filterSubject=one))) for one in ("s.a", "s.>"))


def begun() -> KeptWorld:
    """It copies what is published on `s.a`; from now on there is something on `s.b` as well."""
    world = world_of(NARROW)
    world.settle()
    world.subjects = ("s.b", "s.a")
    return world


def on(world: KeptWorld, subject: str) -> list[str]:
    """The ids of what S holds of a subject."""
    stream = world.server.streams["S"]
    return [stream.id_of(seq) for seq, (text, _) in stream.messages.items() if text == subject]


def test_what_is_published_before_it_rests_keeps_it_from_changing() -> None:
    for keeper in every_kill(begun, WIDE):
        world = keeper.world
        assert isinstance(world, KeptWorld)
        (change,) = keeper.bring(WIDE).changes
        where = f"{keeper.crash}, {keeper.ends}"
        assert (change.action, [reason.code for reason in change.reasons]) == (Action.BLOCKED, ["position-loss"]), where
        world.settle()
        assert leftovers(keeper.server, ("c",)) == [], where
        assert [one for one in world.missing() if one in on(world, "s.a")] == [], where
        assert world.duplicates() == [], where


def test_it_is_found_once_it_rests_where_the_plan_could_not_see_it() -> None:
    """The plan is made before anything is published on the new subject."""
    keeper = Keeper(begun())
    keeper.bring(WIDE)
    assert [one.code for one in keeper.ends if isinstance(one, Abort)] == ["position-loss"]
    assert not keeper.final


def test_whoever_allows_it_gets_what_comes_then() -> None:
    world = begun()
    keeper = Keeper(world, Rules(policy="sync", allow=frozenset({("position-loss", "Stream/A")})))
    assert keeper.bring(WIDE).changes == ()
    world.publish(6)
    late = world.published[-6:]
    world.settle()
    assert set(world.missing()) <= {*on(world, "s.b")} - {*late}
    assert world.duplicates() == []


def test_nothing_is_in_the_way_where_all_of_it_lies_ahead() -> None:
    world = world_of(NARROW)
    world.settle()
    keeper = Keeper(world, busy=0)
    keeper.bring(WIDE)
    world.subjects = ("s.b", "s.a")
    world.publish(6)
    assert_exact(keeper, WIDE, "c")


def by_hand(subject: str) -> KeptWorld:
    """Somebody has changed what its durable delivers, after all of `s.a` was copied."""
    world = world_of(NARROW)
    world.settle()
    config = world.server.consumers["S", "c"].config
    world.server.write(UpdateConsumer(durable("c"), orjson.dumps({**config, "filter_subjects": [subject]})))
    return world


def test_what_was_copied_before_somebody_changed_the_filter_is_not_missed() -> None:
    world = by_hand("s.z")
    world.publish(6)  # which wait
    assert_exact_after(Keeper(world, busy=0))


def test_what_was_passed_since_somebody_changed_the_filter_is() -> None:
    world = by_hand("s.z")
    world.publish(3)
    world.subjects = ("s.z",)
    world.publish(3)
    world.settle()
    (change,) = planned(NARROW, world.server).changes
    assert [reason.code for reason in change.reasons] == ["position-loss"]
    assert "messages on s.a from sequence " in change.reasons[0].message


def assert_exact_after(keeper: Keeper) -> None:
    """It is as declared again, and all is there once."""
    assert keeper.bring(NARROW).changes == ()
    assert_exact(keeper, NARROW, "c")
