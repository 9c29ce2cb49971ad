"""Telemetry whose log lines and events stay in the hands of the test.

Invariant: time stands still at NOW, so nothing is dropped for being too fast before the burst is used up.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import orjson
import structlog
from structlog.typing import EventDict, FilteringBoundLogger, WrappedLogger

from reconciler.observe.events import Events
from reconciler.observe.metrics import Metrics
from reconciler.observe.telemetry import Telemetry

NOW = 1_767_225_600.0
"""2026-01-01T00:00:00Z"""


@dataclass
class Sink:
    """Takes what is published, as long as it is open."""

    open_: bool = True
    messages: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def __call__(self, subject: str, payload: bytes) -> bool:
        """Publishes, or says that it cannot."""
        if self.open_:
            self.messages.append((subject, orjson.loads(payload)))
        return self.open_


@dataclass
class Lines:
    """Keeps log lines instead of writing them."""

    kept: list[EventDict] = field(default_factory=list)

    def __call__(self, _: WrappedLogger, level: str, fields: EventDict) -> EventDict:
        """As a processor: the last one."""
        self.kept.append({"level": level, **fields})
        raise structlog.DropEvent

    def at(self, level: str) -> list[str]:
        """The events of one level, in order."""
        return [line["event"] for line in self.kept if line["level"] == level]

    def clear(self) -> None:
        """Forgets what was written so far."""
        self.kept.clear()

    @property
    def logger(self) -> FilteringBoundLogger:
        """Writes here, debug included."""
        logger: FilteringBoundLogger = structlog.wrap_logger(
            None, processors=[self], wrapper_class=structlog.make_filtering_bound_logger(0)
        )
        return logger


def telemetry_of(metrics: Metrics, sink: Sink, lines: Lines | None = None, owner: str = "default") -> Telemetry:
    """Telemetry that tells these."""
    events = Events(owner, sink, metrics, monotonic=lambda: 0.0)
    return Telemetry(metrics, (lines or Lines()).logger, events, now=lambda: NOW)
