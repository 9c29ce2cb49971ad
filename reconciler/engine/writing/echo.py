"""What a write's own answer shows of what is live now, so that nobody has to ask for it again; and whether that is what was sent.

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

from collections.abc import Callable
from typing import Any, TypeGuard

import orjson

from reconciler.model.identity import Key
from reconciler.model.marker import read_marker
from reconciler.model.normal import Config, normal_form
from reconciler.model.seen.live import LiveConsumer, LiveStream, Patch
from reconciler.procedures.requests import (
    Absent,
    CreateConsumer,
    CreateStream,
    DeleteConsumer,
    DeleteStream,
    Fact,
    PauseConsumer,
    PurgeStream,
    Put,
    ResetConsumer,
    UpdateConsumer,
    UpdateStream,
    Write,
)

NormalOf = Callable[[Key, Config], Config]
"""The normal form of a configuration by the defaults that hold where this key lives."""


def patch_of(write: Write, reply: dict[str, Any], at: int) -> Patch | None:
    """What the answer to a write, come at this time, shows; None when it has to be read instead."""
    match write:
        case CreateStream(key, config) | UpdateStream(key, config) | CreateConsumer(key, config) | UpdateConsumer(key, config):
            return patch_of_fact(key, reply, at) if same(key, config, reply["config"], normal_form) else None
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


def same(key: Key, config: bytes, live: Config, normal: NormalOf) -> bool:
    """Whether the live configuration is this one already, marker included."""
    sent = orjson.loads(config)
    marked = read_marker(sent.get("metadata"), key.mark) == read_marker(live.get("metadata"), key.mark)
    return marked and normal(key, sent) == normal(key, live)


def differs(write: Write | None, reply: dict[str, Any]) -> TypeGuard[Put]:
    """Whether not all that was sent came back as it was; what the server has filled in is nobody's loss."""
    if not isinstance(write, Put):
        return False
    sent, echoed = orjson.loads(write.config), reply["config"]
    noted = sent.pop("metadata", None) or {}
    return not (sent.items() <= echoed.items() and noted.items() <= (echoed.get("metadata") or {}).items())


def shows(write: Write, fact: Fact, normal: NormalOf) -> bool:
    """Whether this is how things are after the write."""
    match write:
        case UpdateStream(key, config) | UpdateConsumer(key, config):
            return isinstance(fact, dict) and same(key, config, fact["config"], normal)
        case DeleteStream() | DeleteConsumer():
            return isinstance(fact, Absent)
        case _:
            return False
