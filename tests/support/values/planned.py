"""Plans as the engine makes them: with every aspect that it hands to the planner."""

from __future__ import annotations

from functools import partial

from reconciler.engine.planning import ASPECTS
from reconciler.plan.plan import plan as plan_of

plan = partial(plan_of, aspects=ASPECTS)
