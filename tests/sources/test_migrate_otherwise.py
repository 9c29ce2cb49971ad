"""Changes of how a stream copies that do not go as planned: a step is refused, or the manifests say something else meanwhile.

Before the point of no return a refusal leaves everything as it was; after it the next attempt finishes. And whatever the
manifests said before: the end is as they say last, and each message arrives once.
"""

from __future__ import annotations

import contextlib
import copy

import orjson
import pytest

from reconciler.model.desired import Declared, Desired
from reconciler.model.normal import normal_consumer, normal_stream
from reconciler.plan.change import Rules
from reconciler.procedures.requests import CreateConsumer, UpdateStream
from tests.support.world.declared import MOVED, RETENTIONS, ROWS, copier, managed, origin, own, plain, user
from tests.support.world.driver import NO_CRASH, Crash
from tests.support.world.keeper import Keeper, Killed, manifests, planned
from tests.support.world.kept import KeptWorld, assert_exact, world_of
from tests.support.world.sources import SourceWorld, durable

pytestmark = pytest.mark.diagonal
RETENTION = pytest.mark.parametrize("retention", RETENTIONS)
UNREAD = Rules(policy="sync", allow=frozenset({("data-loss", "Consumer/S/u")}))
"""A durable that was made, and that nothing has read through when it is not wanted any more, has all before it."""
CHANGES = (
    "ephemeral to managed",
    "ephemeral to user",
    "managed renamed",
    "user renamed",
    "managed to ephemeral",
    "user to ephemeral",
    "managed to user of the same name",
    "managed, transformed",
)


def state_of(world: SourceWorld) -> tuple[object, object]:
    """How everything is, with all markers."""
    streams = {name: (normal_stream(one.config, name), one.config["metadata"]) for name, one in world.server.streams.items()}
    consumers = {
        key: (normal_consumer(one.config), one.config["metadata"], world.server.paused(one))
        for key, one in world.server.consumers.items()
        if "sourcing" not in one.config
    }
    return streams, consumers


@RETENTION
@pytest.mark.parametrize("obstinate", [False, True], ids=["once", "for ever"])
@pytest.mark.parametrize("name", CHANGES)
def test_a_refusal_before_the_point_of_no_return_changes_nothing_and_after_it_the_next_attempt_finishes(
    name: str, retention: str, *, obstinate: bool
) -> None:
    row = ROWS[name]
    before, after = row.manifests(retention)
    world = world_of(before, retention)
    smooth = Keeper(copy.deepcopy(world))
    smooth.bring(after)
    for number, write in enumerate(smooth.writes):
        keeper = Keeper(copy.deepcopy(world), refuse=number, obstinate=obstinate)
        keeper.attempt(after)
        assert keeper.refused, "else nothing was proven"
        if not keeper.final:
            assert keeper.ends
            assert state_of(keeper.world) == state_of(world), f"{number}: {write}"
        keeper.refuse, keeper.obstinate = -1, False
        keeper.bring(after)
        assert_exact(keeper, after, *filter(None, [row.kept]))


@pytest.mark.parametrize("obstinate", [False, True], ids=["once", "for ever"])
@pytest.mark.parametrize("retention", ["limits", "interest"])
def test_a_durable_that_others_read_stands_where_it_stood_when_the_switch_is_refused(retention: str, *, obstinate: bool) -> None:
    before = manifests(origin(retention), user("u"), copier(plain()))
    after = manifests(origin(retention), user("u"), copier(own("u")))
    world = world_of(before, retention)
    for _ in range(2):
        seq = world.server.deliver(durable("u"))
        assert seq is not None
        world.server.acknowledge(durable("u"), seq)
    stood = world.floor("u")
    assert 0 < stood < world.copied()
    smooth = Keeper(copy.deepcopy(world))
    smooth.bring(after)
    assert_exact(smooth, after, "u")
    switch = next(number for number, write in enumerate(smooth.writes) if isinstance(write, UpdateStream))
    keeper = Keeper(copy.deepcopy(world), refuse=switch, obstinate=obstinate)
    keeper.attempt(after)
    assert keeper.refused
    assert keeper.world.floor("u") == stood
    assert keeper.world.server.deliver(durable("u")) == stood + 1


@RETENTION
@pytest.mark.parametrize(
    "name", ["ephemeral to managed", "managed renamed", "managed, transformed", "managed to user of the same name"]
)
def test_a_refusal_of_what_goes_on_after_a_kill_takes_nothing_back_that_is_under_way(name: str, retention: str) -> None:
    row = ROWS[name]
    before, after = row.manifests(retention)
    world = world_of(before, retention)
    smooth = Keeper(copy.deepcopy(world))
    smooth.bring(after)
    for number in range(len(smooth.writes)):
        keeper = Keeper(copy.deepcopy(world), crash=Crash(write=number, executed=True))
        with contextlib.suppress(Killed):
            keeper.attempt(after)
        keeper.crash, keeper.refuse = NO_CRASH, len(keeper.writes)
        keeper.bring(after)
        assert_exact(keeper, after, *filter(None, [row.kept]), where=f"{number}: {smooth.writes[number]}")


