"""A declared durable whose origin was made anew: another one stands in for it, and is nobody's to remove while it is read."""

from __future__ import annotations

import copy
from typing import Any

import orjson
import pytest

from reconciler.model.desired import Desired
from reconciler.procedures.requests import CreateStream, DeleteStream
from tests.support.world.declared import copier, managed, origin, own, user
from tests.support.world.keeper import Keeper, manifests, planned
from tests.support.world.kept import KeptWorld, again, assert_exact, every_kill, world_of
from tests.support.world.sources import S

pytestmark = pytest.mark.diagonal


def wanted(retention: str, **spec: Any) -> Desired:
    return manifests(origin(retention), copier(own("u")), user("u", **spec))


def made_anew(retention: str, level: int) -> KeptWorld:
    """The origin is another one, with messages under the sequences that were copied of the first."""
    world = world_of(wanted(retention), retention, level)
    config = orjson.dumps(world.server.streams["S"].config)
    world.server.write(DeleteStream(S))
    world.server.advance(2)
    world.server.write(CreateStream(S, config))
    world.published.clear()
    world.publish(3)
    return world


def reading(keeper: Keeper) -> str:
    (entry,) = keeper.server.streams["A"].config["sources"]
    name: str = entry["consumer"]["name"]
    return name


@pytest.mark.parametrize("retention", ["limits", "workqueue"])
@pytest.mark.parametrize("level", [4, 5])
def test_everything_in_the_new_one_arrives_once_whenever_it_is_killed(level: int, retention: str) -> None:
    for keeper in every_kill(again(made_anew(retention, level)), wanted(retention)):
        assert_exact(keeper, wanted(retention), reading(keeper))
        assert reading(keeper).startswith("u-")
        assert ("S", reading(keeper)) in keeper.server.consumers, "it is read, and stays"
        assert ("S", "u") not in keeper.server.consumers, "nobody would read through it"


def test_it_follows_what_is_declared_and_goes_when_another_one_is() -> None:
    world = made_anew("limits", 5)
    Keeper(world).bring(wanted("limits"))
    changed = wanted("limits", description="changed")
    keeper = Keeper(copy.deepcopy(world))
    keeper.bring(changed)
    assert keeper.server.consumers["S", reading(keeper)].config["description"] == "changed"
    assert planned(changed, keeper.server).changes == ()
    other = manifests(origin(), copier(managed("c")))
    keeper.bring(other)
    assert_exact(keeper, other, "c")
    assert {name for _, name in keeper.server.consumers} == {"c"}
