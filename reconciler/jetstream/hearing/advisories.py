"""What servers tell of changes as they happen, and which of it is the echo of our own writes.

An advisory names no client. So each write of ours is noted before it is sent, and takes away one advisory of its kind.

Invariant: an expectation takes away one message at most and not for long; when in doubt, a change counts as somebody else's.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from reconciler.jetstream.hearing.overhearing import Limits, Listener, Overhearing
from reconciler.jetstream.transport.connection import Connection
from reconciler.model.api import JETSTREAM_EVENTS
from reconciler.model.identity import Key
from reconciler.procedures.requests import (
    CreateConsumer,
    CreateStream,
    DeleteConsumer,
    DeleteStream,
    PauseConsumer,
    PurgeStream,
    ResetConsumer,
    UpdateConsumer,
    UpdateStream,
    Write,
)

AUDITED = "API"
"""The operation under which the audit's own copy of a write is expected."""
_STREAM = ("CREATED", "UPDATED", "DELETED")
_CONSUMER = ("CREATED", "DELETED", "PAUSE")
_EXPECTED = 10.0
_AFTER_ANSWER = 2.0
"""Seconds; servers send an advisory at the moment they answer."""
_DOMAIN = re.compile(rb',"domain":"([^"\\]+)"')
_TAIL = 300
_API_OF = re.compile(r"\$JS\.([^.]+)\.API")

Heard = Callable[[str, Key], bool]
"""Told of what happened (`STREAM.CREATED`) to which key; whether it was somebody else's doing."""


@dataclass(frozen=True, slots=True)
class Home:
    """Where keys without a domain live."""

    connection: Connection

    @property
    def domain(self) -> str:
        """The name servers give to the domain whose API we use."""
        settings = self.connection.settings
        named = _API_OF.fullmatch(settings.js_api_prefix)
        return settings.js_domain or (named[1] if named else self.connection.server.domain)

    def key(self, key: Key) -> Key:
        """The key with its domain left out if that is home."""
        return key._replace(domain="") if key.domain and key.domain == self.domain else key


def domain_in(data: bytes) -> str:
    """The domain that the last field of a JetStream event names; no string within the event can look like that field."""
    found = _DOMAIN.search(data, max(0, len(data) - _TAIL))
    return found[1].decode(errors="replace") if found else ""


def advisories(home: Home, name: str, heard: Heard, lost: Callable[[str], None], limits: Limits) -> Overhearing:
    """Listens to what happens to streams and consumers, on a connection of that name; what our own writes cause is free."""
    settings = home.connection.settings
    prefix = f"{settings.js_event_prefix or JETSTREAM_EVENTS}.ADVISORY."
    wanted = [f"STREAM.{what}.*" for what in _STREAM] + [f"CONSUMER.{what}.*.*" for what in _CONSUMER]

    def take(subject: str, data: bytes) -> bool:
        kind, what, *names = subject.removeprefix(prefix).split(".")
        domain = domain_in(data)
        key = Key("Stream", names[0], "", domain) if kind == "STREAM" else Key("Consumer", names[1], names[0], domain)
        return heard(f"{kind}.{what}", home.key(key))

    return Overhearing(
        what="the advisories",
        settings=settings,
        name=name,
        subjects=tuple(f"{prefix}{subject}" for subject in wanted),
        listener=Listener(take=take, lost=lost, deaf=lost),
        limits=limits,
    )


@dataclass(slots=True)
class _Expected:
    until: float
    place: tuple[str, Key]


@dataclass(slots=True)
class OwnWrites:
    """What our own writes will make servers say."""

    home: Home
    now: Callable[[], float] = time.monotonic
    _expected: dict[tuple[str, Key], list[_Expected]] = field(default_factory=dict)
    _by_age: deque[_Expected] = field(default_factory=deque)

    @contextmanager
    def expecting(self, write: Write) -> Iterator[None]:
        """Around sending a write: one message of each kind it causes is ours. None is when it fails."""
        self._forget_old()
        until = self.now() + _EXPECTED
        made = [_Expected(until, (operation, self.home.key(key))) for operation, key in _causes(write)]
        for one in made:
            self._expected.setdefault(one.place, []).append(one)
        self._by_age.extend(made)
        try:
            yield
        except BaseException:
            for one in made:
                one.until = 0.0
            raise
        until = self.now() + _AFTER_ANSWER
        for one in made:
            one.until = min(one.until, until)

    def claim(self, operation: str, key: Key) -> bool:
        """Whether this is the echo of a write of ours; asking uses the expectation up."""
        waiting = self._expected.get((operation, key), [])
        while waiting:
            one = waiting.pop(0)
            if not waiting:
                del self._expected[one.place]
            if one.until >= self.now():
                return True
        # A stream of ours that goes takes its consumers with it, and says so of each before it says it of the stream.
        return operation == "CONSUMER.DELETED" and self._is_expected("STREAM.DELETED", key.stream_key)

    def _is_expected(self, operation: str, key: Key) -> bool:
        return any(one.until >= self.now() for one in self._expected.get((operation, key), ()))

    def _forget_old(self) -> None:
        while self._by_age and self._by_age[0].until < self.now():
            one = self._by_age.popleft()
            waiting = self._expected.get(one.place, [])
            if one in waiting:
                waiting.remove(one)
                if not waiting:
                    del self._expected[one.place]


def _causes(write: Write) -> Iterator[tuple[str, Key]]:
    """The advisories that a write always brings about when it succeeds, and its line in the audit."""
    match write:
        case CreateStream(key):
            yield "STREAM.CREATED", key.live_key
        case UpdateStream(key):
            yield "STREAM.UPDATED", key.live_key
        case DeleteStream(key):
            yield "STREAM.DELETED", key.live_key
        case CreateConsumer(key, config):
            yield "CONSUMER.CREATED", key
            if b'"pause_until"' in config:
                yield "CONSUMER.PAUSE", key
        case DeleteConsumer(key):
            yield "CONSUMER.DELETED", key
        case PauseConsumer(key):
            yield "CONSUMER.PAUSE", key
        case UpdateConsumer(key) | ResetConsumer(key) | PurgeStream(key):
            pass
    if not isinstance(write, ResetConsumer | PurgeStream):  # of these the audit tells nothing that we listen to
        yield AUDITED, key.live_key
