"""Desired and Live values for tests of the pure rooms, built the way the loader and the snapshot build them."""

from __future__ import annotations

from typing import Any

import orjson

from reconciler.model.desired import Declared, Desired
from reconciler.model.identity import Key, Location
from reconciler.model.kinds.common import DEFAULT_INTENT, Intent
from reconciler.model.kinds.consumer import ConsumerSpec
from reconciler.model.kinds.fields import to_wire
from reconciler.model.kinds.stream import StreamSpec
from reconciler.model.marker import Marker, with_mark
from reconciler.model.normal import complete_stream, digest, normal_consumer, normal_stream
from reconciler.model.seen.live import Live, LiveConsumer, LiveStream, Server
from reconciler.model.units import format_time

NOW = 1_800_000_000 * 10**9
OLD = "2026-01-01T00:00:00Z"


def stream(name: str, spec: dict[str, Any] | None = None, intent: Intent = DEFAULT_INTENT) -> Declared:
    """A declared stream; `spec` in YAML names."""
    wire = complete_stream(to_wire(StreamSpec.model_validate(spec or {})) | {"name": name})
    key = Key("Stream", name)
    return Declared(key, orjson.dumps(wire), digest(normal_stream(wire, name)), Location("t.yaml"), intent)


def consumer(stream_name: str, name: str, spec: dict[str, Any] | None = None, intent: Intent = DEFAULT_INTENT) -> Declared:
    """A declared durable consumer; `spec` in YAML names."""
    model = ConsumerSpec.model_validate({"stream": stream_name, "ackPolicy": "explicit", **(spec or {})})
    wire = to_wire(model) | {"name": name, "durable_name": name}
    key = Key("Consumer", name, stream_name)
    return Declared(key, orjson.dumps(wire), digest(normal_consumer(wire)), Location("t.yaml"), intent)


def desired(*declared: Declared, **more: Any) -> Desired:
    """Everything that is declared."""
    return Desired({entry.key: entry for entry in declared}, **more)


def marked(declared: Declared, owner: str = "default", **changes: Any) -> dict[str, Any]:
    """The wire configuration of a declared resource as we would have left it, with `changes` made by somebody."""
    config = declared.config
    marker = Marker(owner=owner, spec=declared.digest)
    return {**config, "metadata": with_mark(config.get("metadata"), marker, declared.key.mark), **changes}


def stream_info(config: dict[str, Any], **state: Any) -> dict[str, Any]:
    """An INFO answer; `state` overrides an empty stream's."""
    empty = {"messages": 0, "bytes": 0, "first_seq": 1, "last_seq": 0, "first_ts": OLD, "consumer_count": 0}
    return {"config": config, "state": empty | state, "created": OLD, "ts": format_time(NOW)}


def consumer_info(stream_name: str, config: dict[str, Any], **more: Any) -> dict[str, Any]:
    """An INFO answer of an idle consumer."""
    idle: dict[str, Any] = {"num_pending": 0, "num_ack_pending": 0, "delivered": {"consumer_seq": 0, "stream_seq": 0}}
    floor = {"ack_floor": {"consumer_seq": 0, "stream_seq": 0}}
    return {"stream_name": stream_name, "name": config["name"], "config": config, "created": OLD, **idle, **floor, **more}


def live(*infos: dict[str, Any], level: int = 5, **more: Any) -> Live:
    """A snapshot of these INFO answers."""
    streams: dict[Key, LiveStream] = {}
    consumers: dict[Key, dict[str, LiveConsumer]] = {}
    for info in infos:
        if "stream_name" in info:
            consumers.setdefault(Key("Stream", info["stream_name"]), {})[info["name"]] = LiveConsumer.seen(info)
        else:
            streams[Key("Stream", info["config"]["name"])] = LiveStream.seen(info)
    return Live(Server(version="2.15.1", level=level), NOW, streams, consumers, **more)
