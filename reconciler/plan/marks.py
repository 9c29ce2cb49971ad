"""What is said of marks that do not count: none, one that came along with a copy, and one that makes no sense."""

from __future__ import annotations

from reconciler.plan.change import Reason
from reconciler.plan.scene import Seen

_ADOPT = 'take it over with --adopt or the annotation `reconciler/adopt: "true"`'
TAKE_OUT = "take `reconciler.residue`, `reconciler.procedure` and `reconciler.source` out of its metadata, and it is as if new"
_SHOWN = 80


def not_owned(seen: Seen) -> Reason:
    """Why it is left alone: it carries no mark, or one that came along when somebody copied another resource."""
    if named := seen.named_otherwise:
        return Reason("not-owned", f"its marker was written for {named[:_SHOWN]!r}: it is a copy of that, and nobody's", _ADOPT)
    return Reason("not-owned", "it exists and carries no marker of ours", _ADOPT)


def damage(seen: Seen) -> Reason | None:
    """What makes no sense in its mark, which then says nothing about how it came to be as it is."""
    damaged = seen.marker.damaged if seen.special else ""
    return Reason("damaged-mark", f"what our mark on it says makes no sense: {damaged}", TAKE_OUT) if damaged else None
