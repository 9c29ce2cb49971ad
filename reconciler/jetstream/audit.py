"""Who changes what: the servers' API audit, read frugally.

It repeats every request and its answer, whoever asks, answers of megabytes included; on one subject, so that it cannot be
narrowed. Of each message only the request's subject is looked at, and of those that change something the client is read.

Invariant: a connection of its own, no queue, and never more than the budget for long (unless it is told to stay on).
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import orjson
import structlog

from reconciler.errors import NatsError
from reconciler.jetstream.advisories import domain_in
from reconciler.jetstream.connection import Connection
from reconciler.jetstream.settings import ConnectionSettings
from reconciler.jetstream.subscription import Tap
from reconciler.model.api import JETSTREAM_EVENTS
from reconciler.model.identity import Key
from reconciler.plan.change import Author

# A quote within a string is always escaped, so neither of these can occur in what somebody wrote.
_CLIENT_ENDS = b'},"subject":"'
_ANSWER = b',"response":"'
_FAILED = b',\\"error\\":{'
_CLIENT_WITHIN = 8192
_ERROR_WITHIN = 200
_CHANGES = re.compile(
    rb'\$JS\.(?:([^."]+)\.)?API\.'
    rb'(?:(STREAM)\.(?:CREATE|UPDATE|DELETE|RESTORE)\.([^."]+)'
    rb'|CONSUMER\.(?:CREATE|DURABLE\.CREATE|DELETE|PAUSE)\.([^."]+)\.([^."]+))[."]'
)

log = structlog.get_logger(__name__)


class AuditMode(StrEnum):
    """Whether the audit is listened to."""

    AUTO = "auto"
    """Unless it costs too much."""
    ON = "on"
    OFF = "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditLimits:
    """How much of it is borne, and for how long it is left alone when it was more."""

    budget: float = 3_000.0
    """Messages a second."""
    window: float = 2.0
    """Seconds over which they are counted."""
    retry: float = 60.0
    trial: float = 3.0


@dataclass(frozen=True, slots=True)
class Heard:
    """Somebody changed something."""

    key: Key
    client: str
    """The connection's name as it is; empty where it has none."""
    relayed: bool
    """The request came through a leaf node, which takes the client's name away."""
    author: Author


def read_change(data: bytes) -> Heard | None:
    """The change that an audit message reports; None when it is about a request that only reads, or that failed."""
    ends = data.find(_CLIENT_ENDS, 0, _CLIENT_WITHIN)
    if ends < 0:
        return None
    change = _CHANGES.match(data, ends + len(_CLIENT_ENDS))
    if change is None:
        return None
    answer = data.find(_ANSWER, change.end())
    if answer < 0 or data.find(_FAILED, answer, answer + _ERROR_WITHIN) >= 0:
        return None
    try:
        domain, kind, of_stream, stream, name = (_text(part) for part in change.groups())
        head: dict[str, Any] = orjson.loads(data[: ends + 1] + b"}")
    except orjson.JSONDecodeError:
        return None  # not written by a server: anybody may publish here
    domain = domain_in(data) or domain
    client = _texts(head.get("client"))
    return Heard(
        Key("Stream", of_stream, "", domain) if kind else Key("Consumer", name, stream, domain),
        client.get("name", ""),
        client.get("kind") == "Leafnode",
        Author(_shown(client), client.get("user", ""), _texts(head).get("timestamp", "")),
    )


def _texts(fields: object) -> dict[str, str]:
    """Those that are text, as a server writes them."""
    return {name: text for name, text in fields.items() if isinstance(text, str)} if isinstance(fields, dict) else {}


def _text(part: bytes | None) -> str:
    """As a JSON string: the server escapes some characters that names may have."""
    return str(orjson.loads(b'"%b"' % part)) if part else ""


