"""The walks of docs/architecture.md, traced: whoever reads the page reads what the product does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.walks import walk_of

PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
MOST = 25
WALKS = {"A filter is taken out": "apply, one filter removed", "Somebody has changed a consumer": "hint, repair"}


def stations(title: str) -> list[str]:
    """What the page says, in its order."""
    section = PAGE.read_text(encoding="utf-8").partition(f"**{title}")[2]
    table = section.partition("\n\n| |")[2].partition("\n\n")[0]
    return re.findall(r"^\| \d+ \| `([\w.]+:[\w.]+)` \|", table, re.MULTILINE)


def missed(wanted: list[str], trail: list[str]) -> Iterator[str]:
    """The stations that are not passed behind the one before."""
    left = iter(trail)
    for one in wanted:
        if one not in left:
            yield one
            return


@pytest.mark.parametrize(("title", "walk"), WALKS.items(), ids=WALKS.values())
def test_it_passes_the_stations_of_the_page_in_their_order(tmp_path: Path, title: str, walk: str) -> None:
    wanted = stations(title)
    assert 15 < len(wanted) <= MOST
    trail = walk_of(walk, tmp_path).trail
    assert list(missed(wanted, trail)) == []
    assert list(missed(wanted[::-1], trail)) != []


def test_it_has_no_more_words_than_anybody_can_keep() -> None:
    words = PAGE.read_text(encoding="utf-8").partition("## Words")[2].partition("\n## ")[0]
    assert 20 < len(re.findall(r"^\| [a-z]", words, re.MULTILINE)) - 1 <= 40
