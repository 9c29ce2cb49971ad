"""A fault about one key blocks that key and nobody else: what is live was written by anybody, and may be anything.

Invariant: an exception never gets lost: the key is blocked with what was raised, and the trace stands in the plan for the log.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import TypeVar

from reconciler.model.identity import Key
from reconciler.plan.change import Action, Cause, Change, Reason
from reconciler.plan.marks import take_out
from reconciler.plan.scene import Scene

T = TypeVar("T")

_NEWS = "tell us what the log says about it; everything else goes on"


def guarded(scene: Scene, key: Key, work: Callable[[], T]) -> T | Change:
    """What comes of the work on one key, or the change that says why nothing does."""
    try:
        return work()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is about this key alone
        scene.faults[key] = traceback.format_exc()
        return _blocked(scene, key, error)


def _blocked(scene: Scene, key: Key, error: Exception) -> Change:
    seen = scene.seen(key)
    if seen is not None and seen.special:
        reason = Reason("damaged-mark", f"what our mark on it says makes no sense ({error!r})", take_out())
    else:
        reason = Reason("internal-error", f"a bug in reconciler: {error!r}", _NEWS)
    return Change(key=key, action=Action.BLOCKED, cause=Cause.UNKNOWN, reasons=(reason,))
