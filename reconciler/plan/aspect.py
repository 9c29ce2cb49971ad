"""How a tenant plugs into the planner, which knows none of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from reconciler.model.identity import Key
from reconciler.plan.change import Change
from reconciler.plan.scene import Scene


@dataclass(frozen=True, slots=True)
class Aspect:
    """One side of what is declared that more than one resource has to do with."""

    name: str
    resolve: Callable[[Scene, Iterable[Key], Iterable[Change]], list[Change]]
    """The changes, with those of these streams made whole; pure."""
