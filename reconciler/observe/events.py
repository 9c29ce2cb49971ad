"""What happened to resources, for those who wait for it: the newest for the status page, all of them on NATS.

Invariants: at most once and never late: an event that cannot go out now is dropped and counted; the name of a resource
never becomes more than one token of a subject.
"""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote

import orjson
import structlog

from reconciler.model import units
from reconciler.model.identity import Key
from reconciler.observe.metrics import Metrics

KEPT = 200
RATE = 50.0
"""Events per second that are published in the long run."""
BURST = 200
_MOST_TEXT = 2000
_MOST_ITEMS = 50

Publish = Callable[[str, bytes], bool]
"""Sends one message now, without waiting; False when there is no connection, or it is not allowed."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that happened."""

    type: str
    """Static and dotted, as in the log: `change.ended`."""
    message: str
    """For people, on one line."""
    key: Key | None = None
    """The resource it is about; None: the process itself."""
    severity: Literal["info", "warning", "error"] = "info"
    at: int = field(default_factory=time.time_ns)
    """Nanoseconds since the epoch."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """More about it: plain JSON values."""


class Events:
    """Keeps the newest events and publishes each as CloudEvents JSON on `reconciler.events.OWNER.KIND.NAME`."""

    def __init__(
        self, owner: str, publish: Publish, metrics: Metrics, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.owner = owner
        self._publish = publish
        self._dropped = metrics.events_dropped
        self._monotonic = monotonic
        self._newest: deque[Event] = deque(maxlen=KEPT)
        self._tokens = float(BURST)
        self._filled_at = monotonic()

    def tell(self, event: Event) -> None:
        """Keeps an event, and publishes it if that can be done now."""
        self._newest.append(event)
        if not (self._allowed() and self._sent(event)):
            self._dropped.inc()

    def newest(self) -> tuple[Event, ...]:
        """The newest events, the last one first."""
        return tuple(reversed(self._newest))

    def _allowed(self) -> bool:
        now = self._monotonic()
        self._tokens = min(float(BURST), self._tokens + (now - self._filled_at) * RATE)
        self._filled_at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def _sent(self, event: Event) -> bool:
        try:
            return self._publish(subject_of(self.owner, event), encoded(self.owner, event))
        except Exception:
            log.exception("event.unpublished", type=event.type)
            return False


def subject_of(owner: str, event: Event) -> str:
    """Where an event is published; what is about no resource goes by the first word of its type."""
    key = event.key
    if key is None:
        return f"reconciler.events.{_token(owner)}.Reconciler.{_token(event.type.partition('.')[0])}"
    path = f"{key.stream}/{key.name}" if key.kind == "Consumer" else key.name
    return f"reconciler.events.{_token(owner)}.{key.kind}.{_token(f'{key.domain}:{path}' if key.domain else path)}"


def encoded(owner: str, event: Event) -> bytes:
    """The event as CloudEvents JSON."""
    document = {
        "specversion": "1.0",
        "id": str(uuid.uuid4()),
        "source": f"/reconciler/{quote(owner, safe='')}",
        "type": f"reconciler.{event.type}",
        "subject": str(event.key) if event.key else None,
        "time": units.format_time(event.at),
        "datacontenttype": "application/json",
        "data": {"severity": event.severity, "message": event.message, **event.data},
    }
    return orjson.dumps(_short({name: value for name, value in document.items() if value is not None}))


def _token(text: str) -> str:
    """The text as one token: percent-encoded where NATS (or the eye) would see something else in it."""
    return quote(text, safe="/:@", errors="replace").replace(".", "%2E") or "-"


def _short(value: Any) -> Any:  # noqa: ANN401 - plain JSON values
    """The value, with long texts and lists cut: an event is a notice, and has to fit into one message."""
    if isinstance(value, str):
        text = value if len(value) <= _MOST_TEXT else value[: _MOST_TEXT - 1] + "…"
        return text.encode(errors="replace").decode()
    if isinstance(value, Mapping):
        return {str(name): _short(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_short(item) for item in value[:_MOST_ITEMS]]
    return value