THIRD = {
    "managed": ((copier(managed("third")),), "third"),
    "user": ((copier(own("third")), user("third")), "third"),
    "ephemeral": ((copier(plain()),), ""),
    "transformed": ((copier(managed(subjectTransforms=MOVED)),), "c"),
}


def ends_as_said_last(world: KeptWorld, said: Desired, last: Desired, *kept: str) -> None:
    """The manifests change while the first change is under way: before each of its steps, and right after each of its writes."""
    smooth = Keeper(copy.deepcopy(world))
    smooth.bring(said)
    for moment in smooth.moments():
        keeper = Keeper(copy.deepcopy(world), crash=moment)
        with contextlib.suppress(Killed):
            keeper.attempt(said)
        keeper.crash = NO_CRASH
        keeper.bring(last)
        assert_exact(keeper, last, *kept, where=f"{moment}")


@RETENTION
@pytest.mark.parametrize("name", CHANGES)
def test_what_is_changed_back_meanwhile_ends_as_it_began(name: str, retention: str) -> None:
    row = ROWS[name]
    before, after = row.manifests(retention)
    kept = [durable for durable in ("c", "u") if any(f'"{durable}"' in str(one.wire) for one in row.before)]
    ends_as_said_last(world_of(before, retention), after, before, *kept)


@pytest.mark.slow
@RETENTION
@pytest.mark.parametrize("third", THIRD)
@pytest.mark.parametrize("name", CHANGES)
def test_what_is_changed_to_a_third_thing_meanwhile_ends_as_that(name: str, third: str, retention: str) -> None:
    before, after = ROWS[name].manifests(retention)
    declared, kept = THIRD[third]
    ends_as_said_last(world_of(before, retention), after, manifests(origin(retention), *declared), *filter(None, [kept]))


@RETENTION
def test_an_entry_that_had_to_be_varied_is_varied_anew_when_another_one_was_in_its_place_for_a_moment(retention: str) -> None:
    def wanted(*now: Declared) -> Desired:
        return manifests(origin(retention), *now)

    world = world_of(wanted(copier(managed())), retention)
    last, between = wanted(copier(plain())), wanted(copier(own()), user())
    Keeper(world).bring(last)
    world.live(1)
    smooth = Keeper(copy.deepcopy(world))
    smooth.bring(between)
    for moment in smooth.moments():
        keeper = Keeper(copy.deepcopy(world), UNREAD, crash=moment)
        with contextlib.suppress(Killed):
            keeper.attempt(between)
        keeper.crash = NO_CRASH
        keeper.world.live(1)
        assert keeper.bring(last).changes == (), moment
        keeper.world.settle()
        assert (keeper.world.missing(), keeper.world.duplicates()) == ([], []), moment


@RETENTION
@pytest.mark.parametrize("form", ["declared", "managed"])
def test_what_is_left_of_another_durable_makes_room_for_the_one_that_is_to_come(form: str, retention: str) -> None:
    """A queue takes one reader: the one was made and journalled, and then its entry went out of the manifests."""
    named = {"declared": (copier(own("u")), user("u")), "managed": (copier(managed("u")),)}[form]
    before = world_of(manifests(origin(retention), copier(managed("c"))), retention)
    left = dict(before.server.consumers["S", "c"].config)
    world = world_of(manifests(origin(retention), copier()), retention)
    if retention == "interest":
        world.published.clear()  # nobody was there
    world.server.write(CreateConsumer(durable("c"), orjson.dumps(left)))
    wanted = manifests(origin(retention), *named)
    told = [change.machine.describe().steps for change in planned(wanted, world.server, UNREAD).changes if change.machine]
    assert ("delete c, which makes room" in told[0]) is (retention == "workqueue")
    keeper = Keeper(world, UNREAD, busy=0)
    keeper.bring(wanted)
    world.publish(3)
    assert_exact(keeper, wanted, "u")


@pytest.mark.parametrize("named", [(copier(own("u")), user("u")), (copier(managed("u")),)], ids=["declared", "managed"])
def test_what_is_left_with_messages_that_nobody_else_keeps_makes_no_room_unasked(named: tuple[Declared, ...]) -> None:
    """On interest they go with it: a durable that comes later was not there when they were published."""
    before = world_of(manifests(origin("interest"), copier(managed("c"))), "interest")
    left = dict(before.server.consumers["S", "c"].config)
    world = world_of(manifests(origin("interest"), copier()), "interest")
    world.server.write(CreateConsumer(durable("c"), orjson.dumps(left)))
    world.publish(5)
    found = planned(manifests(origin("interest"), *named), world.server).changes
    assert "data-loss" in {reason.code for change in found for reason in change.reasons}
