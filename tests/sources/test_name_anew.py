"""How a durable is called whose origin was made anew."""

from __future__ import annotations

from reconciler.model.residue import SOURCES, Residue
from reconciler.sources.entries import name_anew

FIRST, SECOND, THIRD = (f"2026-01-0{day}T00:00:00Z" for day in (1, 2, 3))


def test_it_is_the_declared_name_with_one_suffix_however_often_that_happens() -> None:
    names = ["to_all"]
    for day in range(1, 29):
        names.append(name_anew("to_all", names[-1], f"2026-01-{day:02}T00:00:00Z"))
        assert Residue(SOURCES, _entry(names[-1]), _entry("to_all")).in_shape, "which another process has to understand"
    assert all(name.startswith("to_all-") and name.count("-") == 1 and len(name) <= len("to_all-") + 16 for name in names[1:])
    assert len({*names}) == len(names)


def test_a_name_that_was_made_for_this_origin_stays() -> None:
    once = name_anew("c", "c", FIRST)
    assert name_anew("c", once, FIRST) == once
    twice = name_anew("c", once, SECOND)
    assert name_anew("c", twice, SECOND) == twice


def test_an_origin_that_comes_back_from_a_backup_gets_no_name_of_before() -> None:
    names = ["c"]
    for created in (FIRST, SECOND, FIRST, THIRD, SECOND, FIRST, SECOND):
        names.append(name_anew("c", names[-1], created))
    assert len({*names}) == len(names)


def test_names_of_an_earlier_version_that_grew_are_known_and_grow_no_more() -> None:
    first, second = (name_anew("c", "c", created).removeprefix("c") for created in (FIRST, SECOND))
    grown = f"c{first}{second}"
    assert name_anew("c", grown, SECOND) == grown
    assert name_anew("c", grown, FIRST) not in (grown, f"c{first}", f"c{second}")
    assert name_anew("c", grown, FIRST).count("-") == 1


def _entry(durable: str) -> dict[str, object]:
    return {"name": "S", "consumer": {"name": durable, "deliver_subject": "d"}}
