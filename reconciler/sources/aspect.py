"""What the planner is handed of this room."""

from __future__ import annotations

from reconciler.plan.aspect import Aspect
from reconciler.sources.change import resolve

SOURCES = Aspect("sources", resolve)
