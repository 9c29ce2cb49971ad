"""What happens to sources and mirrors, as metrics, log lines and events.

Invariant: told once when it begins and once when it is over, however often it is looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from structlog.typing import FilteringBoundLogger

from reconciler.model import units
from reconciler.model.identity import Key
from reconciler.observe.metrics import SOURCE_CAUSES, SOURCE_STATES, Metrics, cause_label, set_all
from reconciler.observe.wording import filled
from reconciler.render.status.sources import origin_shown
from reconciler.sources.health import HELD_UP, SourceHealth, SourceState
from reconciler.sources.incidents import Incident
from reconciler.sources.look import Entrance

Tell = Callable[..., None]
"""`observe.telemetry`'s way to an event: type, message, key, and its data."""


class SourceNews:
    """Told by whoever watches the sources."""

    def __init__(self, metrics: Metrics, log: FilteringBoundLogger, tell: Tell) -> None:
        self._metrics = metrics
        self._log = log
        self._tell = tell

    def seen(self, found: Iterable[SourceHealth]) -> None:
        """All sources, as the last look found them."""
        metrics, found = self._metrics, tuple(found)
        set_all(metrics.sources, ((state,) for state in SOURCE_STATES), Counter((one.state.value.lower(),) for one in found))
        causes = Counter((cause_label(one.cause),) for one in found if one.cause is not None and one.state in HELD_UP)
        set_all(metrics.source_stalled, ((cause,) for cause in SOURCE_CAUSES), causes)
        metrics.source_pending.set(sum(one.pending or 0 for one in found))
        flowing = (one.silent_for for one in found if one.state is SourceState.FLOWING)
        metrics.source_active.set(max((silent for silent in flowing if silent is not None), default=0) / units.SECOND)

    def stalled(self, key: Key, entrance: Entrance, health: SourceHealth) -> None:
        """Nothing is copied any more, or it is known better by now why."""
        since = units.format_time(health.stalled_since)
        self._say("source.stalled", key, entrance, health.message, bad=True, cause=health.cause, since=since, error=health.error)

    def recovered(self, key: Key, entrance: Entrance, before: SourceHealth, now: SourceHealth) -> None:
        """It is not held up any more."""
        seconds = round((now.since - before.stalled_since) / units.SECOND, 1)
        what = "flows again" if now.state is SourceState.FLOWING else f"is {now.state.value.lower()} now"
        self._say("source.recovered", key, entrance, f"{what} after {seconds:g} s", cause=before.cause, seconds=seconds)

    def kicked(self, key: Key, entrance: Entrance, number: int, most: int) -> None:
        """It is taken away and put back, for the so-manyeth time."""
        self._metrics.source_kicks.inc()
        message = f"is detached and attached again ({number} of {most})"
        self._say("source.kicked", key, entrance, message, bad=True, number=number)

    def given_up(self, key: Key, entrance: Entrance, kicks: int) -> None:
        """Kicking does not help."""
        message = f"still does not flow after {kicks} times of attaching it again; that is given up until it flows"
        self._say("source.given_up", key, entrance, message, bad=True, kicks=kicks)

    def happened(self, key: Key, entrance: Entrance, incident: Incident) -> None:
        """Somebody moved it, made its origin anew, or messages were lost."""
        self._metrics.source_incidents.labels(incident.kind).inc()
        span = {"first": incident.first or None, "last": incident.last or None}
        self._say(f"source.{incident.kind}", key, entrance, incident.message, bad=True, **span)

    def _say(self, type_: str, key: Key, entrance: Entrance, message: str, *, bad: bool = False, **more: Any) -> None:  # noqa: ANN401 - plain values
        data = filled({"origin": str(origin_shown(entrance)), "consumer": entrance.consumer, **more})
        (self._log.warning if bad else self._log.info)(type_, resource=str(key), message=message, **data)
        self._tell(type_, f"{key} from {data['origin']}: {message}", key, bad=bad, **data)
