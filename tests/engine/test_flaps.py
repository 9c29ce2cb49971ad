"""Who fights: the same foreign value of a field again and again, within a while."""

from __future__ import annotations

import pytest

from reconciler.engine.daemon.fights import DELETED, PAUSE, TIMES, WINDOW, Fight, Fights
from reconciler.model.identity import Key
from reconciler.plan.change import Author, FieldDiff
from tests.support.clock.fake import Clock

KEY, OTHER = Key("Consumer", "a", "S"), Key("Consumer", "b", "S")
THEIRS = FieldDiff("maxDeliver", 99, 5)
BOB, EVE = Author("nats CLI", "bob", ""), Author("a-script", "eve", "")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def flaps(clock: Clock) -> Fights:
    return Fights(clock)


def test_it_is_a_fight_beyond_so_many_times_and_slows_down_this_key_only(flaps: Fights) -> None:
    assert [flaps.noted(KEY, (THEIRS,)) for _ in range(TIMES)] == [None] * TIMES
    assert flaps.delay(KEY) == 0.0
    assert flaps.noted(KEY, (THEIRS,)) == Fight(THEIRS, TIMES + 1)
    assert (flaps.delay(KEY), flaps.delay(OTHER)) == (PAUSE, 0.0)


def test_the_pause_ends_and_begins_again_with_the_next_blow(flaps: Fights, clock: Clock) -> None:
    for _ in range(TIMES + 1):
        flaps.noted(KEY, (THEIRS,))
    clock.now += PAUSE - 1
    assert flaps.delay(KEY) == 1.0
    clock.now += 1
    assert flaps.delay(KEY) == 0.0
    assert flaps.noted(KEY, (THEIRS,)) is not None
    assert flaps.delay(KEY) == PAUSE


def test_different_values_fields_and_keys_are_no_fight(flaps: Fights) -> None:
    for number in range(TIMES * 2):
        assert flaps.noted(KEY, (FieldDiff("maxDeliver", number, 5),)) is None
        assert flaps.noted(Key("Consumer", f"c{number}", "S"), (THEIRS,)) is None
    for _ in range(TIMES - 1):
        flaps.noted(KEY, (THEIRS,))
    assert flaps.noted(KEY, (FieldDiff("ackWait", 99, 5),)) is None


def test_what_happens_now_and_then_is_no_fight(flaps: Fights, clock: Clock) -> None:
    for _ in range(TIMES * 3):
        assert flaps.noted(KEY, (THEIRS,)) is None
        clock.now += WINDOW / TIMES + 1


def test_deleting_it_again_and_again_is_a_fight(flaps: Fights) -> None:
    for _ in range(TIMES):
        flaps.noted(KEY, ())
    assert flaps.noted(KEY, ()) == Fight(DELETED, TIMES + 1)


def test_of_several_fields_the_worst_is_named(flaps: Fights) -> None:
    other = FieldDiff("ackWait", "7s", "30s")
    for _ in range(TIMES):
        flaps.noted(KEY, (THEIRS,))
    assert flaps.noted(KEY, (other, THEIRS)) == Fight(THEIRS, TIMES + 1)


def test_a_fight_is_with_who_is_known_to_have_set_that_value_last(flaps: Fights) -> None:
    for _ in range(TIMES):
        flaps.noted(KEY, (THEIRS,), EVE)
    assert flaps.noted(KEY, (THEIRS,), BOB) == Fight(THEIRS, TIMES + 1, BOB)
    assert flaps.noted(KEY, (THEIRS,)) == Fight(THEIRS, TIMES + 2, BOB)


def test_who_becomes_known_after_a_blow_is_named_with_the_next(flaps: Fights) -> None:
    """The audit lags behind the advisories."""
    for _ in range(TIMES):
        flaps.noted(KEY, (THEIRS,))
    flaps.attributed(KEY, BOB)
    flaps.attributed(OTHER, EVE)
    assert flaps.noted(KEY, (THEIRS,)) == Fight(THEIRS, TIMES + 1, BOB)


def test_who_set_another_field_or_value_is_not_taken_for_who_fights(flaps: Fights) -> None:
    for _ in range(TIMES):
        flaps.noted(KEY, (THEIRS,))
    for other in (FieldDiff("ackWait", "7s", "30s"), FieldDiff("maxDeliver", 98, 5)):
        flaps.noted(KEY, (other,))
        flaps.attributed(KEY, EVE)
    assert flaps.noted(KEY, (THEIRS,)) == Fight(THEIRS, TIMES + 1)


def test_who_fought_long_ago_is_not_taken_for_who_fights_now(flaps: Fights, clock: Clock) -> None:
    flaps.noted(KEY, (THEIRS,), EVE)
    clock.now += WINDOW + 1
    for _ in range(TIMES):
        flaps.noted(KEY, (THEIRS,))
    assert flaps.noted(KEY, (THEIRS,)) == Fight(THEIRS, TIMES + 1)
