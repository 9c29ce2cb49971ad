"""restore-consumer: a consumer somebody deleted goes on behind its last known floor."""

from __future__ import annotations

import pytest

from reconciler.procedures.machine import Abort, Done
from reconciler.procedures.requests import CreateConsumer, DeleteConsumer
from reconciler.procedures.restore_consumer import RestoreConsumer
from tests.support.world.consumers import C, World, config
from tests.support.world.driver import NO_CRASH, Crash, run

CRASHES = [NO_CRASH, *(Crash(write=n, executed=x) for n in range(4) for x in (False, True)), *(Crash(step=n) for n in range(12))]


def deleted(retention: str, level: int) -> World:
    """The consumer finished 1 and 2 and was deleted; 3 to 5 wait."""
    world = World(retention, level)
    world.consume("s.a")
    world.publish(*"aaaaa")
    world.work(2)
    world.server.write(DeleteConsumer(C))
    return world


def test_control_creating_it_again_delivers_everything_again() -> None:
    world = deleted("limits", 5)
    world.server.write(CreateConsumer(C, config("s.a")))
    world.drain()
    assert world.duplicates == [1, 2]


@pytest.mark.parametrize("level", [1, 5])
@pytest.mark.parametrize("retention", ["limits", "interest", "workqueue"])
def test_every_crash_ends_the_same(retention: str, level: int) -> None:
    for crash in CRASHES:
        world = deleted(retention, level)
        target = world.target("s.a")
        result = run(RestoreConsumer(target, floor=2), world.server, crash)
        assert isinstance(result.end, Done), crash
        assert result.end.notes, crash
        world.assert_tidy(target)
        world.drain()
        assert world.lost() == [], crash
        assert world.duplicates == [], crash


def test_a_pause_that_runs_out_loses_nothing() -> None:
    for crash in CRASHES:
        world = deleted("limits", 5)
        late = Crash(crash.write, crash.executed, crash.step, silence=10 * 60 * 10**9)
        result = run(RestoreConsumer(world.target("s.a"), floor=2), world.server, late, between=world.living(*["work"] * 20))
        assert isinstance(result.end, Done), crash
        world.drain()
        assert world.lost() == [], crash


@pytest.mark.parametrize("level", [1, 5])
def test_where_everything_was_done_it_begins_with_the_next_message(level: int) -> None:
    world = deleted("limits", level)
    run(RestoreConsumer(world.target("s.a"), floor=5), world.server)
    world.handled |= {3, 4, 5}
    world.publish("a")
    world.drain()
    assert (world.lost(), world.duplicates) == ([], [])


def test_a_new_stream_of_the_same_name_is_read_from_its_start() -> None:
    world = World()
    world.publish("a", "a")
    run(RestoreConsumer(world.target("s.a"), floor=900), world.server)
    world.drain()
    assert world.lost() == []


def test_one_that_came_back_otherwise_is_left_alone() -> None:
    world = deleted("limits", 5)
    world.server.write(CreateConsumer(C, config("s.a", "s.b", metadata={})))
    result = run(RestoreConsumer(world.target("s.a"), floor=2), world.server)
    assert isinstance(result.end, Abort)
    assert result.writes == []
