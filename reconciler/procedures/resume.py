"""From a journal back to the machine that goes on with it.

Invariant: whatever the manifest says by now, a half-done procedure is finished first, towards the target of today.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reconciler.procedures import filter_add, recreate_consumer, restore_consumer
from reconciler.procedures.consumer import ConsumerSeen, ConsumerTarget, immutable_differences
from reconciler.procedures.filter_add import FilterAdd
from reconciler.procedures.machine import Procedure
from reconciler.procedures.recreate_consumer import RecreateConsumer
from reconciler.procedures.restore_consumer import RestoreConsumer


def resume(target: ConsumerTarget, info: Mapping[str, Any]) -> Procedure | None:
    """The machine for a consumer whose INFO carries a journal; None without one, or with one we do not know.

    A hold without its consumer needs no journal of the latter: that is always `RecreateConsumer`.
    """
    seen = ConsumerSeen(dict(info))
    name = seen.journal.name if seen.journal else ""
    if name == restore_consumer.NAME:
        return RestoreConsumer(target, floor=None)
    if name == recreate_consumer.NAME:
        return RecreateConsumer(target)
    if name == filter_add.NAME:
        return RecreateConsumer(target) if immutable_differences(seen.config, target) else FilterAdd(target)
    return None
