"""One write, done properly: the lease first, the pace kept, and the echo compared with what was sent.

2.11, and any server with `strict: false`, drop fields they do not know without a word; only the echo shows it.
But the first update of a consumer after a start of the server echoes what was there before: an echo that differs is not
believed until INFO says the same.
Invariant: no write leaves the engine except through here.
"""

from __future__ import annotations

from collections.abc import Callable

import orjson

from reconciler.engine.ports import Ports
from reconciler.engine.throttle import Throttle
from reconciler.errors import Rewritten
from reconciler.model.identity import Key
from reconciler.model.marker import read_marker
from reconciler.model.normal import Config
from reconciler.plan.display import spec_model, yaml_path
from reconciler.procedures.requests import (
    ConsumerInfo,
    CreateConsumer,
    CreateStream,
    StreamInfo,
    UpdateConsumer,
    UpdateStream,
    Write,
)

NormalOf = Callable[[Key, Config], Config]
"""The normal form of a configuration by the defaults that hold where this key lives."""


class Sender:
    """Sends writes, one at a time per caller."""

    def __init__(self, ports: Ports, throttle: Throttle, normal: NormalOf) -> None:
        self._ports = ports
        self._throttle = throttle
        self.normal = normal

    async def send(self, write: Write, level: int = 0) -> None:
        """Raises NatsError when it failed, Rewritten when the server stored something else, LeaseLost when we may not write."""
        await self._throttle.take()
        self._ports.lease.check()
        reply = await self._ports.writer.write(write, level)
        match write:
            case CreateConsumer(key, config) | UpdateConsumer(key, config):
                await self._compare(key, orjson.loads(config), reply["config"])
            case CreateStream(key, config) | UpdateStream(key, config):
                await self._compare(key, orjson.loads(config), reply["config"])
            case _:
                pass

    def same(self, key: Key, config: bytes, live: Config) -> bool:
        """Whether the live configuration is this one already, marker included."""
        sent = orjson.loads(config)
        marked = read_marker(sent.get("metadata")) == read_marker(live.get("metadata"))
        return marked and self.normal(key, sent) == self.normal(key, live)

    async def _compare(self, key: Key, sent: Config, echoed: Config) -> None:
        wanted, stored = self.normal(key, sent), self.normal(key, echoed)
        if wanted == stored:
            return
        fact = await self._ports.reader.read(info_of(key))
        stored = self.normal(key, fact["config"]) if isinstance(fact, dict) else stored
        if wanted == stored:
            return
        fields = sorted(name for name in {*wanted, *stored} if wanted.get(name) != stored.get(name))
        names = ", ".join(yaml_path(spec_model(key.kind), name) for name in fields)
        msg = f"the server dropped or rewrote {names}: it does not know or not allow what was sent"
        raise Rewritten(msg)


def info_of(key: Key) -> ConsumerInfo | StreamInfo:
    """The question what is there now."""
    return ConsumerInfo(key) if key.kind == "Consumer" else StreamInfo(key)
