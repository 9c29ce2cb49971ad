"""What a write's own answer shows of what is live now, so that nobody has to ask for it again.

| answer to | carries |
|---|---|
| STREAM.CREATE, STREAM.UPDATE | all that an INFO has |
| CONSUMER.CREATE (create and update), CONSUMER.RESET | all that an INFO has |
| STREAM.DELETE, CONSUMER.DELETE | that it is gone |
| CONSUMER.PAUSE | the pause only: whoever wants to know more asks |
| STREAM.PURGE | how many messages went: nothing of a configuration |

Invariant: pure. An answer whose configuration is not what was sent shows nothing: the first update of a consumer after a start
of the server is answered with what was there before it.
"""

from __future__ import annotations

from typing import Any

import orjson

from reconciler.model.identity import Key
from reconciler.model.live import LiveConsumer, LiveStream, Patch
from reconciler.model.marker import read_marker
from reconciler.model.normal import Config, normal_form
from reconciler.procedures.requests import (
    Absent,
    CreateConsumer,
    CreateStream,
    DeleteConsumer,
    DeleteStream,
    Fact,
    PauseConsumer,
    PurgeStream,
    ResetConsumer,
    UpdateConsumer,
    UpdateStream,
    Write,
)


def patch_of(write: Write, reply: dict[str, Any], at: int) -> Patch | None:
    """What the answer to a write, come at this time, shows; None when it has to be read instead."""
    match write:
        case CreateStream(key, config) | UpdateStream(key, config):
            return patch_of_fact(key, reply, at) if _says(key, orjson.loads(config), reply["config"]) else None
        case CreateConsumer(key, config) | UpdateConsumer(key, config):
            return patch_of_fact(key, reply, at) if _says(key, orjson.loads(config), reply["config"]) else None
        case DeleteStream(key) | DeleteConsumer(key):
            return patch_of_fact(key, Absent(), at) if reply.get("success") else None
        case ResetConsumer(key, _):
            return patch_of_fact(key, reply, at)
        case PauseConsumer() | PurgeStream():
            return None


def patch_of_fact(key: Key, fact: Fact, at: int) -> Patch | None:
    """What INFO of this key, asked at this time, shows; None when it shows nothing."""
    if not isinstance(fact, dict | Absent):
        return None
    if key.kind == "Consumer":
        return Patch(at=at, consumers={key: LiveConsumer.seen(fact) if isinstance(fact, dict) else None})
    return Patch(at=at, streams={key.stream_key: LiveStream.seen(fact) if isinstance(fact, dict) else None})


def _says(key: Key, sent: Config, echoed: Config) -> bool:
    """Whether the server repeats what it was sent; by defaults of its own it may look different, which costs a read."""
    marked = read_marker(sent.get("metadata"), key.mark) == read_marker(echoed.get("metadata"), key.mark)
    return marked and normal_form(key, sent) == normal_form(key, echoed)
