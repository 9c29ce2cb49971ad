"""The model server copies like real servers: the procedures that were measured there have the same outcome here.

Each test is one row of what was measured, done with bare requests while messages are published: how many messages are missing
in the aggregate, are there more than once, or stay behind in the origin.
"""

from __future__ import annotations

import pytest

from reconciler.errors import ApiError
from reconciler.model.sourcing import identity_of
from reconciler.procedures.requests import PurgeStream, ResetConsumer
from tests.support.world.sources import PLAIN, S, SourceWorld, attached, durable, ephemeral, through

LEVELS = pytest.mark.parametrize("level", [4, 5])
DETACHED = {"name": "S", "filter_subject": "_detached.never"}


def handed_over(world: SourceWorld, *, purge: bool = False) -> None:
    """D3: from an ephemeral entry (or the server's own durable) to the durable `c`."""
    world.consumer("c", paused=True)
    world.live(0.5)
    world.copy(through("c"))
    world.live()
    behind = world.copied() + 1
    world.server.write(ResetConsumer(durable("c"), behind))
    if purge:
        world.server.write(PurgeStream(S, behind, "s.>"))
    world.resume("c")
    world.live()


@LEVELS
@pytest.mark.parametrize("retention", ["limits", "interest", "workqueue"])
def test_steady_copying_is_exact(retention: str, level: int) -> None:
    for make in (ephemeral, attached):
        make(retention, level).assert_exact()


def test_d0_a_durable_from_the_start_repeats_everything() -> None:
    world = ephemeral()
    behind = world.copied()
    world.consumer("c")
    world.copy(through("c"))
    missing, duplicates, _ = world.outcome()
    assert missing == 0
    assert duplicates >= behind


def test_d1_what_was_still_queued_is_repeated() -> None:
    world = ephemeral()
    world.publish(20)  # a backlog, so that something is on its way
    world.consumer("c", deliver_policy="by_start_sequence", opt_start_seq=world.copied() + 1)
    world.copy(through("c"))
    missing, duplicates, _ = world.outcome()
    assert missing == 0
    assert 0 < duplicates <= world.server.sourcing.queued


@pytest.mark.parametrize("placeholder", [[], [DETACHED]], ids=["d2", "d16"])
def test_d2_d16_detached_first_is_exact(placeholder: list[dict[str, str]]) -> None:
    world = ephemeral()
    world.copy(*placeholder)
    world.live()
    world.consumer("c", deliver_policy="by_start_sequence", opt_start_seq=world.copied() + 1)
    world.copy(through("c"))
    world.live()
    world.assert_exact()


@LEVELS
@pytest.mark.parametrize("retention", ["limits", "interest"])
def test_d3_d12b_reset_once_the_old_entry_rests_is_exact(retention: str, level: int) -> None:
    world = ephemeral(retention, level)
    handed_over(world)
    world.assert_exact()


def test_d3_reset_before_the_old_entry_rests_repeats() -> None:
    world = ephemeral()
    world.consumer("c", paused=True)
    world.publish(20)
    world.copy(through("c"))
    world.server.write(ResetConsumer(durable("c"), world.copied() + 1))
    world.resume("c")
    missing, duplicates, _ = world.outcome()
    assert missing == 0
    assert duplicates > 0


def test_d4_back_to_ephemeral_repeats_everything() -> None:
    world = attached()
    behind = world.copied(identity_of(through("c")))
    world.copy(PLAIN)
    missing, duplicates, _ = world.outcome()
    assert missing == 0
    assert duplicates >= behind


def test_d5_back_to_ephemeral_behind_a_drained_durable_is_exact() -> None:
    world = attached()
    world.copy({**PLAIN, "opt_start_seq": world.drained("c") + 1})
    world.remove("c")
    world.live()
    world.assert_exact()


@pytest.mark.parametrize(
    ("entry", "exact"),
    [
        (PLAIN, False),
        ({**PLAIN, "filter_subject": "s.>"}, True),
        ({**PLAIN, "subject_transforms": [{"src": "s.>", "dest": "s.>"}]}, True),
    ],
    ids=["d6", "d7", "m4"],
)
def test_d6_d7_a_known_identity_ignores_its_start(entry: dict[str, str], exact: bool) -> None:
    world = ephemeral()
    handed_over(world)
    world.copy({**entry, "opt_start_seq": world.drained("c") + 1})
    world.remove("c")
    world.live()
    missing, duplicates, _ = world.outcome()
    assert missing == 0
    assert (duplicates == 0) == exact


