"""What is said of marks that do not count: none, one that came along with a copy, and one that makes no sense."""

from __future__ import annotations

from collections.abc import Iterable

from reconciler.model.marker import PROCEDURE, RESIDUE, SOURCE
from reconciler.plan.change import Reason
from reconciler.plan.scene import Seen

_ADOPT = 'take it over with --adopt or the annotation `reconciler/adopt: "true"`'
_FORGOTTEN = "and it is as if new: what it was in the middle of is forgotten, and messages may come again"
_REMEMBERS = (RESIDUE, PROCEDURE, SOURCE)
_SHOWN = 80


def not_owned(seen: Seen) -> Reason:
    """Why it is left alone: it carries no mark, or one that came along when somebody copied another resource."""
    if named := seen.named_otherwise:
        return Reason("not-owned", f"its marker was written for {named[:_SHOWN]!r}: it is a copy of that, and nobody's", _ADOPT)
    return Reason("not-owned", "it exists and carries no marker of ours", _ADOPT)


def damage(seen: Seen) -> Reason | None:
    """What makes no sense in its mark, which then says nothing about how it came to be as it is."""
    damaged = seen.marker.damaged if seen.special else {}
    told = " and ".join(f"{entry}: {what}" for entry, what in damaged.items())
    return Reason("damaged-mark", f"what our mark on it says makes no sense: {told}", take_out(damaged)) if damaged else None


def take_out(entries: Iterable[str] = _REMEMBERS) -> str:
    """The way out of a mark with entries that make no sense, or of which it is not known which of them does not."""
    return f"take {' and '.join(f'`{entry}`' for entry in entries)} out of its metadata, {_FORGOTTEN}"
