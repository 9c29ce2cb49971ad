"""How good plans are, on the cases that are known: balance, and moved weight by the least possible."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from reconciler.partitions.planning.columns import sums
from reconciler.partitions.planning.keys import Keys, xxhash64
from reconciler.partitions.planning.levels import find_giants
from reconciler.partitions.planning.model import ABSENT, NEW, Items, PlanningRules, Workers
from reconciler.partitions.planning.planner import plan_locally
from reconciler.partitions.planning.quotas import pour, quotas, skim
from tests.support.partitions.pools import RULES, UNIT, fresh, items, quality, resized, workers

RNG = np.random.default_rng(11)
EQUAL_2K = [UNIT] * 2000
EQUAL_10K = [UNIT] * 10_000
LOGNORMAL_4K = (RNG.lognormal(0, 1, 4000) * UNIT).astype(np.int64).tolist()


def reference() -> list[int]:
    """3,000 partitions, 5 % of them heavy: 10,000 to 50,000 where the others have 100."""
    weights = np.full(3000, 100 * UNIT)
    weights[RNG.permutation(3000)[:150]] = RNG.integers(10_000, 50_000, 150) * UNIT
    found: list[int] = weights.tolist()
    return found


@pytest.mark.parametrize(
    ("weights", "before", "after"),
    [(EQUAL_2K, 25, 26), (EQUAL_2K, 25, 30), (EQUAL_10K, 128, 141), (LOGNORMAL_4K, 25, 26), (LOGNORMAL_4K, 25, 24)],
    ids=["25 to 26", "25 to 30", "128 to 141", "lognormal 25 to 26", "lognormal 25 to 24"],
)
def test_small_partitions_reach_both_bounds(weights: list[int], before: int, after: int) -> None:
    given, around = resized(weights, before, after)
    found = quality(given, around, plan_locally(given, around, RULES))
    assert found.most <= 1.05
    assert found.least >= 0.95
    assert found.bound <= found.moved <= 1.05 * found.bound


def test_weights_that_drift_move_little() -> None:
    start = items(LOGNORMAL_4K)
    place = plan_locally(start, workers(25), RULES).place
    drifted = items((np.array(LOGNORMAL_4K) * RNG.uniform(0.9, 1.1, 4000)).astype(np.int64).tolist()).at(place)
    found = quality(drifted, workers(25), plan_locally(drifted, workers(25), RULES))
    assert found.most <= 1.1
    assert found.moved <= 1.05 * found.bound + 1


@pytest.mark.parametrize("after", [110, 99])
def test_partitions_of_the_size_of_a_share_are_balanced_and_most_of_the_weight_stays(after: int) -> None:
    """The bound on moves is out of reach with partitions so large; consistent hashing moves 92 % (19 %), for a load of 1.6."""
    given, around = resized(reference(), 100, after)
    found = quality(given, around, plan_locally(given, around, RULES))
    assert found.most <= 1.1
    assert found.moved < int(given.weight.sum()) * (0.25 if after > 100 else 0.1)


def test_large_partitions_change_places_when_nobody_has_room() -> None:
    weights = [6 * UNIT, 6 * UNIT, 4 * UNIT, 4 * UNIT]
    given = items(weights, [0, 0, 1, 1])
    plan = plan_locally(given, workers(2), RULES)
    assert sums(given.weight, plan.place, 2).tolist() == [10 * UNIT, 10 * UNIT]
    assert int((plan.place != given.home).sum()) == 2


def test_caps_at_95_percent_are_kept_and_loads_are_near() -> None:
    weights = (RNG.lognormal(0, 1, 9500) * UNIT).astype(np.int64).tolist()
    around = workers(20, slots=500)
    plan = plan_locally(items(weights), around, RULES)
    assert np.bincount(plan.place).max() <= 500
    assert quality(items(weights), around, plan).most <= 1.1


def test_capacities_are_respected() -> None:
    around = workers(10, capacity=[UNIT] * 5 + [2 * UNIT] * 5)
    given = items(LOGNORMAL_4K)
    plan = plan_locally(given, around, RULES)
    load = sums(given.weight, plan.place, 10)
    assert load[5:].mean() / load[:5].mean() == pytest.approx(2, rel=0.02)


def test_a_giant_has_a_worker_to_itself_and_stays_there() -> None:
    weights = [UNIT] * 300 + [500 * UNIT, 400 * UNIT]
    around = workers(5)
    plan = plan_locally(items(weights), around, RULES)
    assert sorted(plan.giants.tolist()) == [300, 301]
    load = sums(items(weights).weight, plan.place, 5)
    assert sorted(load.tolist()) == [100 * UNIT] * 3 + [400 * UNIT, 500 * UNIT]
    again = plan_locally(items(weights).at(plan.place), around, RULES)
    assert (again.place == plan.place).all()


def test_a_heavy_newcomer_makes_room_for_itself() -> None:
    weights = [UNIT] * 400 + [90 * UNIT]
    place = plan_locally(items([UNIT] * 400), workers(4), RULES).place
    given = items(weights, [*place.tolist(), NEW])
    found = quality(given, workers(4), plan_locally(given, workers(4), RULES))
    assert found.most <= 1.1


def test_soft_zones_are_left_only_by_what_they_cannot_hold() -> None:
    count = 400
    base = items([UNIT] * count)
    zone = np.where(np.arange(count) < 300, 0, 1).astype(np.int32)
    given = Items(base.keys, base.weight, base.filters, base.home, base.pin, zone)
    around = Workers(tuple("abcd"), (UNIT,) * 4, (10**6,) * 4, (True,) * 4, (0, 0, 1, 1), (False,) * 4)
    plan = plan_locally(given, around, PlanningRules(100_000, 50_000, fill=True, zones="soft"))
    at = np.array(around.zone)[plan.place]
    assert int((at != zone).sum()) == 90
    assert quality(given, around, plan).most <= 1.06
    hard = plan_locally(given, around, PlanningRules(100_000, 50_000, fill=True, zones="hard"))
    assert (np.array(around.zone)[hard.place] == zone).all()


@pytest.mark.parametrize("slow", [0.5], ids=["half a second"])
def test_four_thousand_partitions_are_planned_in_no_time(slow: float) -> None:
    given, around = resized(LOGNORMAL_4K, 25, 26)
    before = time.process_time()
    plan_locally(given, around, RULES)
    assert time.process_time() - before < slow


def test_a_draining_worker_over_its_cap_gives_up_the_rest_whatever_the_budget() -> None:
    given = items([UNIT] * 7, [0] * 7)
    plan = plan_locally(given, workers(3, slots=6, draining=[0]), replace(RULES, budget=0))
    assert int((plan.place == 0).sum()) == 6
    assert plan.waiting == 7 * UNIT


def test_fill_new_shed_leaves_new_workers_to_what_others_have_too_much_of() -> None:
    given, around = resized(EQUAL_2K, 25, 26)
    plan = plan_locally(given, around, PlanningRules(100_000, 50_000, fill=False))
    assert quality(given, around, plan).moved == 0


def test_the_hash_is_that_of_spark() -> None:
    assert xxhash64("abc") == 1423657621850124518
    assert xxhash64("") == -7444071767201028348


def test_keys_of_one_hash_are_ordered_by_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["b", "a", "ä", "c", "B"]
    keys = Keys(names)
    monkeypatch.setattr(Keys, "hashes", lambda _, rows: np.zeros(len(rows), dtype=np.int64))
    rows = np.arange(5, dtype=np.int64)
    same = np.zeros(5, dtype=np.int64)
    assert [names[row] for row in keys.ordered(rows, same)] == ["B", "a", "b", "c", "ä"]
    assert [names[row] for row in keys.ordered(rows, np.array([1, 0, 1, 0, 1]), strata=True)] == ["a", "c", "B", "b", "ä"]


@pytest.mark.parametrize(
    ("weight", "load", "capacity", "expected"),
    [
        (10, {0: 0, 1: 0}, {0: 1, 1: 1}, {0: 5, 1: 5}),
        (10, {0: 0, 1: 20}, {0: 1, 1: 1}, {0: 10}),
        (10, {0: 5, 1: 10}, {0: 1, 1: 1}, {0: 7, 1: 2}),
        (9, {0: 0, 1: 0}, {0: 1, 1: 2}, {0: 3, 1: 6}),
    ],
)
def test_pouring(weight: int, load: dict[int, int], capacity: dict[int, int], expected: dict[int, int]) -> None:
    assert pour(weight, load, capacity) == expected


@pytest.mark.parametrize(
    ("weight", "load", "expected"), [(10, {0: 30, 1: 30}, {0: 5, 1: 5}), (10, {0: 30, 1: 15}, {0: 10}), (0, {0: 3}, {0: 0})]
)
def test_skimming(weight: int, load: dict[int, int], expected: dict[int, int]) -> None:
    assert skim(weight, load, dict.fromkeys(load, 1)) == expected


@pytest.mark.parametrize(
    ("count", "wanted", "free", "expected"),
    [
        (3, {0: 1, 1: 1}, {0: 9, 1: 9}, {0: 2, 1: 1}),
        (10, {0: 9, 1: 1}, {0: 4, 1: 9}, {0: 4, 1: 6}),
        (5, {}, {0: 2, 1: 8}, {0: 1, 1: 4}),
        (3, {0: 1}, {0: 1, 1: 1}, None),
    ],
)
def test_quotas(count: int, wanted: dict[int, int], free: dict[int, int], expected: dict[int, int] | None) -> None:
    assert quotas(count, wanted, free) == expected


def test_giants_are_found_to_the_end() -> None:
    assert find_giants([50, 20, 10], 100, {0: 1, 1: 1, 2: 1, 3: 1}, {}, 50_000).count == 2
    assert find_giants([50, 50], 100, {0: 1, 1: 1}, {}, 50_000).count == 0
    assert find_giants([10], 100, {0: 1, 1: 1}, {0: 90}, 50_000).over_pinned == frozenset({0})


def test_a_worker_that_is_gone_gives_up_everything_and_nobody_else_moves() -> None:
    given, around = resized(EQUAL_2K, 25, 24)
    plan = plan_locally(given, around, RULES)
    moved = plan.place != given.home
    assert (moved == (given.home == ABSENT)).all()


def test_one_added_worker_moves_nothing_between_old_ones() -> None:
    given, around = resized(LOGNORMAL_4K, 25, 26)
    plan = plan_locally(given, around, RULES)
    assert set(plan.place[plan.place != given.home].tolist()) == {25}
    assert fresh(around, [25]) == around


def test_what_only_a_large_worker_can_carry_goes_there() -> None:
    """Nobody has less to carry than the small ones, and yet the heavy one would be too much for them."""
    around = workers(6, capacity=[UNIT] * 4 + [2 * UNIT] * 2)
    given = items([170 * UNIT] + [UNIT] * 630, [NEW, *[number % 4 if number < 360 else 4 + number % 2 for number in range(630)]])
    plan = plan_locally(given, around, RULES)
    assert plan.place[0] in {4, 5}
    assert quality(given, around, plan).most <= 1.1
