"""How many consumers a stream may have: 2.15 stops at 1,000 unless the stream says otherwise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from reconciler.model.identity import Key
from reconciler.plan.change import Action, Change, Reason
from reconciler.plan.scene import Scene

_UNDECLARED_LIMIT = 1000
_LEVEL_OF_THAT_LIMIT = 5


def _limit(scene: Scene, stream: Key) -> int | None:
    declared, live = scene.streams.get(stream), scene.live.streams.get(stream)
    config = declared.config if declared else live.config if live else {}
    limit = config.get("max_consumers") or -1
    if limit > 0:
        return int(limit)
    return _UNDECLARED_LIMIT if scene.live.server.level >= _LEVEL_OF_THAT_LIMIT else None


def within(scene: Scene, changes: Iterable[Change]) -> list[Change]:
    """The changes, with consumer creations blocked on streams that would get too many."""
    result = list(changes)
    creates = Counter(c.key.stream_key for c in result if c.key.kind == "Consumer" and c.action is Action.CREATE)
    over: dict[Key, Reason] = {}
    for stream, number in creates.items():
        limit, total = _limit(scene, stream), number + sum(not c.server_made for c in scene.live.consumers_of(stream).values())
        if limit is not None and total > limit:
            message = f"{stream} would have {total:,} consumers; the server accepts {limit:,}"
            over[stream] = Reason("max-consumers", message, f"declare maxConsumers: {total} (or more) on the stream")
    return [
        c.blocked(over[c.key.stream_key])
        if c.key.kind == "Consumer" and c.action is Action.CREATE and c.key.stream_key in over
        else c
        for c in result
    ]