def _shown(client: dict[str, str]) -> str:
    """What a person can recognise a client by."""
    if client.get("name"):
        return client["name"]
    if client.get("lang"):
        return f"{client['lang']}/{client.get('ver', '')}"
    return f"{client.get('kind', 'client')} {client.get('cluster') or client.get('host') or ''}".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditListener:
    """Who is told, in the middle of reading: all of these must be quick."""

    heard: Callable[[Heard], None]
    lost: Callable[[str], None]
    """Changes may have gone unheard, for this reason."""
    state: Callable[[str, float], None]
    """The state is now `on`, `off`, `shed` or `denied`, at so many messages a second."""


class Audit:
    """Listens to the audit, and lets it be while it is too much."""

    def __init__(
        self, settings: ConnectionSettings, name: str, listener: AuditListener, limits: AuditLimits, mode: AuditMode
    ) -> None:
        self.state = ""
        self.rate = 0.0
        """Messages a second, at the last count."""
        self.heard = 0
        """How many messages there were since the start."""
        self._settings = settings
        self._name = name
        self._subject = f"{settings.js_event_prefix or JETSTREAM_EVENTS}.ADVISORY.API"
        self._listener = listener
        self._limits = limits
        self._mode = mode
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Listens from now on; returns before the first answer of a server."""
        if self._mode is AuditMode.OFF:
            self._tell("off")
            return
        self._task = asyncio.get_running_loop().create_task(self._run(), name="api-audit")
        self._task.add_done_callback(_report)

    async def stop(self) -> None:
        """Ends for good."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                connection = await Connection.start(self._settings, self._name)
            except NatsError as error:
                log.warning("audit.refused", error=str(error))
                self._tell("denied")
                await asyncio.sleep(self._limits.retry)
                continue
            async with connection:
                connection.on_state_change(self._on_state_change)
                await self._listen(connection)

    async def _listen(self, connection: Connection) -> None:
        tap = await self._tap(connection)
        while True:
            if not await self._too_much(connection, tap):
                continue
            await connection.unsubscribe(tap)
            self._tell("shed")
            log.warning("audit.shed", rate=round(self.rate), budget=self._limits.budget)
            tap = await self._try_again(connection)
            self._tell("on")
            self._listener.lost("the API audit was not listened to while it was too much")

    async def _try_again(self, connection: Connection) -> Tap:
        """Returns when a trial stayed within the budget."""
        while True:
            await asyncio.sleep(self._limits.retry)
            tap = await self._tap(connection)
            await self._measure(self._limits.trial)
            if self.rate <= self._limits.budget:
                return tap
            await connection.unsubscribe(tap)

    async def _tap(self, connection: Connection) -> Tap:
        tap = await connection.tap(self._subject, self._take, calm=True)
        with suppress(NatsError):  # lost meanwhile: it is subscribed again on the next link
            await connection.flush()
        return tap

    async def _too_much(self, connection: Connection, tap: Tap) -> bool:
        """Counts for one window, and says whether it is to be shed."""
        if tap.denied:
            self._tell("denied")
        else:
            self._tell("on" if connection.connected else "off")
        await self._measure(self._limits.window)
        return self._mode is AuditMode.AUTO and self.rate > self._limits.budget

    async def _measure(self, seconds: float) -> None:
        before, started = self.heard, time.monotonic()
        await asyncio.sleep(seconds)
        self.rate = (self.heard - before) / (time.monotonic() - started)

    def _take(self, _: str, data: bytes) -> None:
        self.heard += 1
        heard = read_change(data)
        if heard is not None:
            self._listener.heard(heard)

    def _on_state_change(self, connected: bool) -> None:  # noqa: FBT001 - a StateListener
        if self.state == "shed":
            return
        if not connected:
            self._tell("off")
        else:
            self._listener.lost("the API audit's connection was away")

    def _tell(self, state: str) -> None:
        if state != self.state:
            self.state = state
            self._listener.state(state, self.rate)


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("audit.failed", exc_info=task.exception())
