"""Every change of how a stream copies another, while that stream gets another leader: at every step, once.

A model of what was seen on clusters: the new leader attaches every source anew a moment later, which sends each durable back to
its ack floor, and forgets what was stored through an entry that came in between.
"""

from __future__ import annotations

import contextlib
import copy
from collections import Counter

import pytest

from reconciler.model.desired import Desired
from tests.support.world.copying import BEAT
from tests.support.world.declared import RETENTIONS, ROWS, copier, origin, own, user
from tests.support.world.driver import NO_CRASH
from tests.support.world.keeper import Keeper, Killed, manifests
from tests.support.world.kept import KeptWorld, assert_exact, world_of

pytestmark = pytest.mark.diagonal
EVERY_DAY = ("managed renamed", "user renamed", "ephemeral to managed", "managed to ephemeral")


def clustered(before: Desired, retention: str, level: int = 5) -> KeptWorld:
    """Messages flow between streams that have several replicas."""
    world = world_of(before, retention, level)
    world.server.leaders = Counter()
    return world


def elected(world: KeptWorld, wanted: Desired, at: int, times: int = 1) -> Keeper:
    """The way to what is wanted, with an election before one of its steps, and another one when that is over."""
    alone = copy.deepcopy(world)
    keeper, left = Keeper(alone), [number for number in range(times) if at >= 0]

    def hook(number: int) -> None:
        if left and number >= at and "A" not in alone.server.sourcing.elections:
            left.pop()
            alone.server.elect("A")

    keeper.hook = hook
    keeper.bring(wanted)
    return keeper


def brought(keeper: Keeper) -> list[int]:
    """The steps that brought an entry which copies at once."""
    return [number for number, title in enumerate(keeper.trail) if title.startswith("read ") and " without " in title]


def assert_exact_whenever_elected(world: KeptWorld, after: Desired, kept: str, times: int = 1) -> None:
    smooth = elected(world, after, -1)
    for at in range(smooth.steps + 1):
        if at in brought(smooth):
            continue
        keeper = elected(world, after, at, times)
        where = f"elected before step {at} of {smooth.steps}: {keeper.trail[at - 2 : at + 2]}"
        assert_exact(keeper, after, *filter(None, [kept]), where=where)


@pytest.mark.parametrize("retention", RETENTIONS)
@pytest.mark.parametrize("name", [name if name in EVERY_DAY else pytest.param(name, marks=pytest.mark.slow) for name in ROWS])
def test_every_message_arrives_once_whenever_the_stream_gets_another_leader(name: str, retention: str) -> None:
    row = ROWS[name]
    before, after = row.manifests(retention)
    assert_exact_whenever_elected(clustered(before, retention), after, row.kept)


@pytest.mark.parametrize("retention", RETENTIONS)
def test_two_durables_of_one_origin_are_renamed_though_it_is_killed_where_one_of_them_is_gone(retention: str) -> None:
    def wanted(**readers: str) -> Desired:
        picked = [user(name, filterSubjects=[f"s.{subject}"]) for subject, name in readers.items()]
        return manifests(origin(retention), copier(*map(own, readers.values())), *picked)

    world = clustered(wanted(a="u", b="v"), retention)
    after = wanted(a="w", b="x")
    smooth = Keeper(copy.deepcopy(world))
    smooth.bring(after)
    for moment in smooth.moments():
        keeper = Keeper(copy.deepcopy(world), crash=moment)
        with contextlib.suppress(Killed):
            keeper.attempt(after)
        keeper.world.live(3)
        keeper.crash = NO_CRASH
        keeper.bring(after)
        assert_exact(keeper, after, "w", "x", where=str(moment))


@pytest.mark.parametrize("retention", RETENTIONS)
@pytest.mark.parametrize("name", ["managed renamed", "user renamed", "ephemeral to managed"])
def test_the_same_when_new_leaders_take_long(name: str, retention: str) -> None:
    row = ROWS[name]
    before, after = row.manifests(retention)
    world = clustered(before, retention)
    world.server.sourcing.electing, world.server.sourcing.hasty = 4 * BEAT, False
    assert_exact_whenever_elected(world, after, row.kept, times=2)