def test_d8_a_rename_without_a_pause_repeats() -> None:
    world = attached()
    world.publish(20)
    world.consumer("b", deliver_policy="by_start_sequence", opt_start_seq=world.floor("c") + 1)
    world.copy(through("b"))
    world.remove("c")
    missing, duplicates, _ = world.outcome()
    assert missing == 0
    assert duplicates > 0


@LEVELS
@pytest.mark.parametrize("retention", ["limits", "interest"])
def test_d9_d10_a_rename_behind_a_drained_durable_is_exact(retention: str, level: int) -> None:
    world = attached(retention, level)
    world.consumer("b", deliver_policy="by_start_sequence", opt_start_seq=world.drained("c") + 1)
    world.copy(through("b"))
    world.remove("c")
    world.live()
    world.assert_exact()


def test_d11_on_a_workqueue_the_old_durable_goes_first() -> None:
    world = attached("workqueue")
    world.drained("c")
    with pytest.raises(ApiError) as refused:
        world.consumer("b")
    assert refused.value.err_code == 10099
    world.remove("c")
    world.consumer("b")
    world.copy(through("b"))
    world.live()
    world.assert_exact()


def test_d12a_the_floor_of_the_server_s_durable_is_not_what_was_copied() -> None:
    world = ephemeral("interest")
    world.publish(20)
    world.server.advance(0.1)
    (made,) = (name for _, name in world.server.consumers)
    world.pause(made)
    world.consumer("c", deliver_policy="by_start_sequence", opt_start_seq=world.floor(made) + 1)
    world.copy(through("c"))
    missing, duplicates, _ = world.outcome()
    assert missing == 0
    assert duplicates > 0


def test_d12c_what_the_server_s_durable_did_not_acknowledge_stays_in_a_workqueue() -> None:
    world = ephemeral("workqueue")
    handed_over(world)
    missing, duplicates, stuck = world.outcome()
    assert (missing, duplicates) == (0, 0)
    assert stuck > 0


@LEVELS
def test_d17_a_purge_clears_it(level: int) -> None:
    world = ephemeral("workqueue", level)
    handed_over(world, purge=True)
    world.assert_exact()


@pytest.mark.parametrize(
    ("retention", "first", "exact"),
    [("interest", False, True), ("workqueue", False, False), ("workqueue", True, True)],
    ids=["d18", "d18w", "m1"],
)
def test_d18_m1_to_the_server_s_own_durable(retention: str, first: bool, exact: bool) -> None:
    world = attached(retention)
    behind = world.drained("c") + 1
    if first:
        world.remove("c")
    world.copy({**PLAIN, "opt_start_seq": behind})
    world.live()
    if not first:
        world.remove("c")
    world.live()
    missing, duplicates, stuck = world.outcome()
    assert (missing, duplicates) == (0, 0)
    assert (stuck == 0) == exact


TRANSFORMED = through("c", subject_transforms=[{"src": "s.>", "dest": "s.>"}])


def test_d13_transforms_changed_live_repeat() -> None:
    world = attached()
    world.publish(20)
    world.server.advance(0.1)
    world.copy(TRANSFORMED)
    missing, duplicates, _ = world.outcome()
    assert missing == 0
    assert duplicates > 0


@LEVELS
@pytest.mark.parametrize("retention", ["limits", "interest", "workqueue"])
def test_d14_transforms_changed_behind_a_drained_durable_are_exact(retention: str, level: int) -> None:
    world = attached(retention, level)
    world.drained("c")
    world.copy(TRANSFORMED)
    world.live()
    world.resume("c")
    world.live()
    world.assert_exact()


@LEVELS
def test_d20_another_deliver_subject_takes_a_detached_entry(level: int) -> None:
    world = attached(level=level)
    world.drained("c")
    with pytest.raises(ApiError) as refused:
        world.redirect("c", "dlv.other")
    assert refused.value.err_code == 10013
    world.copy(DETACHED)
    world.redirect("c", "dlv.other")
    world.copy(through("c", "dlv.other"))
    world.resume("c")
    world.live()
    world.assert_exact()


def test_d8b_only_the_entry_s_deliver_subject_is_shown_and_changes_nothing() -> None:
    world = attached()
    world.copy(through("c", "dlv.other"))
    world.live()
    assert world.info("c")["push_bound"]
    assert world.source()["active"] == 0
    world.assert_exact()


def test_e7_a_reset_of_an_attached_durable() -> None:
    world = attached()
    world.server.write(ResetConsumer(durable("c"), 1))
    world.live()
    world.assert_exact()  # backward: what is known is not stored again
    world.drained("c")
    world.publish(10)
    world.server.write(ResetConsumer(durable("c"), world.floor("c") + 6))
    world.resume("c")
    assert world.outcome()[1:] == (0, 0)
    assert len(world.missing()) >= 5  # forward: what is skipped is lost
