"""What a plan meets half-done leads back to the machine that finishes it."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from reconciler.errors import ApiError
from reconciler.procedures.consumer import ConsumerSeen, immutable_differences
from reconciler.procedures.filter_add import FilterAdd
from reconciler.procedures.holds import held_consumer, hold_key
from reconciler.procedures.machine import Abort, Done, Procedure
from reconciler.procedures.recreate_consumer import RecreateConsumer
from reconciler.procedures.requests import CreateConsumer, DeleteConsumer, Write
from reconciler.procedures.restore_consumer import RestoreConsumer
from reconciler.procedures.resume import resume
from tests.support.world.consumers import C, World
from tests.support.world.driver import run

CHANGE: dict[str, Any] = {"max_waiting": 7}


def at_work(*, gone: bool = False) -> World:
    """A consumer that has passed by what its new filter would match."""
    world = World()
    world.consume("s.a")
    world.publish("b", "c", "a", "a")
    world.work(9)
    if gone:
        world.server.write(DeleteConsumer(C))
        world.publish("a")
    return world


def machine(kind: type[Procedure], world: World) -> Procedure:
    """A machine of this kind, as first planned."""
    if kind is RestoreConsumer:
        return RestoreConsumer(world.target("s.a"), floor=4)
    return RecreateConsumer(world.target("s.a", **CHANGE)) if kind is RecreateConsumer else FilterAdd(world.target("s.a", "s.b"))


@pytest.mark.parametrize("changed", [{}, CHANGE, {"max_waiting": 9}], ids=str)
@pytest.mark.parametrize("filters", [("s.a", "s.b"), ("s.a", "s.b", "s.c"), ("s.*",)])
@pytest.mark.parametrize("writes", range(1, 9))
@pytest.mark.parametrize("kind", [FilterAdd, RecreateConsumer, RestoreConsumer])
def test_whatever_is_half_done_is_finished_towards_the_target_of_today(
    kind: type[Procedure], writes: int, filters: tuple[str, ...], changed: dict[str, Any]
) -> None:
    world = at_work(gone=kind is RestoreConsumer)
    allowed = iter(range(writes))

    def die(_: Write) -> None:
        if next(allowed, None) is None:
            raise InterruptedError

    world.server.veto = die
    try:
        run(machine(kind, world), world.server)
    except InterruptedError:
        world.server.veto = lambda _: None
    else:
        return
    target = world.target(*filters, **changed)
    there = ("S", "c") in world.server.consumers
    finisher = resume(target, world.info()) if there else RecreateConsumer(target)
    assert finisher is not None
    assert isinstance(run(finisher, world.server, between=world.living(*["rush"] * 40)).end, Done)
    if kind is RestoreConsumer:  # has no opinion on filters: what is new by now is a change of its own
        live = ConsumerSeen(world.info())
        follow = RecreateConsumer if immutable_differences(live.config, target) else FilterAdd
        assert isinstance(run(follow(target), world.server).end, Done)
    world.assert_tidy(target)
    world.drain()
    assert world.lost() == []


def test_a_takeover_that_is_refused_leaves_the_first_journal_s_knowledge() -> None:
    world = at_work()
    allowed = iter(range(4))  # up to the filters; not yet released

    def die(_: Write) -> None:
        if next(allowed, None) is None:
            raise InterruptedError

    def refuse(write: Write) -> None:
        if isinstance(write, CreateConsumer):
            raise ApiError(400, 10026, "maximum consumers limit reached")

    world.server.veto = die
    with pytest.raises(InterruptedError):
        run(machine(FilterAdd, world), world.server)
    world.server.veto = refuse
    takeover = RecreateConsumer(world.target("s.a", "s.b", **CHANGE))
    assert isinstance(run(takeover, world.server).end, Abort)
    left = ConsumerSeen(world.info())
    assert left.journal is not None
    assert left.data["added"] == ["s.b"]


def test_nothing_under_way_is_nothing_to_resume() -> None:
    world = at_work()
    assert resume(world.target("s.a"), world.info()) is None


def test_a_hold_names_its_consumer() -> None:
    world = at_work()
    run_until_hold = RecreateConsumer(world.target("s.a", **CHANGE))

    def die(write: Write) -> None:
        if isinstance(write, DeleteConsumer):
            raise InterruptedError

    world.server.veto = die
    with pytest.raises(InterruptedError):
        run(run_until_hold, world.server)
    config = orjson.loads(orjson.dumps(world.server.read_config(hold_key(C))))
    assert held_consumer(hold_key(C), config) == C
    assert held_consumer(C, world.server.read_config(C)) is None
