"""filter-add: stored matches below the cursor are delivered, whatever crashes; and the plain update is seen to skip them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.errors import ApiError
from reconciler.model import units
from reconciler.model.marker import Marker, read_marker
from reconciler.model.residue import Residue
from reconciler.procedures.consumer import expected_duplicates
from reconciler.procedures.filter_add import FilterAdd
from reconciler.procedures.machine import Abort, Done
from reconciler.procedures.requests import PauseConsumer, ResetConsumer, UpdateConsumer, Write
from tests.support.world.consumers import OWNED, C, World, config
from tests.support.world.driver import NO_CRASH, Crash, run

LONG = 10 * 60 * 10**9
BUSY = ("a", "b", "work", "take") * 5
"""What goes on while the procedure runs."""
RETENTIONS = ("limits", "interest", "workqueue")


def passed_by(retention: str = "limits", level: int = 5) -> World:
    """Six messages, of which c took its own and passed the others; one is in flight, one is finished out of order."""
    world = World(retention, level)
    world.consume("s.a")
    world.publish("b", "a", "a", "b", "a", "c")
    world.work(1)
    world.work(2, finish=False)
    world.finish(5)
    world.work(1)  # finds nothing: the real cursor runs to the end of the stream
    return world


def crashes() -> list[Crash]:
    before = [Crash(write=number, executed=executed) for number in range(6) for executed in (False, True)]
    return [NO_CRASH, *before, *(Crash(step=number) for number in range(20))]


def test_control_a_plain_update_skips_what_is_stored() -> None:
    world = passed_by()
    world.server.write(UpdateConsumer(C, config("s.a", "s.b")))
    world.drain()
    assert world.lost() == [1, 4]


@pytest.mark.parametrize("retention", RETENTIONS)
def test_every_crash_ends_the_same(retention: str) -> None:
    for crash in crashes():
        world = passed_by(retention)
        target = world.target("s.a", "s.b")
        expected = expected_duplicates(world.info(), 1, retention)
        result = run(FilterAdd(target), world.server, crash)
        assert isinstance(result.end, Done), crash
        world.assert_tidy(target)
        world.drain()
        assert world.lost() == [], crash
        assert len(world.duplicates) <= expected, crash
        assert set(world.duplicates) <= {2, 5}, f"only what was done and lies behind the first stored match: {crash}"


@pytest.mark.parametrize("retention", RETENTIONS)
def test_nobody_comes_back_before_the_pause_runs_out(retention: str) -> None:
    for crash in crashes():
        world = passed_by(retention)
        target = world.target("s.a", "s.b")
        late = Crash(crash.write, crash.executed, crash.step, silence=LONG)
        result = run(FilterAdd(target), world.server, late, between=world.living(*BUSY))
        assert isinstance(result.end, Done), crash
        world.assert_tidy(target)
        world.drain()
        assert world.lost() == [], crash


def test_nothing_stored_means_no_pause() -> None:
    world = World()
    world.consume("s.a")
    world.publish("a", "c")
    result = run(FilterAdd(world.target("s.a", "s.b")), world.server)
    assert isinstance(result.end, Done)
    assert [type(write) for write in result.writes] == [UpdateConsumer, UpdateConsumer]


def test_a_match_published_just_before_an_unpaused_update_is_found() -> None:
    for crash in crashes():
        world = World()
        world.consume("s.a")
        target = world.target("s.a", "s.b")
        living = world.living("idle", "idle", "b rush", *["rush"] * 20)  # the third step is the update
        assert isinstance(run(FilterAdd(target), world.server, crash, living).end, Done), crash
        world.assert_tidy(target)
        world.drain()
        assert world.lost() == [], crash


def test_a_check_that_cannot_go_on_stays_in_the_journal() -> None:
    world = World()
    world.consume("s.a")
    machine = FilterAdd(world.target("s.a", "s.b"))
    writes = iter(range(100))

    def refuse(_: Write) -> None:
        if next(writes) == 1:
            raise ApiError(400, 10025, "no")

    world.server.veto = refuse
    result = run(machine, world.server, between=world.living("idle", "idle", "b rush", *["rush"] * 5))
    assert isinstance(result.end, Abort)
    world.server.veto = lambda _: None
    assert isinstance(run(machine, world.server).end, Done)
    world.drain()
    assert world.lost() == []


@pytest.mark.parametrize("stall", range(6))
def test_a_frozen_process_that_writes_after_its_pause_ran_out(stall: int) -> None:
    for crash in crashes():
        world = passed_by()
        target = world.target("s.a", "s.b")
        frozen = replace(crash, stall=stall, silence=LONG)
        assert isinstance(run(FilterAdd(target), world.server, frozen, world.living(*["rush"] * 40)).end, Done), crash
        world.assert_tidy(target)
        world.drain()
        assert world.lost() == [], crash


def test_a_pause_is_renewed_when_half_of_it_is_used() -> None:
    world = passed_by()
    machine = FilterAdd(world.target("s.a", "s.b"))
    result = run(machine, world.server, Crash(write=1, silence=90 * 10**9))
    assert [type(write) for write in result.writes].count(PauseConsumer) == 3, "paused, renewed, resumed"


def test_workers_may_finish_what_they_have() -> None:
    world = passed_by()
    run(FilterAdd(world.target("s.a", "s.b")), world.server, between=world.living(*["idle"] * 8, "finish"))
    world.drain()
    assert 3 in world.handled
    assert world.lost() == []


def test_what_waits_before_the_first_match_of_a_new_filter_is_not_skipped() -> None:
    world = World()
    world.consume("s.a")
    world.publish("a", "a", "a", "b")
    world.work(1)
    world.work(1, finish=False)
    run(FilterAdd(world.target("s.a", "s.b")), world.server)
    world.drain()
    assert (world.lost(), world.duplicates) == ([], [])


def test_a_second_run_writes_nothing() -> None:
    world = passed_by()
    machine = FilterAdd(world.target("s.a", "s.b"))
    run(machine, world.server)
    again = run(machine, world.server)
    assert isinstance(again.end, Done)
    assert again.writes == []


def test_a_person_s_pause_is_not_touched() -> None:
    world = passed_by()
    world.server.write(PauseConsumer(C, "2030-01-01T00:00:00Z"))
    result = run(FilterAdd(world.target("s.a", "s.b")), world.server)
    assert isinstance(result.end, Abort)
    assert result.end.code == "paused-by-person"
    assert result.writes == []


def test_a_declared_pause_comes_back() -> None:
    world = passed_by()
    until = "2030-01-01T00:00:00Z"
    marker = Marker(owner="test", spec="new", pause_until=until, key=C.mark).to_metadata()
    world.server.write(UpdateConsumer(C, config("s.a", metadata=marker)))
    world.server.write(PauseConsumer(C, until))
    result = run(FilterAdd(world.target("s.a", "s.b", metadata=marker)), world.server)
    assert isinstance(result.end, Done)
    assert world.server.consumers["S", "c"].paused_until == units.parse_time(until)


@pytest.mark.parametrize(
    ("level", "fields"),
    [(1, {}), (5, {"deliver_policy": "new"}), (5, {"deliver_policy": "by_start_time", "opt_start_time": "2027-01-01T00:00:00Z"})],
)
def test_what_cannot_be_moved_back_is_refused_before_anything_is_written(level: int, fields: dict[str, Any]) -> None:
    world = World(level=level)
    world.consume("s.a", **fields)
    world.publish("b", "a")
    result = run(FilterAdd(world.target("s.a", "s.b", **fields)), world.server)
    assert isinstance(result.end, Abort)
    assert result.end.code == "position-loss"
    assert result.writes == []


@pytest.mark.parametrize("published_at", range(8))
def test_below_level_4_a_match_that_comes_meanwhile_is_never_skipped(published_at: int) -> None:
    world = World(level=1)
    world.consume("s.a")
    world.publish("a")
    result = run(
        FilterAdd(world.target("s.a", "s.b")),
        world.server,
        between=world.living(*["work"] * published_at, "b", *["work"] * 8),
    )
    if isinstance(result.end, Abort):
        assert result.end.code == "position-loss"
        assert world.consumer_filters == ["s.a"]
    assert read_marker(world.server.read_config(C)["metadata"], C.mark).journal is None
    assert world.server.consumers["S", "c"].paused_until == 0
    world.drain()
    assert world.lost() == []


def test_a_refused_update_is_taken_back() -> None:
    world = passed_by()
    target = world.target("s.a", "s.b", ack_policy="all")  # immutable: the server refuses the update
    result = run(FilterAdd(target), world.server)
    assert isinstance(result.end, Abort)
    assert "10012" in result.end.message
    assert world.server.read_config(C)["metadata"] == OWNED
    assert world.server.consumers["S", "c"].paused_until == 0


def test_what_lies_before_the_declared_start_is_not_wanted() -> None:
    world = World()
    world.publish("b", "a", "b")
    start = {"deliver_policy": "by_start_sequence", "opt_start_seq": 2}
    world.consume("s.a", **start)
    world.work(2)
    assert isinstance(run(FilterAdd(world.target("s.a", "s.b", **start)), world.server).end, Done)
    world.drain()
    assert world.handled == {2, 3}


def test_the_residue_of_an_earlier_procedure_stays() -> None:
    world = World()
    rows = (Residue("deliver_policy", "by_start_sequence", None), Residue("opt_start_seq", 2, None))
    marked = Marker(owner="test", spec="old", residue=rows, key=C.mark).to_metadata()
    world.publish("a", "a")
    world.consume("s.a", deliver_policy="by_start_sequence", opt_start_seq=2, metadata=marked)
    world.publish("b", "a")
    world.work(2)
    assert isinstance(run(FilterAdd(world.target("s.a", "s.b")), world.server).end, Done)
    live = world.server.read_config(C)
    assert (live["opt_start_seq"], read_marker(live["metadata"], C.mark).residue) == (2, rows)
    world.drain()
    assert 3 in world.handled


def test_what_lies_before_a_residual_start_cannot_be_rewound_to() -> None:
    world = World()
    rows = (Residue("deliver_policy", "by_start_sequence", None), Residue("opt_start_seq", 3, None))
    marked = Marker(owner="test", spec="old", residue=rows, key=C.mark).to_metadata()
    world.publish("b", "a")
    world.consume("s.a", deliver_policy="by_start_sequence", opt_start_seq=3, metadata=marked)
    result = run(FilterAdd(world.target("s.a", "s.b")), world.server)
    assert isinstance(result.end, Abort)
    assert result.end.code == "position-loss"


def test_an_interest_stream_with_replicas_is_never_reset() -> None:
    world = passed_by("interest")
    result = run(FilterAdd(replace(world.target("s.a", "s.b"), replicas=3)), world.server)
    assert isinstance(result.end, Abort)
    assert result.end.code == "position-loss"


OPERATIONS = st.lists(st.sampled_from(("a", "b", "c", "take", "finish", "expire", "idle")), max_size=14)
HISTORIES = st.tuples(st.sampled_from(RETENTIONS), st.integers(1, 5), OPERATIONS, OPERATIONS)
SILENCES = st.sampled_from((0, 0, LONG))
CRASHES = st.one_of(
    st.builds(Crash, write=st.integers(0, 6), executed=st.booleans(), silence=SILENCES),
    st.builds(Crash, step=st.integers(0, 20), silence=SILENCES),
)


@given(history=HISTORIES, crash=CRASHES)
def test_no_history_loses_a_message(history: tuple[str, int, list[str], list[str]], crash: Crash) -> None:
    retention, level, before, during = history
    world = World(retention, level)
    world.consume("s.a")
    for operation in before:
        world.act(operation)
    machine = FilterAdd(world.target("s.a", "s.b"))
    result = run(machine, world.server, crash, between=world.living(*during))
    if isinstance(result.end, Done):
        world.assert_tidy(machine.target)
    else:
        assert level < 4
        assert not any(isinstance(write, ResetConsumer) for write in result.writes)
    done_before = len(world.handled)
    world.drain()
    assert world.lost() == []
    assert len(set(world.duplicates)) <= done_before
