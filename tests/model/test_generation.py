"""Which generation of a pool was last loaded whole, and what it moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from reconciler.model.desired import Desired
from reconciler.model.generation import Generation, Moves, following
from reconciler.model.identity import Key, Location
from reconciler.model.kinds.pool import Pool, Worker, WorkerPoolSpec

KEY = Key("WorkerPool", "p")
HERE = Location("p.yaml", 1, 0)


def pool(**workers: Sequence[str]) -> Pool:
    made = {name: Worker.of(name, list(subjects), HERE) for name, subjects in workers.items()}
    return Pool(KEY, WorkerPoolSpec(stream="DC"), b"{}", made, HERE)


def desired(number: int | None, given: Pool | None, held_back: str = "") -> Desired:
    return Desired(
        {},
        pools={"p": given} if given else {},
        generations={} if number is None else {KEY: number},
        held_back={KEY: held_back} if held_back else {},
    )


def after(*steps: Desired) -> Generation:
    known: Mapping[Key, Generation] = {}
    for now, step in enumerate(steps, 1):
        known = following(known, step, now)
    return known[KEY]


def test_the_first_one_moves_nothing() -> None:
    found = after(desired(1, pool(a=["x", "y"], b=[])))
    assert (found.number, found.subjects, found.moves, found.before, found.loaded_at) == (1, 2, Moves(), None, 1)


def test_moves_are_counted_against_the_one_before() -> None:
    found = after(desired(1, pool(a=["x", "y", "gone"], b=["z"])), desired(2, pool(a=["x"], b=["y", "z"], c=["new"])))
    assert (found.number, found.moves, found.before) == (2, Moves(1, 1, 1), 1)


def test_a_pool_without_an_index_has_no_number() -> None:
    found = after(desired(None, pool(a=["x"])), desired(None, pool(b=["x"])))
    assert (found.number, found.moves.moved, found.before) == (None, 1, None)


def test_the_same_again_is_the_same() -> None:
    assert after(desired(1, pool(a=["x"])), desired(1, pool(a=["x"]))).loaded_at == 1


def test_what_is_held_back_changes_nothing_and_is_said() -> None:
    first = desired(1, pool(a=["x"]))
    held = after(first, desired(None, pool(), "a: missing"))
    assert (held.number, held.subjects, held.loaded_at, held.held_back) == (1, 1, 1, "a: missing")
    assert after(first, desired(None, pool(), "a: missing"), first).held_back == ""
    later = after(first, desired(None, pool(), "a: missing"), desired(3, pool(b=["x"])))
    assert (later.number, later.moves.moved, later.before, later.held_back) == (3, 1, 1, "")


def test_what_was_never_all_there_has_nothing() -> None:
    found = after(desired(None, None, "a: missing"))
    assert (found.pool, found.number, found.loaded_at) == (None, None, 0)
    assert after(desired(None, None, "a: missing"), desired(1, pool(a=["x"]))).moves == Moves()


def test_a_pool_that_is_gone_is_forgotten() -> None:
    assert following(following({}, desired(1, pool(a=["x"])), 1), Desired({}), 2) == {}


@pytest.mark.parametrize(
    ("before", "now", "moves"),
    [
        ({"a": ["d.x.1", "d.x.2"], "b": []}, {"a": ["d.x.>"], "b": []}, Moves()),
        ({"a": ["d.x.1", "d.x.2"], "b": []}, {"a": [], "b": ["d.x.>"]}, Moves(moved=1)),
        ({"a": ["d.x.1", "d.y.1"], "b": ["d.x.2"]}, {"a": ["d.x.>"], "b": ["d.z.>"]}, Moves(moved=1, new=1, retired=1)),
        ({"a": ["d.x.>"], "b": []}, {"a": ["d.x.1"], "b": ["d.x.2"]}, Moves(moved=1)),
        ({"a": ["d.x.>"], "b": ["d.y.>"]}, {"a": ["d.y.>"], "b": []}, Moves(moved=1, retired=1)),
    ],
)
def test_what_a_filter_with_wildcards_takes_over_is_neither_new_nor_retired(
    before: dict[str, list[str]], now: dict[str, list[str]], moves: Moves
) -> None:
    assert after(desired(1, pool(**before)), desired(2, pool(**now))).moves == moves
