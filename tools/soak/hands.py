"""What the meddler does things with: a client of its own, dice, and a note of what it has left behind.

Invariant: every request that changes something is counted, and an edit changes what it names and nothing else.
"""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import nats.errors

from tests.support.account.wire import Json, Wire
from tools.soak.families import READ, Family
from tools.soak.ledger import Ledger, Standing

MARK = "reconciler."
JOURNAL = "reconciler.procedure"
_FILTERS = {"filter_subject": "filter_subjects", "filter_subjects": "filter_subject"}
_REST = 5.0
"""Seconds between two acts on what is compared in the end."""
_STANDS = (20.0, 180.0)


class NoSuch(Exception):
    """What an act was to be done to is not there, or would not have it."""


@dataclass
class Hands:
    """The meddler's."""

    wire: Wire
    dice: random.Random
    ledger: Ledger
    resources: int
    touched: dict[str, float] = field(default_factory=dict)

    async def info(self, stream: str, consumer: str = "") -> Json:
        """What is live; raises NoSuch."""
        return await self._answer(f"CONSUMER.INFO.{stream}.{consumer}" if consumer else f"STREAM.INFO.{stream}", None)

    async def write(self, request: str, payload: Json | None = None) -> Json:
        """One request that changes something; raises NoSuch when it is refused."""
        self.ledger.writes += 1
        return await self._answer(request, payload)

    async def put(self, config: Mapping[str, Any], stream: str, consumer: str = "", action: str = "update") -> Json:
        """Replaces a configuration, or makes it."""
        if consumer:
            body = {"stream_name": stream, "config": config, "action": action}
            return await self.write(f"CONSUMER.CREATE.{stream}.{consumer}", body)
        return await self.write(f"STREAM.{action.upper()}.{stream}", dict(config))

    async def edit(self, stream: str, consumer: str = "", **fields: Any) -> None:  # noqa: ANN401 - any field
        """Changes these fields of what is live now; a `metadata` is added to what is there."""
        config = dict((await self.info(stream, consumer))["config"])
        for name, value in fields.items():
            config.pop(_FILTERS.get(name, ""), None)
            config[name] = {**config.get(name, {}), **value} if name == "metadata" else value
        await self.put(config, stream, consumer)

    async def pause(self, stream: str, consumer: str, seconds: float) -> None:
        """Pauses it for a while; 0: ends that."""
        until = datetime.now(UTC) + timedelta(seconds=seconds)
        body = {"pause_until": until.isoformat().replace("+00:00", "Z")} if seconds else {}
        await self.write(f"CONSUMER.PAUSE.{stream}.{consumer}", body)

    def free(self, key: str, *, careful: bool) -> bool:
        """Whether an act may be done to it: what is compared in the end is given time, and bears one thing that stands."""
        now = time.monotonic()
        if careful and (key in self.ledger.standing or now - self.touched.get(key, -_REST) < _REST):
            return False
        self.touched[key] = now
        return True

    def stands(self, key: str, what: str, undo: Callable[[], Awaitable[None]], *, last: bool) -> None:
        """Notes what is left behind, for a while."""
        due = time.monotonic() + self.dice.uniform(*_STANDS)
        self.ledger.standing[key] = Standing(key, what, due, undo, last)

    async def undo(self, key: str) -> None:
        """Takes it back, as far as it is there."""
        try:
            await self.ledger.standing[key].undo()
        except NoSuch:
            self.ledger.failed["undo"] += 1
        del self.ledger.standing[key]

    async def _answer(self, request: str, payload: Json | None) -> Json:
        try:
            answer = await self.wire.call(request, payload)
        except (nats.errors.TimeoutError, nats.errors.NoRespondersError) as error:
            raise NoSuch(request) from error
        if "error" in answer:
            msg = f"{request}: {answer['error'].get('description')}"
            raise NoSuch(msg)
        return answer


def key_of(stream: str, consumer: str = "") -> str:
    """As manifests and marks call it."""
    if consumer:
        return f"Consumer/{stream}/{consumer}"
    return f"KeyValue/{stream[3:]}" if stream.startswith("KV_") else f"Stream/{stream}"


def is_read(family: Family, consumer: str) -> bool:
    """Whether a worker hangs on it."""
    return family.read and consumer == READ
