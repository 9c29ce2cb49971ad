"""Who changes what: the servers' API audit, read frugally.

It repeats every request and its answer, whoever asks, answers of megabytes included; on one subject, so that it cannot be
narrowed. Of each message only the request's subject is looked at, and of those that change something the client is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import orjson

from reconciler.jetstream.hearing.advisories import domain_in
from reconciler.jetstream.hearing.overhearing import Limits, Listener, Overhearing
from reconciler.jetstream.transport.settings import ConnectionSettings
from reconciler.model.api import JETSTREAM_EVENTS
from reconciler.model.identity import Key
from reconciler.plan.change import Author

# A quote within a string is always escaped, so neither of these can occur in what somebody wrote.
_CLIENT_ENDS = b'},"subject":"'
_ANSWER = b',"response":"'
_FAILED = b',\\"error\\":{'
_CLIENT_WITHIN = 8192
_ERROR_WITHIN = 200
_SHOWN = 200
_CHANGES = re.compile(
    rb'\$JS\.(?:([^."]+)\.)?API\.'
    rb'(?:(STREAM)\.(?:CREATE|UPDATE|DELETE|RESTORE)\.([^."]+)'
    rb'|CONSUMER\.(?:CREATE|DURABLE\.CREATE|DELETE|PAUSE)\.([^."]+)\.([^."]+))[."]'
)


class AuditMode(StrEnum):
    """Whether the audit is listened to."""

    AUTO = "auto"
    """Unless it costs too much."""
    ON = "on"
    OFF = "off"


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
    """Those that are text, as a server writes them; of a long one as much as anybody can read, for many are remembered."""
    return {name: text[:_SHOWN] for name, text in fields.items() if isinstance(text, str)} if isinstance(fields, dict) else {}


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


class Audit(Overhearing):
    """Listens to the audit, and lets it be while it is too much."""

    def __init__(self, settings: ConnectionSettings, name: str, listener: AuditListener, limits: Limits, mode: AuditMode) -> None:
        def take(_: str, data: bytes) -> bool:
            heard = read_change(data)
            if heard is not None:
                listener.heard(heard)
            return True

        super().__init__(
            what="the API audit",
            settings=settings,
            name=name,
            subjects=(f"{settings.js_event_prefix or JETSTREAM_EVENTS}.ADVISORY.API",),
            listener=Listener(take=take, lost=listener.lost, state=listener.state),
            limits=limits,
            stays=mode is AuditMode.ON,
        )
        self._mode = mode

    async def start(self, *, at_once: bool = False) -> None:
        """Listens from now on, unless it is off."""
        if self._mode is AuditMode.OFF:
            self.tell("off")
        else:
            await super().start(at_once=at_once)
