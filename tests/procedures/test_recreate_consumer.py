"""recreate-consumer: the new consumer stands where the old one stood, whatever crashes; deleting and creating is seen to lose."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.errors import ApiError
from reconciler.model.identity import MAX_NAME, Key, valid_name
from reconciler.model.marker import read_marker
from reconciler.model.units import parse_time
from reconciler.procedures.filter_add import FilterAdd
from reconciler.procedures.holds import hold_key
from reconciler.procedures.machine import Abort, Done
from reconciler.procedures.recreate_consumer import RecreateConsumer
from reconciler.procedures.requests import CreateConsumer, DeleteConsumer, PauseConsumer, ResetConsumer, Write
from tests.support.world.consumers import OTHER, OWNED, C, World, config
from tests.support.world.driver import NO_CRASH, Crash, run

LONG = 10 * 60 * 10**9
BUSY = ("a", "b", "work", "take") * 5
"""What goes on while the procedure runs."""
RETENTIONS = ("limits", "interest", "workqueue")
LEVELS = (1, 5)
CHANGE: dict[str, Any] = {"max_waiting": 7}


def at_work(retention: str = "limits", level: int = 5, **fields: Any) -> World:
    """The consumer has finished 1 and 3, sits on 2, and 4 and 5 wait."""
    world = World(retention, level)
    world.consume("s.a", **fields)
    world.publish(*"aaaaa")
    world.work(3, finish=False)
    world.finish(1)
    world.finish(3)
    return world


def die_after(world: World, kind: type[DeleteConsumer]) -> None:
    """The process dies before the write that follows one of this kind."""
    written: list[Write] = []

    def remember(write: Write) -> None:
        if written and isinstance(written[-1], kind):
            raise InterruptedError
        written.append(write)

    world.server.veto = remember


def crashes(writes: int) -> list[Crash]:
    before = [Crash(write=number, executed=executed) for number in range(writes) for executed in (False, True)]
    return [NO_CRASH, *before, *(Crash(step=number) for number in range(30))]


def test_control_delete_and_create_replays_on_limits_and_loses_on_interest() -> None:
    limits, interest = at_work("limits"), World("interest")
    interest.server.write(CreateConsumer(C, config("s.a")))  # the only one with an interest
    interest.publish(*"aaaaa")
    interest.work(2)
    for world in (limits, interest):
        world.server.write(DeleteConsumer(C))
        world.server.write(CreateConsumer(C, config("s.a", **CHANGE)))
        world.drain()
    assert limits.duplicates == [1, 3]
    assert interest.lost() == [3, 4, 5]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("retention", RETENTIONS)
def test_every_crash_ends_the_same(retention: str, level: int) -> None:
    for crash in crashes(9):
        world = at_work(retention, level)
        world.server.consumers.pop(("S", "other"), None)  # on interest, only c and the hold keep the messages
        target = world.target("s.a", **CHANGE)
        result = run(RecreateConsumer(target), world.server, crash)
        assert isinstance(result.end, Done), crash
        world.assert_tidy(target)
        world.drain()
        assert world.lost() == [], crash
        assert set(world.duplicates) <= {3}, f"only what was acknowledged out of order behind the one in flight: {crash}"


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("retention", RETENTIONS)
def test_nobody_comes_back_before_the_pause_runs_out(retention: str, level: int) -> None:
    for crash in crashes(9):
        world = at_work(retention, level)
        target = world.target("s.a", **CHANGE)
        late = Crash(crash.write, crash.executed, crash.step, silence=LONG)
        result = run(RecreateConsumer(target), world.server, late, between=world.living(*BUSY))
        assert isinstance(result.end, Done), crash
        world.assert_tidy(target)
        world.drain()
        assert world.lost() == [], crash


@pytest.mark.parametrize("retention", RETENTIONS)
def test_a_frozen_process_that_writes_after_its_pause_ran_out(retention: str) -> None:
    for stall in range(9):
        world = at_work(retention)
        target = world.target("s.a", **CHANGE)
        frozen = Crash(stall=stall, silence=LONG)
        assert isinstance(run(RecreateConsumer(target), world.server, frozen, world.living(*["rush"] * 40)).end, Done), stall
        world.assert_tidy(target)
        world.drain()
        assert world.lost() == [], stall


def test_workers_may_finish_what_they_have() -> None:
    world = at_work()
    run(RecreateConsumer(world.target("s.a", **CHANGE)), world.server, between=world.living(*["idle"] * 9, "finish"))
    world.drain()
    assert world.duplicates == []


def test_an_outdated_hold_is_replaced() -> None:
    world = at_work()
    world.finish(2)
    rush = world.living(*["idle"] * 6, *["rush"] * 20)
    run(RecreateConsumer(world.target("s.a", **CHANGE)), world.server, Crash(write=2, silence=LONG), rush)
    world.drain()
    assert world.duplicates == []


def test_a_manifest_that_changes_its_mind_finds_everything_still_there() -> None:
    world = World("interest")
    world.server.write(CreateConsumer(C, config("s.a", "s.b")))
    world.publish("a", "b")
    die_after(world, DeleteConsumer)
    with pytest.raises(InterruptedError):
        run(RecreateConsumer(world.target("s.a", **CHANGE)), world.server)
    world.server.veto = lambda _: None
    run(RecreateConsumer(world.target("s.a", "s.b")), world.server)
    world.drain()
    assert world.lost() == []


def test_a_consumer_that_never_delivered_has_a_position_too() -> None:
    world = World(level=1)
    world.publish("a", "a")
    world.consume("s.a", deliver_policy="new")  # 2.11 shows a floor of 0
    run(RecreateConsumer(world.target("s.a", deliver_policy="new", **CHANGE)), world.server)
    world.publish("a")
    world.drain()
    assert world.handled == {3}


def test_below_level_4_the_difference_is_recorded_as_residue() -> None:
    world = at_work(level=1)
    run(RecreateConsumer(world.target("s.a", **CHANGE)), world.server)
    live = world.server.read_config(C)
    assert (live["deliver_policy"], live["opt_start_seq"]) == ("by_start_sequence", 2)
    rows = {row.field: (row.live, row.declared) for row in read_marker(live["metadata"], C.mark).residue}
    assert rows == {"deliver_policy": ("by_start_sequence", None), "opt_start_seq": (2, None)}


def test_with_reset_nothing_is_left_different() -> None:
    world = at_work(level=5)
    target = world.target("s.a", **CHANGE)
    result = run(RecreateConsumer(target), world.server)
    assert world.server.read_config(C) == target.wire
    assert any(isinstance(write, ResetConsumer) for write in result.writes)


def test_a_replicated_interest_stream_is_never_reset() -> None:
    world = at_work("interest")
    target = replace(world.target("s.a", **CHANGE), replicas=3)
    result = run(RecreateConsumer(target), world.server)
    assert isinstance(result.end, Done)
    assert not any(isinstance(write, ResetConsumer) for write in result.writes)
    world.drain()
    assert world.lost() == []


@pytest.mark.parametrize("policy", ["new", "last"])
def test_a_policy_that_cannot_be_reset_keeps_its_position(policy: str) -> None:
    world = at_work(deliver_policy=policy)
    run(RecreateConsumer(world.target("s.a", deliver_policy=policy, **CHANGE)), world.server)
    world.publish("a")
    world.drain()
    assert world.lost()[:1] != [6]
    assert 6 in world.handled


@pytest.mark.parametrize("declared", [3, 1])
def test_another_declared_start_does_not_move_a_consumer_that_has_a_position(declared: int) -> None:
    world = at_work()
    target = world.target("s.a", deliver_policy="by_start_sequence", opt_start_seq=declared)
    assert isinstance(run(RecreateConsumer(target), world.server).end, Done)
    world.drain()
    assert world.lost() == []
    assert isinstance(run(RecreateConsumer(target), world.server).end, Done)


def test_filters_added_by_the_way_are_rewound_to() -> None:
    world = World()
    world.consume("s.a")
    world.publish("b", "a", "a")
    world.work(2)
    run(RecreateConsumer(world.target("s.a", "s.b", **CHANGE)), world.server)
    world.drain()
    assert world.lost() == []
    assert world.duplicates == [2, 3]


def test_on_interest_the_hold_keeps_what_added_filters_match_while_the_consumer_is_away() -> None:
    world = World("interest")
    world.consume("s.a")
    world.publish("b", "a", "a")
    world.work(2)

    def done_elsewhere() -> None:
        if (C.stream, C.name) not in world.server.consumers:
            while seq := world.server.deliver(OTHER):
                world.server.acknowledge(OTHER, seq)

    run(RecreateConsumer(world.target("s.a", "s.b", **CHANGE)), world.server, between=done_elsewhere)
    world.drain()
    assert world.lost() == []


@pytest.mark.parametrize("writes", range(1, 5))
def test_takes_over_from_a_half_done_filter_add(writes: int) -> None:
    world = World()
    world.consume("s.a")
    world.publish("b", "a", "a")
    world.work(2)
    allowed = iter(range(writes))

    def die(_: Write) -> None:
        if next(allowed, None) is None:
            raise InterruptedError

    world.server.veto = die
    with pytest.raises(InterruptedError):
        run(FilterAdd(world.target("s.a", "s.b")), world.server)
    world.server.veto = lambda _: None
    target = world.target("s.a", "s.b", **CHANGE)
    assert isinstance(run(RecreateConsumer(target), world.server).end, Done)
    world.assert_tidy(target)
    world.drain()
    assert world.lost() == []


def test_a_person_s_pause_is_not_touched() -> None:
    world = at_work()
    world.server.write(PauseConsumer(C, "2030-01-01T00:00:00Z"))
    result = run(RecreateConsumer(world.target("s.a", **CHANGE)), world.server)
    assert isinstance(result.end, Abort)
    assert result.end.code == "paused-by-person"
    assert result.writes == []


def test_a_refused_hold_leaves_the_consumer_as_it_was() -> None:
    world = at_work()

    def refuse(write: Write) -> None:
        if isinstance(write, CreateConsumer):
            raise ApiError(400, 10026, "maximum consumers limit reached")

    world.server.veto = refuse
    result = run(RecreateConsumer(world.target("s.a", **CHANGE)), world.server)
    assert isinstance(result.end, Abort)
    assert world.server.read_config(C)["metadata"] == OWNED
    assert world.server.consumers["S", "c"].paused_until == 0
    assert list(world.server.consumers) == [("S", "c")]


@pytest.mark.parametrize("before", ["", "2030-01-01T00:00:00Z"])
@pytest.mark.parametrize("after", ["", "2031-01-01T00:00:00Z"])
def test_a_refused_change_leaves_the_pause_that_its_mark_tells_of(before: str, after: str) -> None:
    """The mark does not know of the one that comes with the change: nobody would take it for declared."""
    world = at_work()
    told = {**OWNED, "reconciler.pauseUntil": before} if before else OWNED
    world.server.consumers["S", "c"].config |= {"metadata": told}
    world.server.write(PauseConsumer(C, before))
    target = world.target("s.a", **CHANGE)
    config = orjson.dumps({**target.wire, "metadata": {**OWNED, "reconciler.pauseUntil": after} if after else OWNED})

    def refuse(write: Write) -> None:
        if isinstance(write, DeleteConsumer) and write.consumer == C:
            raise ApiError(500, 10000, "refused for good")

    world.server.veto = refuse
    result = run(RecreateConsumer(replace(target, config=config)), world.server)
    assert isinstance(result.end, Abort)
    assert world.server.read_config(C)["metadata"] == told
    assert world.server.consumers["S", "c"].paused_until == (parse_time(before) if before else 0)


def test_without_hold_and_consumer_nothing_is_invented() -> None:
    world = World()
    result = run(RecreateConsumer(world.target("s.a")), world.server)
    assert isinstance(result.end, Abort)
    assert result.end.code == "position-loss"


def test_a_hold_of_a_long_name_has_a_valid_name_of_its_own() -> None:
    names = {hold_key(Key("Consumer", letter * MAX_NAME, "S")).name for letter in "ab"}
    assert len(names) == 2
    assert all(valid_name(name) for name in names)


OPERATIONS = st.lists(st.sampled_from(("a", "b", "take", "take", "finish", "expire", "idle")), max_size=14)
CRASHES = st.one_of(
    st.builds(Crash, write=st.integers(0, 9), executed=st.booleans(), silence=st.sampled_from((0, LONG))),
    st.builds(Crash, step=st.integers(0, 30), silence=st.sampled_from((0, LONG))),
)


@given(
    where=st.tuples(st.sampled_from(RETENTIONS), st.integers(1, 5)),
    filters=st.sampled_from((("s.a",), ("s.a", "s.b"), ("s.*",))),
    history=st.tuples(OPERATIONS, OPERATIONS),
    crash=CRASHES,
)
def test_no_history_loses_a_message(
    where: tuple[str, int], filters: tuple[str, ...], history: tuple[list[str], list[str]], crash: Crash
) -> None:
    world = World(*where)
    world.consume("s.a")
    for operation in history[0]:
        world.act(operation)
    machine = RecreateConsumer(world.target(*filters, **CHANGE))
    result = run(machine, world.server, crash, between=world.living(*history[1]))
    assert isinstance(result.end, Done)
    world.assert_tidy(machine.target)
    world.drain()
    assert world.lost() == []
