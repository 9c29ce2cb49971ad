"""Watches the sources and mirrors of declared streams, tells how they fare, and sees to it that something is done.

| found | what follows |
|---|---|
| a durable that is not there, an entry that was taken away, an origin that was made anew | the key is looked at by a pass |
| an entry of ours that does not attach | it is kicked (`engine.sources.kicks`) |
| anything else | it is told: status, metrics, events |

Invariant: nothing is read while there are no sources, or no connection; a process that does not lead watches, and keeps quiet.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import structlog

from reconciler.engine.daemon.state import DaemonState
from reconciler.engine.ports import Ports
from reconciler.engine.sources.kicks import Kicks
from reconciler.engine.sources.looks import Looks, WatchedSource
from reconciler.model.identity import Key
from reconciler.render.status.sources import source_row
from reconciler.sources.health import HELD_UP, SourceHealth, SourceState
from reconciler.sources.kick import KickSource
from reconciler.sources.symptoms import StallCause

INTERVAL = 3.0
"""Seconds from one look to the next: three of them within the time in which a stall has to be noticed."""

log = structlog.get_logger(__name__)


class SourcesWatch:
    """The watch of one daemon."""

    def __init__(self, state: DaemonState, ports: Ports) -> None:
        self._state = state
        self._clock = ports.clock
        self._kicks = Kicks(state, ports)
        self._looks = Looks(ports.reader, ports.clock.now, self._procedure_of)
        self._known: dict[tuple[Key, str], WatchedSource] = {}
        self._refused: dict[Key, str] = {}
        """Streams that may not be looked at, and why: told already."""

    async def watch(self) -> None:
        """Looks again and again, for ever."""
        while True:
            began = self._clock.monotonic()
            if not self._state.board.connected:
                self._unseen()
            elif self._state.passed:
                await self._looked()
            await self._clock.sleep(max(INTERVAL / 2, INTERVAL - (self._clock.monotonic() - began)))

    async def _looked(self) -> None:
        try:
            await self.look()
        except Exception:
            log.exception("sources.crashed")
            self._unseen()
            self._state.board.sources_unseen("the last look crashed; the log says more")

    def _unseen(self) -> None:
        """Nobody knows how they fare."""
        self._state.telemetry.sources.seen([SourceHealth(state=SourceState.UNKNOWN)] * len(self._known))

    async def look(self) -> None:
        """One look at everything."""
        state, connections = self._state, self._state.connections
        desired, before = state.desired, self._known
        level = state.live.server.level if state.live is not None else 0
        seen = await self._looks.everything(desired, before, level)
        if connections != state.connections or desired is not state.desired:
            return  # silence on a connection that broke says nothing about the sources
        self._tell_refused(seen.values())
        self._known = {name: replace(source, incidents=()) for name, source in seen.items()}
        self._kicks.forget(set(seen))
        for name, source in seen.items():
            self._follow(before.get(name), source)
        state.telemetry.sources.seen(source.history.health for source in seen.values() if source.history.health)
        state.board.sources_seen(
            [source_row(source.entrance, health) for source in seen.values() if (health := source.history.health)]
        )

    def _tell_refused(self, seen: Iterable[WatchedSource]) -> None:
        """Once for each stream and reason: what this user may not look at."""
        refused = {source.entrance.aggregate: source.refused for source in seen if source.refused}
        for stream, why in refused.items():
            if self._refused.get(stream) != why:
                log.warning("source.not_seen", stream=str(stream), error=why)
        self._refused = refused

    def _procedure_of(self, key: Key) -> str:
        """What holds a source on purpose; a kick does not: it belongs to the stall that it is to end."""
        running = self._state.keeper.of(key)
        machine = running.change.machine if running is not None else None
        return machine.name if machine is not None and not isinstance(machine, KickSource) else ""

    def _follow(self, before: WatchedSource | None, source: WatchedSource) -> None:
        """What follows from one look at one entry."""
        state, health = self._state, source.history.health
        if health is None:
            return
        self._look_closer(source, before.history.health if before else None)
        if not state.speaks:
            return
        resource = state.resource(source.entrance.aggregate)
        key = resource.key if resource is not None else source.entrance.aggregate
        self._tell(key, before.history.health if before else None, source, health)
        self._kicks.consider(source, self._clock.now())

    def _look_closer(self, source: WatchedSource, before: SourceHealth | None) -> None:
        """Lets a pass look at what it may have to put in place, and at what cannot be seen any more."""
        state, entrance, history = self._state, source.entrance, source.history
        if any(incident.kind == "recreated" for incident in source.incidents):
            state.agenda.look([entrance.aggregate])
        cause = history.health.cause if history.health else None
        if source.missing and entrance.durable and state.concerns(entrance.durable):
            state.agenda.look([entrance.durable])
        if cause is StallCause.DETACHED:
            state.agenda.look([entrance.aggregate])
        if cause is StallCause.DOMAIN and not (before and before.cause is cause):
            state.agenda.look([key for key in (entrance.origin, entrance.durable) if key and state.concerns(key)])

    def _tell(self, key: Key, before: SourceHealth | None, source: WatchedSource, health: SourceHealth) -> None:
        news, entrance = self._state.telemetry.sources, source.entrance
        for incident in source.incidents:
            news.happened(key, entrance, incident)
        stalled = before if before is not None and before.stalled_since else None
        if health.state in HELD_UP and not (stalled and stalled.cause is health.cause):
            news.stalled(key, entrance, health)
        elif stalled and not health.stalled_since:
            news.recovered(key, entrance, stalled, health)
