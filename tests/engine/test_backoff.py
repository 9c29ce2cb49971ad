"""Delays after failures: bounded, random, per key, and forgotten after success."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reconciler.engine.daemon.backoff import FIRST, MOST, Backoff


class Hands:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        """Seconds."""
        return self.now


def _longest(clock: Hands) -> Backoff:
    return Backoff(clock.monotonic, lambda _, bound: bound)


def test_the_bound_doubles_from_half_a_second_to_thirty() -> None:
    backoff = _longest(Hands())
    delays = [backoff.failed("key") for _ in range(12)]
    assert delays == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0, 30.0, 30.0, 30.0]


def test_keys_do_not_share_their_trouble() -> None:
    backoff = _longest(Hands())
    backoff.failed("one")
    backoff.failed("one")
    assert (backoff.failed("other"), backoff.failures("one"), backoff.failures("other")) == (0.5, 2, 1)


def test_a_key_is_due_when_its_delay_is_over() -> None:
    clock = Hands()
    backoff = _longest(clock)
    assert backoff.due_in("key") == 0.0
    backoff.failed("key")
    clock.now += 0.4
    assert round(backoff.due_in("key"), 6) == 0.1
    clock.now += 0.2
    assert backoff.due_in("key") == 0.0


def test_success_starts_over() -> None:
    backoff = _longest(Hands())
    backoff.failed("key")
    backoff.failed("key")
    backoff.forget("key")
    assert (backoff.failures("key"), backoff.failed("key")) == (0, 0.5)


def test_keys_that_failed_together_do_not_come_back_together() -> None:
    earliest = Backoff(Hands().monotonic, lambda low, _: low)
    assert [earliest.failed("key") for _ in range(3)] == [0.0, 0.0, 0.0]
    halfway = Backoff(Hands().monotonic, lambda low, high: (low + high) / 2)
    assert [halfway.failed("key") for _ in range(3)] == [0.25, 0.5, 1.0]


@given(st.integers(1, 2000))
def test_every_delay_is_between_nothing_and_the_bound(failures: int) -> None:
    backoff = Backoff(Hands().monotonic)
    for count in range(min(failures, 40)):
        assert 0.0 <= backoff.failed("key") <= min(MOST, FIRST * 2**count)


def test_a_key_may_fail_for_years() -> None:
    backoff = _longest(Hands())
    assert [backoff.failed("key") for _ in range(5000)][-1] == MOST
