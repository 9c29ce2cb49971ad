"""One group of workers and the items that belong to it: keep, shed, deal.

| step | what it does |
|---|---|
| fixed | pins go where they must, giants get a worker each; the rest of the weight and of the workers make the share |
| leave | what is new, or whose worker is gone, drains or may not have it, is in the pool |
| shed | who is over the trigger gives away down to the target; for fresh workers others give down to one level |
| cap | who has too many subjects gives away the lightest |
| deal | the pool is dealt out: heavy items one by one, light ones by rank |

A plan that leaves somebody over the trigger is planned again from where it led to, and large items change places, as long as that
makes it better: so a plan that nothing can make better moves nothing.

Invariant: what comes out depends on the values that came in, never on their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from reconciler.partitions.planning.columns import among, filters_at, load_at, need_listed, sums
from reconciler.partitions.planning.dealing import NoRoom, RoundTable, deal_heavy, deal_light
from reconciler.partitions.planning.fixed import Fixed, find_fixed
from reconciler.partitions.planning.giving import Giving, find_giving, least_given
from reconciler.partitions.planning.model import (
    ABSENT,
    NEW,
    Bounds,
    Ints,
    Items,
    Mask,
    MoveReason,
    NotListed,
    PlanningRules,
    Ranks,
    Solved,
    Workers,
)
from reconciler.partitions.planning.shedding import Give, choose, over_the_cap
from reconciler.partitions.planning.swapping import swap

_MOST_ROUNDS = 16
_MUCH = 20
HEAVY = 25_000
"""Millionths of the average share from which on an item is dealt by itself: half of the usual target, so that the light ones
cannot push a worker over it."""


@dataclass(slots=True)
class _Sheet:
    """Where everything is while a plan is being made: -1 is the pool."""

    place: Ranks
    reason: npt.NDArray[np.int8]
    movable: Mask
    """What may still be given away."""

    def release(self, rows: Ints, reason: MoveReason) -> None:
        """Into the pool."""
        self.place[rows] = -1
        self.reason[rows] = reason
        self.movable[rows] = False


def solve(items: Items, workers: Workers, rules: PlanningRules, group: tuple[int, ...]) -> Solved:
    """The plan of a group; `group` are the ranks of its workers."""
    first = _attempt(items, workers, rules, group)
    if _overload(items, workers, rules, first) == 0:
        return first if rules.budget is not None or not _much(items, first) else _in_two(items, workers, rules, group, first)
    calm = _attempt(items, workers, replace(rules, shed=False, fill=False), group)
    best = min(calm, first, key=lambda solved: _overload(items, workers, rules, solved) + _lack(items, workers, rules, solved))
    best = improve(items, workers, rules, group, best)
    return replace(best, bounds=first.bounds, filling=first.filling)


def improve(items: Items, workers: Workers, rules: PlanningRules, group: tuple[int, ...], best: Solved) -> Solved:
    """The best of three ways from a plan that leaves somebody over the trigger, and what holds it."""
    linked = replace(rules, chains=True)
    settled = [
        _settled(items, workers, rules, group, best),
        _settled(items, workers, linked, group, best),
        _settled(items, workers, linked, group, _swapped(items, workers, linked, best)),
    ]
    best = min(settled, key=lambda solved: (_overload(items, workers, rules, solved), _moved(items, solved)))
    return replace(best, held_by=_held_by(items, workers, rules, best))


def _much(items: Items, solved: Solved) -> bool:
    """More than a twentieth above the bound: items are large, and what was given to be under the trigger was more than meant."""
    return above(_moved(items, solved), solved.bounds)


def above(moved: int, bounds: Bounds) -> bool:
    """Whether so much is more than a twentieth above the bound."""
    return _MUCH * moved > (_MUCH + 1) * bounds.moved


def _in_two(items: Items, workers: Workers, rules: PlanningRules, group: tuple[int, ...], first: Solved) -> Solved:
    """First what is over the trigger, then what fresh workers still lack; the first plan, if that is not better."""
    shed = _attempt(items, workers, replace(rules, fill=False), group)
    filled = _attempt(items.at(shed.place), workers, replace(rules, shed=False), group)
    found = _following(items, shed, filled)
    lacking, before = (_lack(items, workers, rules, solved) for solved in (found, first))
    if _overload(items, workers, rules, found) or _moved(items, found) + lacking >= _moved(items, first) + before:
        return first
    return replace(found, bounds=lowered(first.bounds, lacking - before))


def lowered(bounds: Bounds, lack: int) -> Bounds:
    """The bound of a plan that leaves fresh workers so much more to lack."""
    return replace(bounds, moved=max(bounds.forced, bounds.moved - max(0, lack)))


def _settled(items: Items, workers: Workers, rules: PlanningRules, group: tuple[int, ...], best: Solved) -> Solved:
    """Until neither planning again nor changing places makes it better."""
    for _ in range(_MOST_ROUNDS):
        best = _again(items, workers, rules, group, best)
        swapped = _swapped(items, workers, rules, best)
        if (swapped.place == best.place).all():
            break
        best = swapped
    return best


def _moved(items: Items, solved: Solved) -> int:
    unlisted = 0 if items.rest is None else items.rest.moved
    return unlisted + int(items.weight[(solved.place != items.home) & (items.home != NEW)].sum())


def _again(items: Items, workers: Workers, rules: PlanningRules, group: tuple[int, ...], best: Solved) -> Solved:
    """The same from where it led to, as long as that makes it better."""
    for _ in range(_MOST_ROUNDS):
        now = replace(rules, fill=False, budget=_left(items, best, rules.budget))
        later = _attempt(items.at(best.place), workers, now, group)
        if _overload(items, workers, rules, later) >= _overload(items, workers, rules, best):
            break
        best = _following(items, best, later)
    return best


def _swapped(items: Items, workers: Workers, rules: PlanningRules, best: Solved) -> Solved:
    """Large items in other places; with a budget nobody knows whether that is worth it."""
    large = (items.pin < 0) & among(best.place, best.share, len(workers))
    if rules.budget is not None or not best.share:
        return best
    share = next(iter(best.share.values()))
    heavy = heavy_above(share.weight, len(best.share))
    if items.rest is not None and (items.rest.large is None or items.rest.large > heavy):
        raise NotListed(large=heavy)
    large &= items.weight > heavy
    place = swap(items, workers, best, np.flatnonzero(large), rules)
    return _following(items, best, replace(best, place=place, reason=np.full(len(items), MoveReason.OVERLOAD, dtype=np.int8)))


def heavy_above(weight: int, receivers: int) -> int:
    """The weight above which an item is dealt by itself."""
    return HEAVY * weight // (max(1, receivers) * 1_000_000)


def _grain(items: Items, sheet: _Sheet, fixed: Fixed) -> int:
    """The lightest item that may move, if it is light: nobody is filled with parts of one."""
    lightest = int(items.weight[sheet.movable].min(initial=np.iinfo(np.int64).max))
    return grain_of(lightest, fixed)


def grain_of(lightest: int, fixed: Fixed) -> int:
    """By what fresh workers are filled, from the lightest item that may move."""
    return lightest if lightest <= heavy_above(fixed.share.weight, len(fixed.receivers)) else 1


def _attempt(items: Items, workers: Workers, rules: PlanningRules, group: tuple[int, ...]) -> Solved:
    fixed = find_fixed(items, workers, rules, group)
    sheet = _start(items, workers, fixed, group)
    forced = int(items.weight[(sheet.place == -1) & (items.home != NEW)].sum())
    forced += int(items.weight[(sheet.place >= 0) & (items.home != NEW) & (sheet.place != items.home)].sum())
    need_listed(items, (k for k in group if not workers.active[k]))
    draining = np.flatnonzero(sheet.movable & ~among(sheet.place, [k for k in group if workers.active[k]], len(workers)))
    left = None if rules.budget is None else max(0, rules.budget - forced)
    forced += int(items.weight[draining].sum())
    waiting, left = _drain(items, workers, sheet, draining, left)
    load = load_at(items, sheet.place, len(workers))
    pool = int(items.weight[sheet.place == -1].sum())
    grain = _grain(items, sheet, fixed) if rules.fill else 1
    giving = find_giving(workers, replace(rules, budget=left), fixed, load, (pool, grain))
    bound = _shed(items, workers, sheet, giving, rules)
    _trim(items, workers, sheet)
    _deal(items, workers, rules, fixed, sheet)
    bound = max(bound, _filled(items, workers, fixed, load, sheet) - pool if rules.fill else 0)
    sheet.reason[sheet.place == items.home] = MoveReason.STAYS
    for home, reason in ((NEW, MoveReason.NEW), (ABSENT, MoveReason.ABSENT)):
        sheet.reason[items.home == home] = reason
    return Solved(
        sheet.place,
        sheet.reason,
        dict.fromkeys(fixed.receivers, fixed.share),
        tuple(fixed.giants),
        fixed.hosts,
        dict(fixed.load),
        Bounds(forced, forced + bound),
        waiting=waiting + giving.waiting,
        filling=frozenset(k for k in fixed.receivers if workers.fresh[k]) if giving.waiting else frozenset(),
    )


def _start(items: Items, workers: Workers, fixed: Fixed, group: tuple[int, ...]) -> _Sheet:
    """Everything at its home, but what has to be elsewhere."""
    place = items.home.copy()
    place[place < 0] = -1
    sheet = _Sheet(place, np.zeros(len(items), dtype=np.int8), place >= 0)
    sheet.release(np.flatnonzero((place >= 0) & ~among(place, group, len(workers))), MoveReason.ZONE)
    pinned = np.flatnonzero(items.pin >= 0)
    sheet.place[pinned] = items.pin[pinned]
    sheet.reason[pinned] = MoveReason.PIN
    sheet.movable[pinned] = False
    for row, worker in fixed.giants.items():
        sheet.place[row] = worker
        sheet.reason[row] = MoveReason.GIANT
        sheet.movable[row] = False
    return sheet


def _drain(items: Items, workers: Workers, sheet: _Sheet, rows: Ints, left: int | None) -> tuple[int, int | None]:
    """Everything leaves draining workers, or what the budget allows, worker by worker; what has to wait, and what is left."""
    if left is None:
        sheet.release(rows, MoveReason.DRAINING)
        return 0, None
    load = sums(items.weight[rows], sheet.place[rows], len(workers))
    gives, waiting = {}, 0
    for worker in np.flatnonzero(load).tolist():
        may = min(int(load[worker]), left)
        gives[worker] = Give(0, may, workers.capacity[worker])
        left -= may
    gone = choose(items, rows, gives, len(workers), up=False)
    waiting = int(items.weight[rows].sum()) - int(items.weight[gone].sum())
    sheet.release(gone, MoveReason.DRAINING)
    return waiting, left


def _shed(items: Items, workers: Workers, sheet: _Sheet, giving: Giving, rules: PlanningRules) -> int:
    """Releases what is given away; the least that any plan would have had to give."""
    if not giving.gives:
        return 0
    need_listed(items, giving.gives)
    rows = np.flatnonzero(sheet.movable & among(sheet.place, giving.gives, len(workers)))
    bound = least_given(items, rows[among(sheet.place[rows], giving.over, len(workers))], giving.over, len(workers))
    gone = choose(items, rows, giving.gives, len(workers), up=rules.budget is None)
    overloaded = among(sheet.place[gone], giving.over, len(workers))
    sheet.release(gone[overloaded], MoveReason.OVERLOAD)
    sheet.release(gone[~overloaded], MoveReason.FILL)
    return bound


def _trim(items: Items, workers: Workers, sheet: _Sheet) -> None:
    """Nobody keeps more subjects than it may."""
    filters = filters_at(items, sheet.place, len(workers)).tolist()
    excess = {worker: filters[worker] - slots for worker, slots in enumerate(workers.slots) if filters[worker] > slots}
    need_listed(items, excess)
    sheet.release(over_the_cap(items, np.flatnonzero(sheet.movable), excess, len(workers)), MoveReason.CAP)


def _deal(items: Items, workers: Workers, rules: PlanningRules, fixed: Fixed, sheet: _Sheet) -> None:
    """Hosts get something only where nobody else has room."""
    pool = np.flatnonzero(sheet.place == -1)
    if not len(pool):
        return
    try:
        _deal_among(items, pool, fixed.receivers, workers, (rules, fixed, sheet))
    except NoRoom:
        if not fixed.hosts:
            raise
        sheet.place[pool] = -1
        _deal_among(items, pool, (*fixed.receivers, *sorted(fixed.hosts)), workers, (rules, fixed, sheet))


def _deal_among(items: Items, pool: Ints, to: Iterable[int], workers: Workers, how: tuple[PlanningRules, Fixed, _Sheet]) -> None:
    rules, fixed, sheet = how
    load = load_at(items, sheet.place, len(workers)).tolist()
    filters = filters_at(items, sheet.place, len(workers)).tolist()
    lacking = {k: fixed.share_of(k, workers) - load[k] for k in to if rules.fill and workers.fresh[k]}
    table = RoundTable(
        workers,
        {worker: load[worker] for worker in to},
        {worker: max(0, workers.slots[worker] - filters[worker]) for worker in to},
        {worker: much for worker, much in lacking.items() if much > 0},
    )
    heavy = items.weight[pool] > heavy_above(fixed.share.weight, len(fixed.receivers))
    for row, worker in deal_heavy(items, pool[heavy], table).items():
        sheet.place[row] = worker
    if not heavy.all():
        deal_light(items, pool[~heavy], table, sheet.place)


def _filled(items: Items, workers: Workers, fixed: Fixed, before: Ints, sheet: _Sheet) -> int:
    """What fresh workers got, up to their share: no plan that fills them so far can do with less."""
    after = load_at(items, sheet.place, len(workers)).tolist()
    fresh = [k for k in fixed.receivers if workers.fresh[k]]
    return sum(max(0, min(after[k], fixed.share_of(k, workers)) - int(before[k])) for k in fresh)


def _overload(items: Items, workers: Workers, rules: PlanningRules, solved: Solved) -> int:
    return overload(load_at(items, solved.place, len(workers)).tolist(), workers, rules, solved)


def overload(load: Sequence[int], workers: Workers, rules: PlanningRules, solved: Solved) -> int:
    """The weight that is over the trigger, and over what hosts have to carry."""
    over: int = sum(max(0, load[k] - share.of(workers.capacity[k], rules.trigger)) for k, share in solved.share.items())
    beside: int = sum(max(0, load[host] - solved.fixed_load[host]) for host in solved.hosts)
    return over + beside


def _lack(items: Items, workers: Workers, rules: PlanningRules, solved: Solved) -> int:
    return lack(load_at(items, solved.place, len(workers)).tolist(), workers, rules, solved)


def lack(load: Sequence[int], workers: Workers, rules: PlanningRules, solved: Solved) -> int:
    """What fresh workers still lack."""
    if not rules.fill:
        return 0
    return sum(max(0, share.of(workers.capacity[k]) - load[k]) for k, share in solved.share.items() if workers.fresh[k])


def _left(items: Items, solved: Solved, budget: int | None) -> int | None:
    if budget is None:
        return None
    return max(0, budget - _moved(items, solved))


def _following(items: Items, best: Solved, later: Solved) -> Solved:
    """Two plans after each other as one."""
    reason = np.where(later.place != best.place, later.reason, best.reason)
    reason[later.place == items.home] = MoveReason.STAYS
    for home, why in ((NEW, MoveReason.NEW), (ABSENT, MoveReason.ABSENT)):
        reason[items.home == home] = why
    return replace(later, reason=reason)


def _held_by(items: Items, workers: Workers, rules: PlanningRules, solved: Solved) -> tuple[str, ...]:
    """What stands between this plan and its balance, if it has not reached it."""
    if _overload(items, workers, rules, solved) == 0:
        return ()
    held = []
    filters = filters_at(items, solved.place, len(workers)).tolist()
    load = load_at(items, solved.place, len(workers)).tolist()
    below = [k for k, share in solved.share.items() if load[k] < share.of(workers.capacity[k])]
    if below and all(filters[worker] >= workers.slots[worker] for worker in below):
        held.append("maxSubjects")
    if (items.pin >= 0).any() or (items.rest is not None and items.rest.pinned_filters.any()):
        held.append("pins")
    if solved.waiting:
        held.append("maxMoved")
    return tuple(held) or ("largePartitions",)
