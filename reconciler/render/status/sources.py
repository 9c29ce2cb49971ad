"""How a source is shown in a status document: one row per entry.

Invariant: what is not known is null.
"""

from __future__ import annotations

from typing import Any

from reconciler.model import units
from reconciler.model.identity import Key
from reconciler.sources.graph.topology import IMPORTED
from reconciler.sources.health import SourceHealth
from reconciler.sources.look import Entrance

Json = dict[str, Any]


def source_row(entrance: Entrance, health: SourceHealth) -> Json:
    """One entry as the document has it."""
    pause = health.pause
    return {
        "key": str(entrance.aggregate.resource_key),
        "origin": str(origin_shown(entrance)),
        "kind": "mirror" if entrance.mirror else "source",
        "mode": entrance.mode.value,
        "consumer": entrance.consumer or None,
        "declaredConsumer": entrance.meant or None,
        "state": health.state.value,
        "cause": health.cause.value if health.cause else None,
        "message": health.message,
        "since": units.format_time(health.since) if health.since else None,
        "stalledSince": units.format_time(health.stalled_since) if health.stalled_since else None,
        "lastSequence": health.copied,
        "pending": health.pending,
        "activeSeconds": round(health.silent_for / units.SECOND, 3) if health.silent_for is not None else None,
        "pausedUntil": (pause.until or None) if pause else None,
        "pausedBy": pause.by if pause else None,
        "error": health.error or None,
    }


def origin_shown(entrance: Entrance) -> Key:
    """The stream that is copied, behind an import as well."""
    behind = (entrance.entry.get("external") or {}).get("api", "")
    return entrance.origin or Key("Stream", entrance.entry["name"], "", f"{IMPORTED}{behind}")
