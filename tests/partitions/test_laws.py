"""What holds for every plan, whatever the tables say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
from hypothesis import event, given, settings
from hypothesis import strategies as st

from reconciler.partitions.planning.columns import sums
from reconciler.partitions.planning.keys import Keys
from reconciler.partitions.planning.model import ABSENT, NEW, Items, PlanningRules, Workers
from reconciler.partitions.planning.planner import CapExceeded, PartitionPlan, plan_locally
from tests.support.partitions.pools import UNIT, shuffled

EXAMPLES = 100


@st.composite
def problems(draw: st.DrawFn) -> tuple[Items, Workers, PlanningRules, pa.Array | None]:
    """Tables as odd as they may be."""
    zones = draw(st.sampled_from(["ignore", "ignore", "hard", "soft"]))
    number = draw(st.integers(1, 8))
    zone_count = draw(st.integers(1, min(3, number))) if zones != "ignore" else 0
    around = Workers(
        names=tuple(f"w{rank}" for rank in range(number)),
        capacity=tuple(
            draw(st.lists(st.sampled_from([UNIT, UNIT, UNIT, 2 * UNIT, UNIT // 3]), min_size=number, max_size=number))
        ),
        slots=tuple(draw(st.lists(st.sampled_from([6, 12, 40, 10**6]), min_size=number, max_size=number))),
        active=tuple(draw(st.lists(st.sampled_from([True, True, True, False]), min_size=number, max_size=number))),
        zone=tuple(rank % zone_count if zone_count else -1 for rank in range(number)),
        fresh=tuple(draw(st.lists(st.booleans(), min_size=number, max_size=number))),
    )
    count = draw(st.integers(0, 60))
    weight = st.one_of(st.integers(1, 20).map(lambda w: w * UNIT), st.just(UNIT), st.integers(1, 2**40))
    weights = np.array(draw(st.lists(weight, min_size=count, max_size=count)), dtype=np.int64)
    homes = st.integers(ABSENT, number - 1) if draw(st.booleans()) else st.just(NEW)
    home = np.array(draw(st.lists(homes, min_size=count, max_size=count)), dtype=np.int32)
    active = [rank for rank in range(number) if around.active[rank]] or [-1]
    pin = np.full(count, -1, dtype=np.int32)
    zone = np.array([row % zone_count if zone_count else -1 for row in range(count)], dtype=np.int32)
    unit = None
    if draw(st.booleans()):
        names = draw(st.lists(st.sampled_from([None, "a", "b", "c", "d", "e"]), min_size=count, max_size=count))
        names = [name and f"{name}{zone[row]}" for row, name in enumerate(names)]
        unit = pa.array(names, pa.string())
    elif zones != "hard" and draw(st.booleans()):
        pin = np.array(draw(st.lists(st.sampled_from([-1, -1, -1, *active]), min_size=count, max_size=count)), dtype=np.int32)
    trigger = draw(st.sampled_from([100_000, 50_000, 0]))
    rules = PlanningRules(trigger, min(trigger, 50_000), draw(st.booleans()), None, zones)
    keys = Keys([f"s.{row}" for row in range(count)])
    return Items(keys, weights, np.ones(count, dtype=np.int64), home, pin, zone), around, rules, unit


def planned(problem: tuple[Items, Workers, PlanningRules, pa.Array | None]) -> PartitionPlan | None:
    """The plan, which checks itself; None when there is no room."""
    try:
        return plan_locally(*problem)
    except CapExceeded:
        event("no room")
        return None


@settings(max_examples=EXAMPLES)
@given(problems())
def test_every_plan_keeps_every_rule(problem: tuple[Items, Workers, PlanningRules, pa.Array | None]) -> None:
    partitions, around, _, unit = problem
    plan = planned(problem)
    if plan is None:
        return
    assert len(plan.place) == len(partitions)
    for rank in range(len(around)):
        assert (plan.place == rank).sum() <= around.slots[rank]
        assert around.active[rank] or not (plan.place == rank).any()
    pinned = partitions.pin >= 0
    assert (plan.place[pinned] == partitions.pin[pinned]).all()
    if unit is not None:
        for name in set(unit.to_pylist()) - {None}:
            assert len(set(plan.place[[row for row, other in enumerate(unit.to_pylist()) if other == name]])) == 1


@settings(max_examples=EXAMPLES)
@given(problems())
def test_planned_again_nothing_moves(problem: tuple[Items, Workers, PlanningRules, pa.Array | None]) -> None:
    partitions, around, rules, unit = problem
    plan = planned(problem)
    if plan is None:
        return
    settled = replace(around, fresh=(False,) * len(around))
    again = plan_locally(partitions.at(plan.place), settled, rules, unit)
    assert (again.place == plan.place).all()


@settings(max_examples=EXAMPLES)
@given(problems(), st.randoms(use_true_random=False))
def test_the_order_of_rows_means_nothing(problem: tuple[Items, Workers, PlanningRules, pa.Array | None], random: object) -> None:
    partitions, around, rules, unit = problem
    plan = planned(problem)
    order = np.arange(len(partitions), dtype=np.int64)
    random.shuffle(order)  # type: ignore[attr-defined]  # a random.Random
    other = planned((*shuffled(partitions, unit, order)[:1], around, rules, shuffled(partitions, unit, order)[1]))
    assert (plan is None) == (other is None)
    if plan is not None and other is not None:
        assert (other.place == plan.place[order]).all()
        assert (other.reason == plan.reason[order]).all()
        assert (other.bounds, other.held_by, other.share) == (plan.bounds, plan.held_by, plan.share)


@settings(max_examples=EXAMPLES)
@given(problems())
def test_a_reason_is_given_for_every_move_and_for_nothing_else(
    problem: tuple[Items, Workers, PlanningRules, pa.Array | None],
) -> None:
    partitions = problem[0]
    plan = planned(problem)
    if plan is not None:
        assert ((plan.place != partitions.home) == (plan.reason != 0)).all()


@settings(max_examples=EXAMPLES)
@given(problems(), st.integers(0, 10**8))
def test_a_budget_is_kept(problem: tuple[Items, Workers, PlanningRules, pa.Array | None], budget: int) -> None:
    partitions, around, rules, unit = problem
    if unit is not None or rules.zones != "ignore" or not len(partitions):
        return
    calm = PlanningRules(100_000, 50_000, fill=False, budget=0, shed=False)
    try:
        least = plan_locally(partitions, around, calm)
        plan = plan_locally(partitions, around, replace(rules, budget=budget))
    except CapExceeded:
        return
    inevitable = moved(partitions, least)
    assert moved(partitions, plan) <= max(inevitable, budget) + int(partitions.weight.max())


def moved(partitions: Items, plan: PartitionPlan) -> int:
    """The weight that is elsewhere than before."""
    return int(partitions.weight[(plan.place != partitions.home) & (partitions.home != NEW)].sum())


@settings(max_examples=EXAMPLES)
@given(st.lists(st.integers(1, 50), min_size=200, max_size=300), st.integers(2, 4), st.integers(0, 3))
def test_small_partitions_move_hardly_more_than_they_must(weights: list[int], before: int, more: int) -> None:
    count = len(weights)
    keys = Keys([f"s.{row}" for row in range(count)])
    nowhere = np.full(count, -1, dtype=np.int32)
    whole = np.array(weights, dtype=np.int64) * UNIT
    around = Workers(
        tuple("abcdefg"[: before + more]),
        (UNIT,) * (before + more),
        (10**6,) * (before + more),
        (True,) * (before + more),
        (-1,) * (before + more),
        tuple(rank >= before for rank in range(before + more)),
    )
    start = Items(keys, whole, np.ones(count, dtype=np.int64), (np.arange(count) % before).astype(np.int32), nowhere, nowhere)
    plan = plan_locally(start, around, PlanningRules(100_000, 50_000, fill=True))
    load = sums(whole, plan.place, before + more)
    assert load.max() <= 1.1 * load.mean() + 1
    assert plan.bounds.moved <= moved(start, plan) <= 1.05 * plan.bounds.moved + 2 * 50 * UNIT
