"""A durable is deleted before anything was copied through it: what was copied in another way before is not copied again."""

from __future__ import annotations

import copy

import orjson
import pytest

from reconciler.model.desired import Desired
from reconciler.procedures.requests import DeleteConsumer, UpdateStream
from tests.support.world.declared import copier, managed, origin, own, plain, user
from tests.support.world.keeper import Keeper, manifests
from tests.support.world.kept import KeptWorld, assert_exact, every_kill, world_of
from tests.support.world.sources import A, durable

KINDS = {
    "ephemeral": (copier(plain()),),
    "managed": (copier(managed("c")),),
    "declared": (copier(own("u")), user("u")),
}
AFTER = managed("d")


def wanted(retention: str) -> Desired:
    """It reads through a durable d."""
    return manifests(origin(retention), copier(AFTER))


def migrated(kind: str, retention: str) -> KeptWorld:
    """It does, since a moment in which nobody publishes."""
    world = world_of(manifests(origin(retention), *KINDS[kind]), retention)
    world.settle()
    Keeper(world, busy=0).bring(wanted(retention))
    world.settle()
    assert world.missing() == []
    return world


@pytest.mark.parametrize("retention", ["limits", "interest", "workqueue"])
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_comes_twice_whenever_it_is_killed(kind: str, retention: str) -> None:
    made = migrated(kind, retention)
    made.server.write(DeleteConsumer(durable("d")))

    def again() -> KeptWorld:
        return copy.deepcopy(made)

    for keeper in every_kill(again, wanted(retention)):
        if retention == "interest":  # what is published while nobody reads is nobody's
            keeper.world.settle()
            assert keeper.world.duplicates() == [], f"{keeper.crash}"
        else:
            assert_exact(keeper, wanted(retention), "d")


def test_the_way_before_is_forgotten_with_the_durable() -> None:
    world = migrated("managed", "limits")
    assert '"d"' in world.server.streams["A"].config["metadata"]["reconciler.before"]
    Keeper(world, busy=0).bring(manifests(origin(), copier(managed("e"))))
    assert '"d"' not in world.server.streams["A"].config["metadata"]["reconciler.before"]


@pytest.mark.parametrize("text", ["nothing", "[]", '{"d": 5}', '{"d": ["S > >", -1]}', '{"d": ["S > >", true]}', '{"d": [1, 2]}'])
def test_what_makes_no_sense_there_says_nothing(text: str) -> None:
    world = migrated("ephemeral", "limits")
    config = world.server.streams["A"].config
    forged = {**config, "metadata": {**config["metadata"], "reconciler.before": text}}
    world.server.write(UpdateStream(A, orjson.dumps(forged)))
    world.server.write(DeleteConsumer(durable("d")))
    keeper = Keeper(world)
    keeper.bring(wanted("limits"))
    world.settle()
    assert world.missing() == []


def test_it_counts_for_nothing_once_something_was_copied_through_it() -> None:
    """What the server knows itself is better, and whoever may write the mark cannot make it skip."""
    world = migrated("ephemeral", "limits")
    world.publish(6)
    world.settle()
    config = world.server.streams["A"].config
    forged = {**config, "metadata": {**config["metadata"], "reconciler.before": '{"d": ["S > >", 1000000]}'}}
    world.server.write(UpdateStream(A, orjson.dumps(forged)))
    world.server.write(DeleteConsumer(durable("d")))
    assert_exact_after(world)


def assert_exact_after(world: KeptWorld) -> None:
    """It is made again while somebody publishes, and all is there once."""
    keeper = Keeper(world)
    keeper.bring(wanted("limits"))
    assert_exact(keeper, wanted("limits"), "d")
