"""How much a server takes: requests of so many bytes, and so many consumers of a stream.

2.15 stops at 1,000 consumers unless the stream says otherwise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from reconciler.model.identity import Key
from reconciler.plan.change import Action, Change, Reason
from reconciler.plan.scene import Scene

_UNDECLARED_LIMIT = 1000
_LEVEL_OF_THAT_LIMIT = 5
_LEVEL_THAT_CHANGES_IT = 2
_AROUND = 200
"""Bytes of a request around a configuration, about: its exact size is checked before it is sent."""


def _limit(scene: Scene, stream: Key) -> int | None:
    declared, live = scene.streams.get(stream), scene.live.streams.get(stream)
    config = declared.config if declared else live.config if live else {}
    limit = config.get("max_consumers") or -1
    if limit > 0:
        return int(limit)
    return _UNDECLARED_LIMIT if scene.live.server.level >= _LEVEL_OF_THAT_LIMIT else None


def within(scene: Scene, changes: Iterable[Change]) -> list[Change]:
    """The changes, with those blocked that are too large to send, and consumer creations on streams that would get too many."""
    result = [_sendable(scene, change) for change in changes]
    creates = Counter(c.key.stream_key for c in result if c.key.kind == "Consumer" and c.action is Action.CREATE)
    over: dict[Key, Reason] = {}
    for stream, number in creates.items():
        limit, total = _limit(scene, stream), number + sum(not c.server_made for c in scene.live.consumers_of(stream).values())
        if limit is not None and total > limit:
            message = f"{stream} would have {total:,} consumers; the server accepts {limit:,}"
            over[stream] = Reason("max-consumers", message, _way_out(scene, stream, total))
    return [
        c.blocked(over[c.key.stream_key])
        if c.key.kind == "Consumer" and c.action is Action.CREATE and c.key.stream_key in over
        else c
        for c in result
    ]


def _way_out(scene: Scene, stream: Key, total: int) -> str:
    fixed = stream in scene.live.streams and scene.live.server.level < _LEVEL_THAT_CHANGES_IT
    first = "upgrade the server to 2.12 or newer, which can change it; then " if fixed else ""
    return f"{first}declare maxConsumers: {total} (or more) on the stream"


def _sendable(scene: Scene, change: Change) -> Change:
    size, most = len(change.config) + _AROUND, scene.live.server.max_payload
    if not most or size <= most or change.action is Action.BLOCKED:
        return change
    message = f"it takes {size:,} bytes to write, and the server takes {most:,} (max_payload)"
    return change.blocked(Reason("too-large", message, "declare less in one resource, or raise the server's max_payload"))
