"""restore-consumer: a consumer somebody deleted goes on behind its last known floor."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reconciler.errors import ApiError
from reconciler.procedures.holds import HOLD_PREFIX, hold_key
from reconciler.procedures.machine import Abort, Ask, Do, Done, Observation
from reconciler.procedures.requests import ConsumerInfo, CreateConsumer, DeleteConsumer, Unanswered, Write
from reconciler.procedures.restore_consumer import RestoreConsumer
from tests.support.world.consumers import OTHER, C, World, config
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


Refuses = Callable[[World, str], bool]
REFUSED: dict[str, Refuses] = {
    "for a hold": lambda _, name: name.startswith(HOLD_PREFIX),
    "beside the hold": lambda world, name: any(one not in (name, OTHER.name) for _, one in world.server.consumers),
    "in the stream": lambda *_: False,
}
"""Which consumers the account has no room for; in the stream the server itself says so."""


def refusing(world: World, refuses: Refuses) -> None:
    """The server has no room for these consumers."""

    def veto(write: Write) -> None:
        if isinstance(write, CreateConsumer) and refuses(world, write.consumer.name):
            raise ApiError(400, 10026, "maximum consumers limit reached")

    world.server.veto = veto


@pytest.mark.parametrize("room", REFUSED)
@pytest.mark.parametrize("retention", ["limits", "interest"])
def test_without_room_for_a_hold_it_begins_at_its_position(retention: str, room: str) -> None:
    for crash in CRASHES:
        world = deleted(retention, 5)
        if room == "in the stream":
            world.server.streams["S"].config["max_consumers"] = 2 if retention == "interest" else 1
        refusing(world, REFUSED[room])
        target = world.target("s.a")
        result = run(RestoreConsumer(target, floor=2), world.server, crash)
        assert isinstance(result.end, Done), crash
        assert room != "in the stream" or DeleteConsumer(hold_key(C)) not in result.writes
        world.assert_tidy(target)
        world.drain()
        assert (world.lost(), world.duplicates) == ([], []), crash


def test_what_is_refused_without_a_hold_as_well_leaves_none_behind() -> None:
    world = deleted("limits", 5)
    refusing(world, lambda _, name: name == "c")
    result = run(RestoreConsumer(world.target("s.a"), floor=2), world.server)
    assert isinstance(result.end, Abort)
    assert "maximum consumers" in result.end.message
    assert world.server.consumers == {}


def test_somebody_elses_hold_is_left_alone() -> None:
    world = deleted("limits", 5)
    world.server.write(CreateConsumer(hold_key(C), config("s.a", durable_name=hold_key(C).name, metadata={})))
    result = run(RestoreConsumer(world.target("s.a"), floor=2), world.server)
    assert isinstance(result.end, Done)
    assert DeleteConsumer(hold_key(C)) not in result.writes
    world.drain()
    assert (world.lost(), world.duplicates) == ([], [])


def test_a_hold_that_may_not_be_read_is_not_made() -> None:
    world = deleted("limits", 5)
    machine = RestoreConsumer(world.target("s.a"), floor=2)
    denied = ConsumerInfo(hold_key(C))
    asked = machine.step(Observation(world.server.now, {}), None)
    assert isinstance(asked, Ask)
    assert asked.spare == (denied,)
    facts = {read: world.server.read(read) for read in asked.reads} | {denied: Unanswered("denied")}
    more = machine.step(Observation(world.server.now, facts), asked.memory)
    assert isinstance(more, Ask)
    facts = {read: world.server.read(read) for read in more.reads} | {denied: Unanswered("denied")}
    step = machine.step(Observation(world.server.now, facts), more.memory)
    assert isinstance(step, Do)
    assert isinstance(step.write, CreateConsumer)
    assert step.write.consumer == C
