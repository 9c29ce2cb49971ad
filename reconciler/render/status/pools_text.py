"""The worker pools of a status document as people read them: one line each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rich.text import Text

from reconciler.render.values import ago, counted, printable

Json = Mapping[str, Any]


def pool_lines(rows: Iterable[Json], now: int) -> Iterator[Text]:
    """Nothing without pools; what is held back is marked."""
    rows = list(rows)
    if not rows:
        return
    yield Text()
    yield Text("Pools:")
    for row in rows:
        yield Text(f"{printable(row['key'])}  {_loaded(row, now)}")
        if row.get("heldBack"):
            yield Text(f"  the newest files do not count, this stays: {printable(row['heldBack'])}", style="bold red")


def _loaded(row: Json, now: int) -> str:
    if row["loadedAt"] is None:
        return "nothing was loaded yet"
    number = "" if row["generation"] is None else f"generation {row['generation']}, "
    text = f"{number}loaded {ago(row['loadedAt'], now)}: "
    text += f"{counted(row['workers'], 'worker')}, {counted(row['subjects'], 'subject')}"
    changes = ", ".join(f"{row[name]} {name}" for name in ("moved", "new", "retired"))
    since = "" if row["before"] is None else f" since generation {row['before']}"
    return f"{text}; {changes}{since}"
